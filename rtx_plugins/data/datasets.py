"""Data sets of Hugging Face's ``datasets``: a folder that ``save_to_disk`` wrote, or one of the hub.

A saved folder is read without that package: it holds Arrow streams, ``state.json``, which names them, and
``dataset_info.json``, which says what the columns are. A ``DatasetDict``'s folder has ``dataset_dict.json`` and such a
folder for each split.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from rtx_core import Data, DataError, InputError, InputPath, Record, Source, hookimpl
from rtx_core.sources import keep_quiet
from rtx_plugins.data.arrow import Arrow
from rtx_plugins.data.common import quoted

_DICT, _STATE, _INFO = "dataset_dict.json", "state.json", "dataset_info.json"
_NO_CLASS = -1
"""What ``datasets`` writes where a class is not known."""


@attrs.frozen(kw_only=True)
class Datasets(Data):
    """A data set of ``datasets``. Classes (``ClassLabel``) become their names, and null where they are not known.

    A record's file is the Arrow file that holds it, its line the row there, counted from 1.
    """

    path: Source
    """A folder that ``save_to_disk`` wrote, or ``hub:ORG/NAME[@REVISION]``, which needs the package ``datasets``
    (``pip install 'rtx-transformers[datasets]'``) and, at the first time, the network."""
    split: str | None = None
    """The split, as ``"train"``; None where the folder holds one data set without splits."""
    config: str | None = None
    """The configuration of a data set of the hub that has several, as ``"mrpc"``."""
    columns: tuple[str, ...] = ()
    """Read these columns alone, by the names that the data set has; empty reads all."""
    limit: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(1)))
    """Read no more than this many records; None reads all."""
    rename: Mapping[str, str] = attrs.field(factory=dict)
    """Columns under other names: ``{ sentence = "text" }`` gives the column ``sentence`` as ``text``."""

    def check(self) -> Iterable[tuple[str, str]]:
        """What a folder must hold; the hub is not asked."""
        yield from Arrow(files=(InputPath(Path()),), columns=self.columns, rename=self.rename).check()
        if self.path.scheme == "run":
            yield "path", f'"{self.path}" is a run, which holds no data; expected a folder or "hub:ORG/NAME"'
        elif self.path.scheme == "hub":
            if self.split is None:
                yield "split", 'missing; a data set of the hub has splits, as "train"'
        else:
            if self.config is not None:
                yield "config", "a saved folder holds one configuration; leave it out"
            yield from self._problems_of_the_folder()

    def records(self) -> Iterator[Record]:
        """The rows of all files in their order."""
        table, features = self._opened()
        named = {
            self.rename.get(column, column): feature for column, feature in features.items() if _has_names(feature)
        }
        for record in table.records():
            yield attrs.evolve(record, values=_with_names(record, named)) if named else record

    def fingerprint(self) -> str:
        """Sha256 of the files' contents and of the names of classes: the same wherever the folder lies."""
        table, features = self._opened()
        named = {column: feature for column, feature in features.items() if _has_names(feature)}
        text = json.dumps([table.fingerprint(), named], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def paths(self) -> Sequence[Path] | None:
        """The files of a folder; the hub's cache is asked each time."""
        if self.path.scheme == "hub":
            return None
        folder = self._folder()
        return [folder / _STATE, folder / _INFO, *self._opened()[0].paths()]

    def _opened(self) -> tuple[Arrow, Mapping[str, Any]]:
        """The Arrow files, and what ``datasets`` says of each column."""
        files, features = self._on_the_hub() if self.path.scheme == "hub" else self._in_the_folder()
        paths = tuple(map(InputPath, files))
        return Arrow(files=paths, columns=self.columns, limit=self.limit, rename=self.rename), features

    # --- a saved folder -----------------------------------------------------------------------------------------------

    def _problems_of_the_folder(self) -> Iterator[tuple[str, str]]:
        folder = Path(self.path.location)
        if (folder / _DICT).is_file():
            splits = _splits(folder)
            if self.split is None:
                yield "split", f"missing; there are {quoted(splits)}"
            elif self.split not in splits:
                yield "split", f'no split "{self.split}"; there are {quoted(splits)}'
        elif not (folder / _STATE).is_file():
            yield "path", f'"{folder}" was not written by save_to_disk: there is no {_STATE} and no {_DICT}'
        elif self.split not in (None, there := _json(folder / _STATE).get("_split")):
            saved = "which has no name" if there is None else f'"{there}"'
            yield "split", f'no split "{self.split}"; the folder holds one split alone, {saved}'

    def _folder(self) -> Path:
        """The folder with the Arrow files.

        :raises InputError: this is not what ``save_to_disk`` writes, or it has no such split.
        """
        for field, problem in self._problems_of_the_folder():
            raise InputError(f"data.datasets: {field}: {problem}")
        folder = Path(self.path.location)
        return folder / str(self.split) if (folder / _DICT).is_file() else folder

    def _in_the_folder(self) -> tuple[list[Path], Mapping[str, Any]]:
        folder = self._folder()
        state, info = _json(folder / _STATE), _json(folder / _INFO)
        match state.get("_data_files"):
            case [{"filename": str()}, *_] as entries if not state.get("_indices_data_files"):
                files = [folder / str(entry.get("filename")) for entry in entries]
            case []:
                raise DataError(folder / _STATE, None, "no records: the data set was empty when it was saved")
            case _:
                raise DataError(folder / _STATE, None, "names no data files; save it anew, by a newer datasets")
        features = info.get("features")
        return files, features if isinstance(features, dict) else {}

    # --- the hub ------------------------------------------------------------------------------------------------------

    def _on_the_hub(self) -> tuple[list[Path], Mapping[str, Any]]:
        """The files of the package's cache, which it fills."""
        keep_quiet()
        try:
            import datasets
        except ImportError as error:
            raise InputError(
                f'data.datasets: "{self.path}" needs the package datasets: '
                "pip install 'rtx-transformers[datasets]', or name a folder that save_to_disk wrote"
            ) from error
        try:
            table = datasets.load_dataset(
                self.path.location, self.config, split=self.split, revision=self.path.revision
            )
        except Exception as error:  # the package raises what each of its many loaders does
            raise InputError(
                f'data.datasets: "{self.path}" can\'t be loaded: {" ".join(str(error).split())}'
            ) from error
        return [Path(entry["filename"]) for entry in table.cache_files], table.features.to_dict()


def _splits(folder: Path) -> list[str]:
    """The names of the splits of a ``DatasetDict``.

    :raises DataError: the file that names them can't be read.
    """
    match _json(folder / _DICT).get("splits"):
        case list() as splits:
            return [str(split) for split in splits]
    raise DataError(folder / _DICT, None, "names no splits")


def _json(file: Path) -> dict[str, Any]:
    """The object in a file.

    :raises DataError: it can't be read.
    """
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(file, None, f"can't be read: {error.strerror or error}") from error
    except ValueError as error:
        raise DataError(file, None, f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DataError(file, None, "expected a JSON object")
    return value


# --- classes ----------------------------------------------------------------------------------------------------------


def _has_names(feature: Any) -> bool:
    """Whether a column holds classes, perhaps in lists or objects."""
    return '"ClassLabel"' in json.dumps(feature)


def _with_names(record: Record, features: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(record.values)
    for column in features.keys() & values.keys():
        try:
            values[column] = _named(values[column], features[column])
        except ValueError as error:
            raise DataError(record.file, record.line, f'column "{column}": {error}') from error
    return values


def _named(value: Any, feature: Any) -> Any:
    """A value with the names of its classes.

    :raises ValueError: a class has no name.
    """
    match feature, value:
        case {"_type": "ClassLabel", "names": list() as names}, int():
            if value == _NO_CLASS:
                return None
            if not 0 <= value < len(names):
                raise ValueError(f"class {value}, but {_INFO} has names for {len(names)}")
            return names[value]
        # A list of objects is stored as an object of lists.
        case ({"_type": "Sequence", "feature": dict() as inner}, dict()) if "_type" not in inner:
            return {key: _named(entry, [inner.get(key)]) for key, entry in value.items()}
        case ({"_type": "Sequence" | "List" | "LargeList", "feature": inner} | [inner], list()):
            return [_named(entry, inner) for entry in value]
        case dict(), dict():
            return {key: _named(entry, feature.get(key)) for key, entry in value.items()}
    return value


@hookimpl
def data() -> dict[str, type[Data]]:
    """``data.datasets``."""
    return {"datasets": Datasets}
