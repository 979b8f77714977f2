"""When a run saves itself, and which of its checkpoints stay on the disk."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from rtx_core import Callback, Interval, Length, hookimpl
from rtx_core.checkpoint import listing, remove
from rtx_core.lengths import not_zero

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rtx_core import Run


@attrs.frozen(kw_only=True)
class Checkpoint(Callback):
    """Asks for a checkpoint every so often and deletes old ones: never the last, never that of the run's best value.

    The run itself saves a new best and its last step, whatever ``every`` says.
    """

    once: ClassVar[bool] = True

    every: Interval = attrs.field(factory=lambda: Interval.parse("1 epoch"), validator=not_zero)
    """How often to save: ``"500 steps"``, ``"1 epoch"``, or by the clock, ``"20 minutes"``."""
    keep_last: int = attrs.field(default=2, validator=attrs.validators.ge(1))
    """How many of the newest checkpoints stay."""
    keep_best: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    """How many of the best by the monitored value stay, besides the very best, which always does."""
    keep_every: Length | None = attrs.field(default=None, validator=not_zero)
    """Checkpoints at multiples of this length stay for good; None: none does."""

    def build(self) -> CheckpointPart:
        """The part, with the values that it has seen."""
        return CheckpointPart(self)


class CheckpointPart:
    """Knows the monitored value of each evaluation. All values are kept, also those of steps without a checkpoint, so
    that the state depends on the run alone and not on what was on the disk when a process was killed.
    """

    def __init__(self, settings: Checkpoint) -> None:
        self.settings = settings
        self.values: dict[int, float] = {}
        """The monitor by step, NaN left out."""
        self._saved_at = 0.0

    def on_run_start(self, run: Run) -> None:
        """Start the clock, and turn the interval into steps once."""
        self._saved_at = time.monotonic()
        self._every = None if self.settings.every.seconds is not None else run.horizon.exact(self.settings.every)

    def on_step_end(self, run: Run) -> None:
        """Ask for a checkpoint when one is due."""
        if self._is_due(run):
            run.request_checkpoint()

    def on_eval_end(self, run: Run, values: Mapping[str, Any]) -> None:
        """Remember the monitored value, where this evaluation has it."""
        value = values.get(run.monitor) if run.monitor else None
        if value is not None and not math.isnan(value):
            self.values[run.step] = value

    def on_checkpoint(self, run: Run, folder: Path) -> None:
        """Delete what need not stay, now that a newer checkpoint is safe."""
        self._saved_at = time.monotonic()
        if run.rank != 0:
            return
        found = listing(folder.parent)
        kept = self._kept([checkpoint.step for checkpoint in found], run)
        for checkpoint in found:
            if checkpoint.step not in kept:
                remove(checkpoint.folder)

    def state_dict(self) -> dict[str, Any]:
        """The values seen, as pairs of step and value."""
        return {"values": [[step, value] for step, value in self.values.items()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the values of a checkpoint."""
        self.values = {step: value for step, value in state["values"]}  # noqa: C416 - dict() of lists has no type

    def _is_due(self, run: Run) -> bool:
        if self._every is not None:
            return run.horizon.due(self._every, run.step)
        waited = time.monotonic() - self._saved_at
        due = run.rank == 0 and waited >= (self.settings.every.seconds or 0.0)
        # One clock decides for all processes: saving takes all of them, at the same step.
        return run.strategy.sum(float(due))[0] > 0

    def _kept(self, steps: Sequence[int], run: Run) -> set[int]:
        """Which of the steps, oldest first, stay."""
        sign = -1.0 if run.monitor_direction == "max" else 1.0
        ranked = sorted((step for step in steps if step in self.values), key=lambda s: (sign * self.values[s], s))
        kept = {*steps[-self.settings.keep_last :], *ranked[: self.settings.keep_best]}
        if run.best_step is not None:
            kept.add(run.best_step)
        if self.settings.keep_every is not None:
            kept.update(step for step in steps if run.horizon.due(self.settings.keep_every, step))
        return kept


@hookimpl
def callback() -> dict[str, type[Callback]]:
    """The component of this module."""
    return {"checkpoint": Checkpoint}
