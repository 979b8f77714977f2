"""What can go wrong, as few classes: each message names the thing, its value, what was expected and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class RtxError(Exception):
    """Any failure that rtx explains in its own words; the command line prints the text without a traceback."""

    exit_status = 1


class InputError(RtxError):
    """The input is bad or the command was refused; nothing was changed (exit status 2)."""

    exit_status = 2


class PluginError(InputError):
    """A plugin can't be found, chosen, imported, or breaks the contract of its hooks."""


class RunError(RtxError):
    """The run failed after it had started (exit status 1)."""


class RunInterruptedError(RtxError):
    """SIGINT or SIGTERM ended the run after a checkpoint was committed (exit status 130 or 143)."""

    def __init__(self, message: str, *, exit_status: int) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class DataError(InputError):
    """A data file can't be read; the text begins with ``file:line:``, or ``file:`` where no line applies.

    :param line: counted from 1; None where the whole file is meant.
    """

    def __init__(self, file: Path | str, line: int | None, message: str) -> None:
        place = f"{file}:" if line is None else f"{file}:{line}:"
        super().__init__(f"{place} {message}")


@attrs.frozen
class Place:
    """Where a value was written: a TOML file with line and column, or the command line.

    ``line`` and ``column`` count characters from 1; 0 means that the source has no lines (``--set``).
    """

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


@attrs.frozen(kw_only=True)
class Problem:
    """One mistake in a pipeline: where it stands, which key, what is wrong and what to write instead."""

    place: Place
    path: str
    """The dotted key, as ``optimizer.lr``; empty for a file that is not TOML."""
    message: str
    mended: str | None = None
    """The source line as it should read, where one replacement is likely."""
    source_line: str | None = None
    width: int = 1
    """How many characters the caret underlines."""

    def __str__(self) -> str:
        subject = f"{self.path}: " if self.path else ""
        return f"{self.place}: {subject}{self.message}"


class PipelineError(InputError):
    """A pipeline is not valid; holds every problem that was found, in the order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))
