"""Which data plugin reads a file, by the ending of its name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rtx_core import InputError
from rtx_plugins.data.common import unpacked_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rtx_core import Data
    from rtx_core.registry import Registry

_TYPES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".txt": "text",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}


def format_of(path: Path) -> str:
    """The name of the data plugin for a file; ``.gz`` or ``.zst`` at the end is passed over.

    :raises InputError: the ending says nothing.
    """
    suffix = Path(unpacked_name(path)).suffix
    if suffix not in _TYPES:
        known = ", ".join(_TYPES)
        raise InputError(
            f"{path}: the name must end in one of {known} (text also with .gz or .zst), so that its format is known"
        )
    return _TYPES[suffix]


def open_data(
    path: Path, registry: Registry, settings: Mapping[str, Any] | None = None, *, kind: str | None = None
) -> Data:
    """The records of one file, or of a pipe.

    :param settings: further fields of the data plugin.
    :param kind: the data plugin; None: that of the ending.
    :raises InputError: there is no such file, or its format isn't known.
    """
    kind = kind or format_of(path)
    if not path.exists() or path.is_dir():
        raise InputError(f"{path}: {'is a folder, not a file' if path.is_dir() else 'no such file'}")
    component = cast("Any", registry.find("data", kind).component)
    return cast("Data", component(**(settings or {}), files=(path.absolute(),)))
