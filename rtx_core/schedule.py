"""The learning rate, and the momentum, of each update: warm-up, put in front of a scheduler's own course."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core.errors import InputError

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
        raise InputError(
            f"{key}: {length} are {steps} steps, but there are only {horizon.total} for it; "
            "shorten it or lengthen [training] duration"
        )
    return steps


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
