"""What the commands share that take a finished run: which folder is meant, and how the run read its data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli

from rtx_core import InputError
from rtx_core.folder import RunFolder

if TYPE_CHECKING:
    import argparse

_NOT_A_FORMAT = frozenset({"type", "files", "limit", "columns", "weight", "streaming", "shuffle_window"})
"""Keys of a source that say which records it has, not how they are written."""


def add_device(parser: argparse.ArgumentParser) -> None:
    """``--device``."""
    parser.add_argument(
        "--device", default="auto", help="auto (the default: a GPU where there is one), cpu, cuda, cuda:N or mps"
    )


def add_trust(parser: argparse.ArgumentParser) -> None:
    """``--trust-run-plugins``."""
    parser.add_argument(
        "--trust-run-plugins", action="store_true", help="use the --plugin files that the run's folder has kept"
    )


def run_folder(text: str) -> Path:
    """The folder that a command line means by a run.

    :raises InputError: there is no such folder.
    """
    scheme, colon, name = text.partition(":")
    folder = Path("runs", name) if colon and scheme == "run" else Path(text)
    if not folder.is_dir():
        hint = f'; for the run of this name write "run:{text}"' if Path("runs", text).is_dir() else ""
        raise InputError(f"{folder}: no such folder{hint}")
    return folder


def reading_of(folder: Path, kind: str) -> dict[str, Any]:
    """How the run read its training data (delimiter, other names of columns, …), if they had the same format."""
    try:
        table = tomli.loads(RunFolder(folder).resolved.read_text(encoding="utf-8"))["data"]["train"]
    except (OSError, ValueError, KeyError):  # no run's folder: said when the model is read
        return {}
    sources = table if isinstance(table, list) else [table]
    source: dict[str, Any] = next((source for source in sources if source["type"] == kind), {})
    return {key: value for key, value in source.items() if key not in _NOT_A_FORMAT}
