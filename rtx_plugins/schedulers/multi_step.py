"""The rate is multiplied by a factor at given places, as ``torch.optim.lr_scheduler.MultiStepLR`` does."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

import attrs

from rtx_core import Length, Scheduler, hookimpl
from rtx_core.lengths import not_zero
from rtx_core.schedule import steps_within
from rtx_plugins.schedulers.common import RATIO

if TYPE_CHECKING:
    from rtx_core import Horizon


@attrs.frozen
class MultiStepSchedule:
    """Factor gamma^(milestones at or before i), held from the end on."""

    total: int
    milestones: tuple[int, ...]
    """Updates at which the rate drops, in ascending order."""
    gamma: float

    def factor(self, i: int) -> float:
        """The rate as a share of the peak."""
        return self.gamma ** bisect.bisect_right(self.milestones, min(i, self.total))


@attrs.frozen(kw_only=True)
class MultiStep(Scheduler):
    """Drops by a factor at each milestone."""

    milestones: tuple[Length, ...] = attrs.field(
        validator=attrs.validators.deep_iterable(not_zero, attrs.validators.min_len(1))
    )
    """Where the rate drops, counted from the end of warm-up; at one that is written twice it drops twice."""
    gamma: float = attrs.field(default=0.1, validator=RATIO)
    """What each drop multiplies the rate by, in [0, 1]."""

    def build(self, horizon: Horizon) -> MultiStepSchedule:
        """The drops in what remains after warm-up.

        :raises InputError: a milestone lies behind its end.
        """
        milestones = [
            steps_within(horizon, milestone, f"scheduler.milestones[{number}]")
            for number, milestone in enumerate(self.milestones)
        ]
        return MultiStepSchedule(horizon.total, tuple(sorted(milestones)), self.gamma)


@hookimpl
def scheduler() -> dict[str, type[Scheduler]]:
    """Offer it as ``multi_step``."""
    return {"multi_step": MultiStep}
