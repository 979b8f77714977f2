"""The learning rate, and the momentum, of each update: warm-up, put in front of a scheduler's own course."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs

from rtx_core.errors import InputError, PluginError

if TYPE_CHECKING:
    import torch

    from rtx_core.components import Schedule, Scheduler
    from rtx_core.lengths import Horizon, Length


@attrs.frozen
class WarmUp:
    """Rises linearly from 0, then follows another schedule from its beginning."""

    steps: int
    then: Schedule

    def factor(self, i: int) -> float:
        """What multiplies the peak rate at the 0-based update ``i``."""
        return i / self.steps if i < self.steps else self.then.factor(i - self.steps)

    def momentum(self, i: int) -> float | None:
        """That of the other schedule; while the rate rises, the one that it begins with."""
        return momentum(self.then, max(i - self.steps, 0))


def build_schedule(scheduler: Scheduler, horizon: Horizon) -> Schedule:
    """The schedule of a whole run, or of one part of a sequence.

    :raises InputError: warm-up is longer than that, or what follows doesn't fit into the rest.
    """
    steps = steps_within(horizon, scheduler.warmup, "scheduler.warmup")
    then = scheduler.build(horizon.after(steps))
    return WarmUp(steps, then) if steps else then


def steps_within(horizon: Horizon, length: Length, key: str) -> int:
    """A length in steps that has to fit into what the schedule has in front of it.

    :param key: where the length is written, as ``scheduler.decay``.
    :raises InputError: it is longer, with both numbers.
    """
    steps = horizon.steps(length)
    if steps > horizon.total:
        told = str(length) if length.unit == "steps" else f"{length} are {steps} steps"
        raise InputError(
            f"{key}: {told}, but there are only {horizon.total} for it; shorten it or lengthen [training] duration"
        )
    return steps


def refuse_other_than_factors(schedule: Schedule, total: int) -> None:
    """Look at the factor, and the momentum, of a hundred updates and of what comes after the last.

    :raises PluginError: one is no number that a rate, or a momentum, can be multiplied with, or be.
    """
    moves = momentum(schedule, 0) is not None
    for i in sorted({total * share // _LOOKS for share in range(_LOOKS + 1)}):
        factor, moved = schedule.factor(i), momentum(schedule, i)
        if not (isinstance(factor, (float, int)) and math.isfinite(factor) and factor >= 0.0):
            raise PluginError(f"scheduler: factor({i}) is {factor!r}; expected a finite number from 0")
        if not (isinstance(moved, (float, int)) and 0.0 <= moved < 1.0) if moves else moved is not None:
            raise PluginError(f"scheduler: momentum({i}) is {moved!r}; expected a number in [0, 1), or None throughout")


_LOOKS = 100


def idle_at_the_end(schedule: Schedule, total: int) -> int:
    """How many of the last updates of a run have a rate of 0."""
    first = total
    while first and schedule.factor(first - 1) == 0.0:
        first -= 1
    return total - first


def momentum(schedule: Schedule, i: int) -> float | None:
    """The momentum at the 0-based update ``i``; None where the schedule leaves it to the optimizer."""
    course = getattr(schedule, "momentum", None)
    return None if course is None else course(i)


def set_momentum(schedule: Schedule, i: int, optimizer: torch.optim.Optimizer) -> None:
    """Give every group the momentum of an update, as beta1 where it has betas; nothing where the schedule has none."""
    value = momentum(schedule, i)
    if value is None:
        return
    for group in optimizer.param_groups:
        if "betas" in group:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value


def refuse_lost_momentum(schedule: Schedule, optimizer: torch.optim.Optimizer) -> None:
    """A schedule that moves the momentum needs an optimizer with one.

    :raises InputError: a group of the optimizer has neither betas nor a momentum.
    """
    if momentum(schedule, 0) is None:
        return
    if any("betas" not in group and "momentum" not in group for group in optimizer.param_groups):
        raise InputError(
            f"scheduler: it moves the momentum, and {type(optimizer).__name__} has neither betas nor momentum; set "
            "scheduler.cycle_momentum = false, or take another optimizer"
        )
