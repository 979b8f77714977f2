"""metrics.jsonl: one JSON object a line for each logged step and each evaluation."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from rtx_core import Callback, Length, RunError, hookimpl
from rtx_core.folder import RunFolder, strict_json
from rtx_core.lengths import not_zero

if TYPE_CHECKING:
    from collections.abc import Mapping
    from io import FileIO

    from rtx_core import Run


@attrs.frozen(kw_only=True)
class Metrics(Callback):
    """Writes what was logged to ``metrics.jsonl``."""

    once: ClassVar[bool] = True

    every: Length = attrs.field(factory=lambda: Length.parse("1 step"), validator=not_zero)
    """How often a row of the step's values is written. Evaluations are always written."""

    def build(self) -> MetricsWriter:
        """The part, which holds the open file."""
        return MetricsWriter(self)


class MetricsWriter:
    """Appends rows. It has no state: on a resume the core has cut the file back to the checkpoint."""

    def __init__(self, settings: Metrics) -> None:
        self.settings = settings
        self._file: FileIO | None = None

    def on_run_start(self, run: Run) -> None:
        """Open the file in the first process; the others write nothing."""
        self._every = run.horizon.exact(self.settings.every)
        if run.rank == 0:
            # Without a buffer a row is one system call: it is there when the process is killed, and never half there.
            self._file = RunFolder(run.folder).metrics.open("ab", buffering=0)

    def on_step_end(self, run: Run) -> None:
        """Ask for a row when one is due."""
        if run.horizon.due(self._every, run.step):
            run.request_log()

    def on_log(self, values: Mapping[str, float | str | None]) -> None:
        """Write the step's row."""
        self._append(values)

    def on_eval_end(self, run: Run, values: Mapping[str, Any]) -> None:
        """Write an evaluation's row."""
        self._append({"step": run.step, **values})

    def on_checkpoint(self) -> None:
        """Make the rows as durable as the checkpoint, which a resume will pair them with."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def on_run_end(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append(self, row: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        line = (strict_json(row) + "\n").encode()
        try:
            written = self._file.write(line)
        except OSError as error:
            raise RunError(f"{self._file.name!s} can't be written: {error.strerror}") from error
        if written < len(line):
            raise RunError(f"{self._file.name!s} can't be written: {os.strerror(errno.ENOSPC)}")


@hookimpl
def callback() -> dict[str, type[Callback]]:
    """The component of this module."""
    return {"metrics": Metrics}
