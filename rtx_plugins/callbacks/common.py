"""What callbacks share: counting the evaluations since a value was at its best (Prechelt 1998)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import attrs

from rtx_core import Callback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rtx_core import Run
    from rtx_core.components import Direction


@attrs.frozen(kw_only=True)
class Patient(Callback):
    """Does something when a value of the evaluations has not improved for a while."""

    monitors: ClassVar[tuple[str, ...]] = ("monitor",)

    patience: int = attrs.field(default=3, validator=attrs.validators.ge(1))
    """Evaluations in a row without an improvement after which it acts. NaN never counts as an improvement."""
    min_delta: float = attrs.field(default=0.0, validator=attrs.validators.ge(0.0))
    """A value counts as an improvement if it is better than the best by more than this, in the value's own unit."""
    monitor: str | None = None
    """The value to look at, as ``eval/loss``; None takes ``training.monitor``. The metric says which way is better."""


Settings = TypeVar("Settings", bound=Patient)


@attrs.define
class PatientPart(Generic[Settings]):
    """Counts evaluations since the best one."""

    settings: Settings
    best: float | None = None
    """The best value so far, None before the first that is a number."""
    count: int = 0
    """Evaluations since then, or since it last acted."""
    monitored: str = attrs.field(default="", init=False)
    """The name of the value."""
    _direction: Direction = attrs.field(default="min", init=False)

    def act(self, run: Run) -> None:
        """What happens when patience is over."""
        raise NotImplementedError

    def on_build(self, run: Run) -> None:
        """Find out what to look at; that there is such a value was checked with the file."""
        self.monitored, direction = run.monitor or "", run.monitor_direction
        if self.settings.monitor is not None:
            self.monitored = self.settings.monitor
            direction = run.pipeline.evaluated[self.monitored] or direction
        self._direction = direction

    def on_eval_end(self, run: Run, values: Mapping[str, Any]) -> None:
        """Compare, count, and act when patience is over. Other evaluation sets are passed by."""
        if self.monitored not in values:
            return
        value = values[self.monitored]
        if self._improves(value):
            self.best, self.count = float(value), 0
            return
        self.count += 1
        if self.count >= self.settings.patience:
            self.act(run)

    def _improves(self, value: float | None) -> bool:
        if value is None or math.isnan(value):
            return False
        if self.best is None:
            return True
        gain = value - self.best if self._direction == "max" else self.best - value
        return gain > self.settings.min_delta

    def told(self) -> str:
        """What has not improved, for how long, in words."""
        best = "it never was a number" if self.best is None else f"best {self.best:.6g}"
        evaluations = "evaluation" if self.count == 1 else "evaluations"
        return f"{self.monitored} has not improved for {self.count} {evaluations} ({best})"

    def state_dict(self) -> dict[str, Any]:
        """The best value and the count."""
        return {"best": self.best, "count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on counting from a checkpoint."""
        self.best, self.count = state["best"], state["count"]
