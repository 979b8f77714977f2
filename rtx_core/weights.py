"""Weights in Hugging Face's layout: a folder with ``model.safetensors`` (or shards of it) and ``config.json``.

Reading maps the file's names onto the model's, checks everything, and only then fills the parameters, a piece of a
tensor at a time. Names are public ones throughout: as in the kept model's file, never those of our modules.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import torch
from safetensors import SafetensorError

from rtx_core import head_labels, positions
from rtx_core.components import LoadRules
from rtx_core.durable import write_file, write_tensors
from rtx_core.errors import InputError, RunError
from rtx_core.model_config import read_object, stored_labels
from rtx_core.model_folder import CONFIG, WEIGHTS
from rtx_core.stored import FLOATS, StoredTensors, listed

if TYPE_CHECKING:
    from rtx_core.stored import Stored

_TABLES = {
    "word_embeddings": ("vocabulary", "architecture.vocab_size and the tokenizer that belong to the weights"),
    "position_embeddings": ("position table", "architecture.max_position_embeddings of the weights"),
    "token_type_embeddings": ("table of token types", "architecture.type_vocab_size of the weights"),
}
"""Embedding modules by the names that they have in most families: what their rows are, and what to take instead."""


@attrs.frozen(kw_only=True)
class LoadContext:
    """What :func:`load` has to know of the model beyond its parameters."""

    base_prefix: str = ""
    """What the names of the backbone begin with, as ``bert.``; a file may leave it out."""
    head: Collection[str] = frozenset()
    """Names of the head's parameters, the pooler's among them; a file may lack them."""
    tied: Mapping[str, str] = attrs.field(factory=dict)
    """Further names of tied parameters, each to the name under which the parameter is loaded."""
    vocabulary: Collection[str] = frozenset()
    """Names of the parameters that have a row for each token: the token table, and what decodes with one."""
    layers: Sequence[str] = ()
    """Prefixes of the layers' names, as ``bert.encoder.layer.0.``; others may be among them."""
    reserved_positions: int = 0
    """Rows in front of a position table that belong to no position."""
    config: Mapping[str, Any] = attrs.field(factory=dict)
    """The model's own ``config.json``, which says what its head is for."""
    labels: Sequence[str] | None = None
    """What the head predicts, in the order of its outputs; None where that has no names."""
    labels_are_written: bool = True
    """Whether ``task.labels`` takes the labels as they are."""
    rules: LoadRules = attrs.field(factory=LoadRules)
    """What else may differ."""


@attrs.frozen(kw_only=True)
class LoadReport:
    """Where each tensor came from, and which had no use."""

    loaded: tuple[str, ...]
    """Parameters with all values from the file."""
    resized: tuple[str, ...] = ()
    """Parameters that have other rows than the file's, and as many of its values as the rules say."""
    new: tuple[str, ...]
    """Parameters that take nothing of the file; they are as they were before, or as ``initialize`` made them."""
    unused: tuple[str, ...]
    """Names in the file that no parameter took."""
    notes: tuple[str, ...] = ()
    """What somebody should know who wrote the rules, a sentence each: a rule that had nothing to do."""


def load(
    folder: Path,
    parameters: Mapping[str, torch.Tensor],
    context: LoadContext,
    initialize: Callable[[Collection[str]], None] | None = None,
) -> LoadReport:
    """Fill a model's parameters from a folder, converted to their dtype and device, tied ones through either name.

    A file's name fits with and without ``base_prefix``, below ``module.`` (DataParallel), and with a norm's weight and
    bias called gamma and beta; ``position_ids``, which old files hold, is passed over.

    :param parameters: the distinct parameters by name.
    :param initialize: called once, when all is checked and before the first value is copied, with the names of the
        parameters that the file doesn't fill to the end; None: they are as they should be.
    :raises InputError: the folder can't be read, or something differs that the context doesn't allow. Nothing was
        changed then.
    """
    stored = StoredTensors.open(folder)
    found, report = _compared(folder, stored, parameters, context)
    _refuse_contradictions(stored, found, context)
    _refuse_what_is_no_number(stored, found, parameters)
    if initialize is not None:
        initialize({*report.new, *report.resized})
    for name in report.loaded:
        stored.copy(found[name][0], parameters[name])
    for name in report.resized:
        _copy_resized(stored, found[name][0], parameters[name], name, context)
    return report


