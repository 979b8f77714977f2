"""Weights in Hugging Face's layout: a folder with ``model.safetensors`` (or shards of it) and ``config.json``.

Reading maps the file's names onto the model's, checks everything, and only then fills the parameters, a piece of a
tensor at a time. Names are public ones throughout: as in the kept model's file, never those of our modules.
"""

from __future__ import annotations

import fnmatch
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import torch
from safetensors import SafetensorError, safe_open

from rtx_core.components import LoadRules
from rtx_core.durable import write_file, write_tensors
from rtx_core.errors import InputError, RunError
from rtx_core.model_folder import CONFIG, INDEX, WEIGHTS, missing_weights

if TYPE_CHECKING:
    from rtx_core.components import Source

_PIECE = 2**20
"""How many numbers are read at once. What was read of a mapped file counts as memory of the process until it is closed,
so a file is opened anew for each piece: loading then needs hardly more than the parameters themselves."""
_SHOWN = 3
"""How many names a message lists before it counts the rest."""
_FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
_TABLES = {
    "word_embeddings": ("vocabulary", "vocab_size"),
    "position_embeddings": ("position table", "max_position_embeddings"),
    "token_type_embeddings": ("table of token types", "type_vocab_size"),
}
"""Embedding modules by the names that they have in most families: what their rows are, and the setting for it."""


@attrs.frozen(kw_only=True)
class LoadContext:
    """What :func:`load` has to know of the model beyond its parameters."""

    base_prefix: str = ""
    """What the names of the backbone begin with, as ``bert.``; a file may leave it out."""
    head: Collection[str] = frozenset()
    """Names of the head's parameters, the pooler's among them; a file may lack them."""
    tied: Mapping[str, str] = attrs.field(factory=dict)
    """Further names of tied parameters, each to the name under which the parameter is loaded."""
    rules: LoadRules = attrs.field(factory=LoadRules)
    """What else may be new or unused."""


@attrs.frozen(kw_only=True)
class LoadReport:
    """Where each tensor came from, and which had no use."""

    loaded: tuple[str, ...]
    """Parameters with values from the file."""
    new: tuple[str, ...]
    """Parameters that the file lacks; they are still as they were before."""
    unused: tuple[str, ...]
    """Names in the file that no parameter took."""


def load(folder: Path, parameters: Mapping[str, torch.Tensor], context: LoadContext) -> LoadReport:
    """Fill a model's parameters from a folder, converted to their dtype and device, tied ones through either name.

    A file's name fits with and without ``base_prefix``, below ``module.`` (DataParallel), and with a norm's weight and
    bias called gamma and beta; ``position_ids``, which old files hold, is passed over.

    :param parameters: the distinct parameters by name.
    :raises InputError: the folder can't be read, or something differs that the context doesn't allow. Nothing was
        changed then.
    """
    stored = StoredTensors.open(folder)
    found, unused = _matched(stored.names, parameters, context)
    misfits = _misfits(stored, found, parameters)
    renewed = {name for name in misfits if _matches(name, context.rules.allow_new)}
    kept_misfits = {name: file_name for name, file_name in misfits.items() if name not in renewed}
    _refuse_misfits(stored, kept_misfits, parameters, context.head)
    unused += [file_name for name in found if name in renewed for file_name in found[name]]
    found = {name: file_names for name, file_names in found.items() if name not in renewed}
    new = [name for name in parameters if name not in found]
    _guard(folder, new, unused, parameters, context)
    _refuse_contradictions(stored, found, context)
    for name, file_names in found.items():
        stored.copy(file_names[0], parameters[name])
    return LoadReport(loaded=tuple(found), new=tuple(new), unused=tuple(unused))


