"""The rate is multiplied by a factor again and again, as ``torch.optim.lr_scheduler.StepLR`` does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Length, Scheduler, hookimpl
from rtx_core.lengths import not_zero
from rtx_core.schedule import steps_within
from rtx_plugins.schedulers.common import RATIO

if TYPE_CHECKING:
    from rtx_core import Horizon


@attrs.frozen
class StepSchedule:
    """Factor gamma^⌊i / size⌋, held from the end on."""

    total: int
    size: int
    """Updates between two drops."""
    gamma: float

    def factor(self, i: int) -> float:
        """The rate as a share of the peak."""
        return self.gamma ** (min(i, self.total) // self.size)


@attrs.frozen(kw_only=True)
class Step(Scheduler):
    """Drops by a factor at equal distances. ``step_size = "1 step"`` falls exponentially, as torch's ExponentialLR."""

    step_size: Length = attrs.field(validator=not_zero)
    """How long the rate stays the same before each drop."""
    gamma: float = attrs.field(default=0.1, validator=RATIO)
    """What each drop multiplies the rate by, in [0, 1]."""

    def build(self, horizon: Horizon) -> StepSchedule:
        """The drops in what remains after warm-up.

        :raises InputError: it is over before the first of them.
        """
        return StepSchedule(horizon.total, steps_within(horizon, self.step_size, "scheduler.step_size"), self.gamma)


@hookimpl
def scheduler() -> dict[str, type[Scheduler]]:
    """Offer it as ``step``."""
    return {"step": Step}