def compare(folder: Path, parameters: Mapping[str, torch.Tensor], context: LoadContext) -> LoadReport:
    """What :func:`load` would take and leave, as names, shapes and labels tell; no value is read, none is changed.

    :raises InputError: as there.
    """
    return _compared(folder, StoredTensors.open(folder), parameters, context)[1]


def _compared(
    folder: Path, stored: StoredTensors, parameters: Mapping[str, torch.Tensor], context: LoadContext
) -> tuple[dict[str, list[str]], LoadReport]:
    """Which of the file's names each parameter that takes something is found under, and what becomes of the rest."""
    found, unused = _matched(stored.names, parameters, context)
    anew = _started_anew(stored, found, parameters, context)
    replaced = [file_name for name in anew for file_name in found[name]]
    unused += replaced
    found = {name: file_names for name, file_names in found.items() if name not in anew}
    misfits = _misfits(stored, found, parameters)
    head = [name for name in _head_of(parameters, context) if parameters[name].ndim > 1]
    # A part of it can be another head's, as ModernBERT's dense layer is.
    is_loaded = bool(head) and all(name in found for name in head)
    notes = _compared_labels(folder, misfits, context) if is_loaded else []
    resized = [
        name
        for name, file_name in misfits.items()
        if _may_be_resized(name, stored.entries[file_name], parameters[name], context)
    ]
    unfit = {name: file_name for name, file_name in misfits.items() if name not in resized}
    _refuse_misfits(stored, unfit, parameters, context)
    report = LoadReport(
        loaded=tuple(name for name in found if name not in resized),
        resized=tuple(resized),
        new=tuple(name for name in parameters if name not in found),
        unused=tuple(unused),
    )
    _guard(folder, report.new, [name for name in unused if name not in replaced], parameters, context)
    return found, attrs.evolve(report, notes=(*notes, *_idle_rules(report, context)))