def load_exactly(folder: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Fill tensors from a folder that :func:`write_model` made of the same model.

    :raises InputError: the folder can't be read, or a name or shape differs. Nothing was changed then.
    """
    stored = StoredTensors.open(folder)
    if differing := sorted(stored.names ^ tensors.keys()):
        raise InputError(f"{folder} holds another model: {_listed(differing)} are not in both")
    found = {name: [name] for name in tensors}
    _refuse_misfits(stored, _misfits(stored, found, tensors), tensors)
    for name, tensor in tensors.items():
        stored.copy(name, tensor)


def source_folder(source: Source, working_directory: Path) -> Path:
    """The folder behind ``from_pretrained``: of ``run:NAME`` the kept model of ``runs/NAME``.

    :raises InputError: there is no such folder.
    """
    if source.scheme == "hub":
        raise InputError(f'"{source}": hub: sources are not supported yet; take a folder with the downloaded files')
    if source.scheme == "folder":
        folder = Path(source.location)
        if not folder.is_dir():
            raise InputError(f"there is no folder {folder}")
        return folder
    folder = working_directory / "runs" / source.location / "model"
    if not folder.is_dir():
        raise InputError(f'"{source}": there is no kept model in {folder}; finish that run first')
    return folder


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's ``config.json``.

    :raises InputError: it is missing or no JSON object.
    """
    return _json_object(folder / CONFIG)


# --- the file ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class Stored:
    """Where a tensor lies, and what it is."""

    file: Path
    shape: tuple[int, ...]
    dtype: str
    """As safetensors names it: ``F32``, ``BF16``, ``I64``."""


@attrs.frozen
class StoredTensors:
    """The tensors of a folder by the file's names; values are read when they are copied."""

    entries: Mapping[str, Stored]

    @classmethod
    def open(cls, folder: Path) -> StoredTensors:
        """Read the headers of ``model.safetensors``, or of the shards that an index names.

        :raises InputError: there are no such files, or one is damaged.
        """
        if (problem := missing_weights(folder)) is not None:
            raise InputError(f"{folder} {problem}")
        whole = folder / WEIGHTS
        return cls(_header(whole) if whole.is_file() else _sharded(folder))

    @property
    def names(self) -> frozenset[str]:
        """Every tensor's name."""
        return frozenset(self.entries)

    def pieces(self, name: str) -> Iterator[tuple[slice, torch.Tensor]]:
        """A tensor's rows a few at a time: which, and their values. Of one without rows the whole."""
        stored = self.entries[name]
        for rows in _row_slices(stored.shape):
            with _readable(stored.file), safe_open(stored.file, framework="pt") as file:
                yield rows, file.get_slice(name)[rows] if stored.shape else file.get_tensor(name)

    def copy(self, name: str, target: torch.Tensor) -> None:
        """Put a tensor's values into another of its shape."""
        with torch.no_grad():
            for rows, values in self.pieces(name):
                (target[rows] if target.ndim else target).copy_(values)

    def equal(self, first: str, second: str) -> bool:
        """Whether two tensors have the same shape and values."""
        if self.entries[first].shape != self.entries[second].shape:
            return False
        pairs = zip(self.pieces(first), self.pieces(second), strict=True)
        return all(torch.equal(one, other) for (_, one), (_, other) in pairs)


def _row_slices(shape: Sequence[int]) -> Iterator[slice]:
    if not shape:
        yield slice(None)
        return
    step = max(1, _PIECE // max(1, math.prod(shape[1:])))
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))


