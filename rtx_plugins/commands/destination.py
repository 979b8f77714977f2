"""The new folder that a command writes: where it may be."""

from __future__ import annotations

import os
from pathlib import Path

from rtx_core import InputError


def destination(text: str, source: Path) -> Path:
    """The path of a folder that is still to be made.

    :param source: the folder that is read, and stays as it is.
    :raises InputError: it has no name, there is something, or it lies in the source.
    """
    if not text:
        raise InputError('"" is no folder; name a new one')
    path = Path(os.path.abspath(text))  # noqa: PTH100 - resolve() would follow a link that is the destination itself
    if path.resolve().is_relative_to(source.resolve()):
        raise InputError(f"{text}: lies in {source}, which is read only; name a folder elsewhere")
    if path == Path.cwd() or (os.path.lexists(path) and not _is_empty(path)):
        raise InputError(f"{text}: is there already; name a new folder, or move that one away")
    return path


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())