def load_exactly(folder: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Fill tensors from a folder that :func:`write_model` made of the same model.

    :raises InputError: the folder can't be read, or a name or shape differs. Nothing was changed then.
    """
    stored = StoredTensors.open(folder)
    if differing := sorted(stored.names ^ tensors.keys()):
        raise InputError(f"{folder} holds another model: {listed(differing)} are not in both")
    found = {name: [name] for name in tensors}
    for name in _misfits(stored, found, tensors):
        entry = stored.entries[name]
        raise InputError(
            f"{entry.file} holds another model: {name} is {entry.dtype} {list(entry.shape)}, in this one "
            f"{tensors[name].dtype} {list(tensors[name].shape)}"
        )
    for name, tensor in tensors.items():
        stored.copy(name, tensor)


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's ``config.json``.

    :raises InputError: it is missing or no JSON object.
    """
    return read_object(folder / CONFIG)


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
    return entry.shape == tuple(parameter.shape) and (entry.dtype in FLOATS) == parameter.is_floating_point()


def _started_anew(
    stored: StoredTensors,
    found: Mapping[str, Sequence[str]],
    parameters: Mapping[str, torch.Tensor],
    context: LoadContext,
) -> list[str]:
    """The parameters that don't take what the file has for them: a head, or one of another shape, as a rule says."""
    misfits = _misfits(stored, found, parameters)
    renewed = {name for name in misfits if _matches(name, context.rules.allow_new)}
    head = _head_of(found, context) if context.rules.reinit_head else set()
    return [name for name in found if name in renewed or name in head]


def _head_of(names: Iterable[str], context: LoadContext) -> set[str]:
    """Those of the head, without a pooler, which is trained with the backbone."""
    return {name for name in names if name in context.head and not _is_pooler(name)}


def _may_be_resized(name: str, entry: Stored, parameter: torch.Tensor, context: LoadContext) -> bool:
    """Whether a rule says what becomes of a tensor with other rows than the file's."""
    if not _differ_in_rows(entry, parameter) or entry.dtype not in FLOATS:
        return False
    if name in context.vocabulary:
        return context.rules.resize
    longer = len(parameter) > entry.shape[0] > context.reserved_positions
    return context.rules.positions is not None and _module_of(name) == "position_embeddings" and longer


def _copy_resized(stored: StoredTensors, file_name: str, target: torch.Tensor, name: str, context: LoadContext) -> None:
    """Put as many of a tensor's values as the rules say into one with other rows."""
    lengthen = {"repeat": positions.repeated, "interpolate": positions.interpolated}.get(context.rules.positions or "")
    if name in context.vocabulary or lengthen is None:
        stored.copy_rows(file_name, target)
        return
    with torch.no_grad():
        target.copy_(lengthen(stored.whole(file_name), len(target), context.reserved_positions))


def _refuse_misfits(
    stored: StoredTensors, misfits: Mapping[str, str], parameters: Mapping[str, torch.Tensor], context: LoadContext
) -> None:
    """Report the clearest of the misfits: a table with other rows explains many of the rest."""
    for name, file_name in misfits.items():
        if reason := _other_rows(name, stored.entries[file_name], parameters[name], context):
            raise InputError(f"{stored.entries[file_name].file}: {reason}")
    if misfits and all(
        name in context.head and _differ_in_rows(stored.entries[file_name], parameters[name])
        for name, file_name in misfits.items()
    ):
        name, file_name = next(iter(misfits.items()))
        raise InputError(
            f"{stored.entries[file_name].file}: its head was trained for {stored.entries[file_name].shape[0]} outputs, "
            f"this one has {parameters[name].shape[0]}; to start it anew write [architecture.load] reinit_head = true"
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


def _other_rows(name: str, entry: Stored, parameter: torch.Tensor, context: LoadContext) -> str | None:
    """What to say of an embedding table that differs in its rows alone; None of anything else."""
    module = "word_embeddings" if name in context.vocabulary else _module_of(name)
    if module not in _TABLES or not _differ_in_rows(entry, parameter):
        return None
    table, instead = _TABLES[module]
    theirs, ours = entry.shape[0], len(parameter)
    return f"the {table} has {theirs} rows in the file and {ours} in the model ({name}); " + {
        "word_embeddings": f"take the {instead}, or write [architecture.load] resize = true",
        "position_embeddings": (
            f'take the {instead}, or write [architecture.load] positions = "repeat", "interpolate" or "new", which '
            "says what the further rows are"
            if theirs < ours
            else f"take the {instead}; shorter texts need no shorter table, only a task.max_length"
        ),
    }.get(module, f"take the {instead}")


def _module_of(name: str) -> str:
    """The last module in a parameter's name."""
    return name.split(".")[-2] if "." in name else ""


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
    further = [name for name in left if _further_layer(name, context) is not None]
    if context.rules.first_layers:
        left = [name for name in left if name not in further]
    elif left and left == further and not missing:
        raise InputError(
            f"{folder}: the weights have more layers than the model, {listed(further)} are left over; to take the "
            "first layers alone write [architecture.load] first_layers = true"
        )
    problems = []
    if missing:
        problems.append(f"{len(missing)} of the model's tensors are not in the file ({listed(missing)})")
    if left:
        problems.append(f"{len(left)} of the file's have no place in the model ({listed(left)})")
    if problems:
        keys = [*(["allow_new"] if missing else []), *(["allow_unused"] if left else [])]
        raise InputError(
            f"{folder}{_kind(folder)}: the weights are not this model's: {'; '.join(problems)}. Only a head or "
            f"a pooler may be new or unused; [architecture.load] {' and '.join(keys)} can permit more"
        )


def _further_layer(file_name: str, context: LoadContext) -> int | None:
    """The number of the layer that a tensor of the file is of, where the model has fewer layers; else None."""
    counts: dict[str, int] = {}
    for layer in context.layers:
        stem, _, number = layer.removesuffix(".").rpartition(".")
        if number.isdecimal():
            counts[f"{stem}."] = max(counts.get(f"{stem}.", 0), int(number) + 1)
    for form in _forms(file_name, context.base_prefix):
        for stem, count in counts.items():
            number = form.removeprefix(stem).partition(".")[0] if form.startswith(stem) else ""
            if number.isdecimal() and int(number) >= count:
                return int(number)
    return None


def _idle_rules(report: LoadReport, context: LoadContext) -> Iterator[str]:
    """A sentence for each rule that had nothing to do, since its author expects something of it."""
    rules = context.rules
    if rules.first_layers and not any(_further_layer(name, context) is not None for name in report.unused):
        yield "architecture.load.first_layers does nothing: the weights have no more layers than the model"
    if rules.positions is not None and not any(_module_of(name) == "position_embeddings" for name in report.resized):
        yield "architecture.load.positions does nothing: no position table is longer than that of the weights"
    for pattern in rules.allow_new:
        if not any(_matches(name, [pattern]) for name in report.new):
            yield f'architecture.load.allow_new: nothing that is new matches "{pattern}"'
    for pattern in rules.allow_unused:
        if not any(_matches(form, [pattern]) for name in report.unused for form in _forms(name, context.base_prefix)):
            yield f'architecture.load.allow_unused: nothing that is unused matches "{pattern}"'


def _compared_labels(folder: Path, misfits: Collection[str], context: LoadContext) -> list[str]:
    """See that a head which is loaded predicts what the task does; a sentence where that can't be told of its labels.

    :param misfits: parameters that would be loaded, and have another shape.
    :raises InputError: it predicts something else, other labels, or them in another order, or ``config.json``
        contradicts itself or the head.
    """
    file = folder / CONFIG
    if not file.is_file():
        return []
    config = read_config(folder)
    if (purpose := head_labels.other_purpose(config, context.config)) is not None:
        raise InputError(f"{file}: {purpose}")
    if context.labels is None:
        return []
    mend = "mend it, or start the head anew by [architecture.load] reinit_head = true"
    try:
        theirs = _labels_in(config)
    except ValueError as error:
        raise InputError(f"{file}: {error}; {mend}") from None
    if theirs is None:
        return [_unnamed(file, context.labels)]
    if len(theirs) != len(context.labels) and not any(name in context.head for name in misfits):
        raise InputError(
            f"{file}: it speaks of {len(theirs)} labels, but the head is one for {len(context.labels)}; {mend}"
        )
    told = head_labels.difference(theirs, context.labels, writable=context.labels_are_written)
    if told is not None:
        raise InputError(f"{file}: {told}")
    return [] if head_labels.are_named(theirs) else [_unnamed(file, context.labels)]


def _unnamed(file: Path, labels: Sequence[str]) -> str:
    return f"the head's labels have no names in {file}; they are taken in this order: {', '.join(labels)}"


def _labels_in(config: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The labels of a ``config.json``, by transformers' names for them where it only has their number."""
    labels, number = stored_labels(config), config.get("num_labels")
    if labels is None and isinstance(number, int):
        return tuple(f"LABEL_{index}" for index in range(number))
    return labels


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


def _refuse_what_is_no_number(
    stored: StoredTensors, found: Mapping[str, Sequence[str]], parameters: Mapping[str, torch.Tensor]
) -> None:
    """A run that starts from NaN stays there, and would be told that its rate is too high."""
    for name, (file_name, *_) in found.items():
        if not stored.is_finite(file_name, parameters[name].dtype):
            dtype = str(parameters[name].dtype).removeprefix("torch.")
            raise InputError(
                f"{stored.entries[file_name].file}: {file_name} holds NaN, infinities or numbers beyond {dtype}; fetch "
                "the file again, or take an earlier checkpoint"
            )


# --- writing ----------------------------------------------------------------------------------------------------------


def write_model(folder: Path, tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any]) -> None:
    """Write ``model.safetensors`` and ``config.json`` into an existing folder, durably.

    :param tensors: by name, on any device; what stands under two names is written under the first.
    :raises RunError: the disk is full or fails.
    """
    text = json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_weights(folder, tensors)
    with _writable(folder / CONFIG):
        write_file(folder / CONFIG, f"{text}\n".encode())


def write_weights(folder: Path, tensors: Mapping[str, torch.Tensor]) -> frozenset[str]:
    """Write ``model.safetensors`` into an existing folder, durably; the names that it has.

    :param tensors: by name, on any device; what stands under two names is written under the first.
    :raises RunError: the disk is full or fails.
    """
    distinct = _distinct(tensors)
    with _writable(folder / WEIGHTS):
        write_tensors(folder / WEIGHTS, distinct)
    return frozenset(distinct)


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
