"""The learning rate of each update: warm-up, put in front of a scheduler's own course."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core.errors import InputError

if TYPE_CHECKING:
    from rtx_core.components import Schedule, Scheduler
    from rtx_core.lengths import Horizon


@attrs.frozen
class WarmUp:
    """Rises linearly from 0, then follows another schedule from its beginning."""

    steps: int
    then: Schedule

    def factor(self, i: int) -> float:
        """What multiplies the peak rate at the 0-based update ``i``."""
        return i / self.steps if i < self.steps else self.then.factor(i - self.steps)


def build_schedule(scheduler: Scheduler, horizon: Horizon) -> Schedule:
    """The schedule of a whole run.

    :raises InputError: warm-up is longer than the run.
    """
    steps = horizon.steps(scheduler.warmup)
    if steps > horizon.total:
        raise InputError(
            f"scheduler.warmup: {scheduler.warmup} are {steps} steps, but the run has only {horizon.total}; "
            "shorten the warm-up or lengthen [training] duration"
        )
    then = scheduler.build(horizon.after(steps))
    return WarmUp(steps, then) if steps else then
