"""Stop when a value of the evaluations has not improved for a while (Prechelt 1998)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import attrs

from rtx_core import Callback, InputError, hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rtx_core import Run
    from rtx_core.components import Direction


@attrs.define
class EarlyStoppingPart:
    """Counts evaluations since the best one."""

    settings: EarlyStopping
    best: float | None = None
    """The best value so far, None before the first that is a number."""
    count: int = 0
    """Evaluations since then."""
    _monitor: str = attrs.field(default="", init=False)
    _direction: Direction = attrs.field(default="min", init=False)

    def on_run_start(self, run: Run) -> None:
        """Find out what to look at.

        :raises InputError: no evaluation gives it, or it has no better and worse.
        """
        if run.monitor is None:
            raise InputError("callbacks.early_stopping: nothing is evaluated; add [data.eval]")
        self._monitor, self._direction = run.monitor, run.monitor_direction
        if self.settings.monitor is not None and self.settings.monitor != run.monitor:
            self._monitor, self._direction = self.settings.monitor, self._direction_of(self.settings.monitor, run)

    @staticmethod
    def _direction_of(monitor: str, run: Run) -> Direction:
        values = run.pipeline.evaluated
        direction = values.get(monitor)
        if direction is None:
            known = ", ".join(name for name, way in values.items() if way is not None)
            raise InputError(f'callbacks.early_stopping.monitor: no evaluation gives "{monitor}"; there are {known}')
        return direction

    def on_eval_end(self, run: Run, values: Mapping[str, Any]) -> None:
        """Compare, count, and stop when patience is over. Other evaluation sets are passed by."""
        if self._monitor not in values:
            return
        value = values[self._monitor]
        if self._improves(value):
            self.best, self.count = float(value), 0
            return
        self.count += 1
        if self.count >= self.settings.patience:
            best = "it never was a number" if self.best is None else f"best {self.best:.6g}"
            evaluations = "evaluation" if self.count == 1 else "evaluations"
            run.stop(f"early_stopping: {self._monitor} has not improved for {self.count} {evaluations} ({best})")

    def _improves(self, value: float | None) -> bool:
        if value is None or math.isnan(value):
            return False
        if self.best is None:
            return True
        gain = value - self.best if self._direction == "max" else self.best - value
        return gain > self.settings.min_delta

    def state_dict(self) -> dict[str, Any]:
        """The best value and the count."""
        return {"best": self.best, "count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on counting from a checkpoint."""
        self.best, self.count = state["best"], state["count"]


@attrs.frozen(kw_only=True)
class EarlyStopping(Callback):
    """Ends the run when the monitored value has stopped getting better."""

    patience: int = attrs.field(default=3, validator=attrs.validators.ge(1))
    """Evaluations in a row without an improvement after which the run stops."""
    min_delta: float = attrs.field(default=0.0, validator=attrs.validators.ge(0.0))
    """A value counts as an improvement if it is better than the best by more than this, in the value's own unit."""
    monitor: str | None = None
    """The value to look at, as ``eval/loss``; None takes ``training.monitor``. NaN never counts as an improvement."""

    def build(self) -> EarlyStoppingPart:
        """The part that counts."""
        return EarlyStoppingPart(self)


@hookimpl
def callback() -> dict[str, type[Callback]]:
    """Offer it as ``early_stopping``."""
    return {"early_stopping": EarlyStopping}