def _header(file: Path) -> dict[str, Stored]:
    with _readable(file), safe_open(file, framework="pt") as opened:
        slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 - it is no dict
        return {name: Stored(file, tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()}


def _sharded(folder: Path) -> dict[str, Stored]:
    index = folder / INDEX
    places = _json_object(index).get("weight_map")
    if not isinstance(places, dict) or not all(_is_plain_name(shard) for shard in places.values()):
        raise InputError(f'{index}: "weight_map" must give each tensor the name of a file beside it')
    headers = {shard: _header(folder / shard) for shard in sorted(set(places.values()))}
    if missing := [name for name, shard in places.items() if name not in headers[shard]]:
        raise InputError(f"{index}: {_listed(missing)} are not in the files that it names")
    return {name: headers[shard][name] for name, shard in places.items()}


def _is_plain_name(value: object) -> bool:
    return isinstance(value, str) and value not in ("", ".", "..") and Path(value).name == value


def _json_object(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise InputError(f"there is no {file}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{file} can't be read: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{file} holds no JSON object")
    return content


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Turn a file that is missing or damaged into one line."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"there is no {file}") from None
    except (OSError, SafetensorError) as error:
        raise InputError(f"{file} can't be read: {error}") from error


# --- names ------------------------------------------------------------------------------------------------------------

_OLD_NORM = re.compile(r"(?P<norm>(?:.*\.)?[^.]*norm[^.]*)\.(?P<kind>gamma|beta)", re.IGNORECASE)
_TODAY = {"gamma": "weight", "beta": "bias"}


def _matched(
    names: Iterable[str], parameters: Mapping[str, torch.Tensor], context: LoadContext
) -> tuple[dict[str, list[str]], list[str]]:
    """Which of the file's names each parameter is found under, in the model's order, and the names left over."""
    found: dict[str, list[str]] = {}
    unused: list[str] = []
    for file_name in sorted(names):
        forms = (context.tied.get(form, form) for form in _forms(file_name, context.base_prefix))
        name = next((form for form in forms if form in parameters), None)
        if name is not None:
            found.setdefault(name, []).append(file_name)
        elif file_name.rpartition(".")[2] != "position_ids":
            unused.append(file_name)
    return {name: found[name] for name in parameters if name in found}, unused


def _forms(file_name: str, base_prefix: str) -> Iterator[str]:
    """What a tensor of the file may be called in the model, the likeliest first."""
    bare = file_name.removeprefix("module.")
    names = [bare]
    if old := _OLD_NORM.fullmatch(bare):
        names.append(f"{old['norm']}.{_TODAY[old['kind'].lower()]}")
    for name in names:
        yield from (name, base_prefix + name)


# --- what may differ --------------------------------------------------------------------------------------------------


def _misfits(
    stored: StoredTensors, found: Mapping[str, Sequence[str]], parameters: Mapping[str, torch.Tensor]
) -> dict[str, str]:
    """The parameters whose tensor in the file has another shape, or is no floating-point one, and its name there."""
    return {
        name: file_name
        for name, file_names in found.items()
        for file_name in file_names
        if not _fits(stored.entries[file_name], parameters[name])
    }


def _fits(entry: Stored, parameter: torch.Tensor) -> bool:
    return entry.shape == tuple(parameter.shape) and (entry.dtype in _FLOATS) == parameter.is_floating_point()


def _refuse_misfits(
    stored: StoredTensors,
    misfits: Mapping[str, str],
    parameters: Mapping[str, torch.Tensor],
    head: Collection[str] = (),
) -> None:
    """Report the clearest of the misfits: a table with other rows explains many of the rest."""
    for name, file_name in misfits.items():
        if reason := _other_rows(name, stored.entries[file_name], parameters[name]):
            raise InputError(f"{stored.entries[file_name].file}: {reason}")
    if misfits and all(
        name in head and _differ_in_rows(stored.entries[file_name], parameters[name])
        for name, file_name in misfits.items()
    ):
        name, file_name = next(iter(misfits.items()))
        raise InputError(
            f"{stored.entries[file_name].file}: its head was trained for {stored.entries[file_name].shape[0]} outputs, "
            f"this one has {parameters[name].shape[0]}; to start it anew write [architecture.load] "
            f"allow_new = {json.dumps(list(misfits))}"
        )
    for name, file_name in misfits.items():
        entry, shape = stored.entries[file_name], list(parameters[name].shape)
        if list(entry.shape) == shape:
            raise InputError(
                f"{entry.file}: {file_name} is stored as {entry.dtype}; the model needs floating-point weights"
            )
        more = f", and {len(misfits) - 1} more differ" if len(misfits) > 1 else ""
        raise InputError(
            f"{entry.file}: {file_name} has shape {list(entry.shape)}, the model's {name} {shape}{more}; take the "
            "sizes of the weights, or start such a tensor anew by [architecture.load] allow_new"
        )


def _other_rows(name: str, entry: Stored, parameter: torch.Tensor) -> str | None:
    """What to say of an embedding table that differs in its rows alone; None of anything else."""
    module = name.split(".")[-2] if "." in name else ""
    theirs, ours = entry.shape, tuple(parameter.shape)
    if module not in _TABLES or not _differ_in_rows(entry, parameter):
        return None
    table, setting = _TABLES[module]
    return (
        f"the {table} has {theirs[0]} rows in the file and {ours[0]} in the model ({name}); take the "
        f"architecture.{setting} and the tokenizer that belong to the weights"
    )


def _differ_in_rows(entry: Stored, parameter: torch.Tensor) -> bool:
    """Whether two shapes differ in their first number alone."""
    theirs, ours = entry.shape, tuple(parameter.shape)
    return theirs[:1] != ours[:1] and theirs[1:] == ours[1:]


def _guard(
    folder: Path, new: Sequence[str], unused: Sequence[str], parameters: Iterable[str], context: LoadContext
) -> None:
    """Refuse what would leave a part of the backbone untrained or a part of the file behind without a word."""
    missing = [name for name in new if not (_may_be_new(name, context) or _matches(name, context.rules.allow_new))]
    backbone = [name for name in parameters if name not in context.head]
    left = [
        name for name in unused if not (_may_be_unused(name, backbone, context) or _is_allowed_unused(name, context))
    ]
    problems = []
    if missing:
        problems.append(f"{len(missing)} of the model's tensors are not in the file ({_listed(missing)})")
    if left:
        problems.append(f"{len(left)} of the file's have no place in the model ({_listed(left)})")
    if problems:
        keys = [*(["allow_new"] if missing else []), *(["allow_unused"] if left else [])]
        raise InputError(
            f"{folder}{_kind(folder)}: the weights are not this model's: {'; '.join(problems)}. Only a head or "
            f"a pooler may be new or unused; [architecture.load] {' and '.join(keys)} can permit more"
        )


def _kind(folder: Path) -> str:
    """What the folder says that it holds, for the message that says it's something else."""
    model_type = read_config(folder).get("model_type") if (folder / CONFIG).is_file() else None
    return "" if model_type is None else f' (model_type "{model_type}")'


def _may_be_new(name: str, context: LoadContext) -> bool:
    return name in context.head or _is_pooler(name)


def _may_be_unused(file_name: str, backbone: Iterable[str], context: LoadContext) -> bool:
    """Whether a name of the file is that of a pooler or of a head: of no module that the backbone has a part in."""
    if _is_pooler(file_name):
        return True
    name = file_name.removeprefix("module.")
    if context.base_prefix and name.startswith(context.base_prefix):
        return False
    return name.partition(".")[0] not in {own.removeprefix(context.base_prefix).partition(".")[0] for own in backbone}


def _is_allowed_unused(file_name: str, context: LoadContext) -> bool:
    """Whether a rule allows it; patterns are of public names, and a file may leave their prefix out."""
    return any(_matches(form, context.rules.allow_unused) for form in _forms(file_name, context.base_prefix))


def _is_pooler(name: str) -> bool:
    return "pooler" in name.split(".")


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _refuse_contradictions(stored: StoredTensors, found: Mapping[str, Sequence[str]], context: LoadContext) -> None:
    """A parameter may stand in the file under several names, if they agree."""
    for name, (first, *others) in found.items():
        for other in others:
            if not stored.equal(first, other):
                own = "; for a decoder of its own set architecture.tie_word_embeddings = false"
                raise InputError(
                    f"{stored.entries[other].file}: {first} and {other} differ, and in the model both are {name}"
                    f"{own if name in context.tied.values() else ''}"
                )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


# --- writing ----------------------------------------------------------------------------------------------------------


def write_model(folder: Path, tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any]) -> None:
    """Write ``model.safetensors`` and ``config.json`` into an existing folder, durably.

    :param tensors: by name, on any device; what stands under two names is written under the first.
    :raises RunError: the disk is full or fails.
    """
    text = json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    with _writable(folder / WEIGHTS):
        write_tensors(folder / WEIGHTS, _distinct(tensors))
    with _writable(folder / CONFIG):
        write_file(folder / CONFIG, f"{text}\n".encode())


def _distinct(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Each tensor once, under its first name."""
    first: dict[tuple[Any, ...], str] = {}
    for name, tensor in tensors.items():
        identity = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        # Tensors without numbers have no memory to know them by.
        first.setdefault(identity if tensor.numel() else (name,), name)
    return {name: tensors[name] for name in first.values()}


@contextmanager
def _writable(file: Path) -> Iterator[None]:
    """Turn a failure of the disk into one line."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{file} can't be written: {error.strerror or error}") from error
    except SafetensorError as error:  # safetensors writes on its own and wraps the system's errors in its text
        raise RunError(f"{file} can't be written: {error}") from error
