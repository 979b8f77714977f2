"""Schedules one after the other, as ``torch.optim.lr_scheduler.SequentialLR`` does."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

import attrs

from rtx_core import InputError, Length, Scheduler, hookimpl
from rtx_core.lengths import not_zero
from rtx_core.schedule import build_schedule, momentum, steps_within
from rtx_plugins.schedulers.common import RATIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rtx_core import Horizon
    from rtx_core.components import Schedule


@attrs.frozen
class Stage:
    """A schedule with its place in a sequence."""

    start: int
    """The update that is its first."""
    steps: int
    peak_ratio: float
    schedule: Schedule


@attrs.frozen
class SequenceSchedule:
    """Each stage's factor times its peak; the last one's end holds."""

    stages: tuple[Stage, ...]

    def factor(self, i: int) -> float:
        """The rate as a share of the peak."""
        stage = self.stages[self._number(i)]
        return stage.peak_ratio * stage.schedule.factor(i - stage.start)

    def momentum(self, i: int) -> float | None:
        """That of the stage; of one without, what the last stage with one ended with, or the next one begins with."""
        now = self._number(i)
        before, after = self.stages[:now], self.stages[now + 1 :]
        places = [(self.stages[now], i - self.stages[now].start)]
        places += [(stage, stage.steps) for stage in reversed(before)]
        places += [(stage, 0) for stage in after]
        values = (momentum(stage.schedule, place) for stage, place in places)
        return next((value for value in values if value is not None), None)

    def _number(self, i: int) -> int:
        return bisect.bisect_right(self.stages, i, key=lambda stage: stage.start) - 1


@attrs.frozen(kw_only=True)
class Part:
    """An entry of ``[[scheduler.parts]]``."""

    scheduler: Scheduler
    """Its course."""
    length: Length | None = attrs.field(default=None, validator=not_zero)
    """How long it lasts; None, for the last one alone: what remains of the run."""
    peak_ratio: float = attrs.field(default=1.0, validator=RATIO)
    """Its peak as a share of the optimizer's, in [0, 1]."""


@attrs.frozen(kw_only=True)
class Sequence(Scheduler):
    """Schedulers one after the other."""

    parts: tuple[Part, ...] = attrs.field(validator=attrs.validators.min_len(1))
    """Each with a ``scheduler`` (a name, or a table with a type), a ``length`` (of the last, left out: what remains)
    and a ``peak_ratio`` (its peak as a share of the optimizer's, 1 unless written)."""

    def check(self) -> Iterator[tuple[str, str]]:
        """Only the last part can take what remains."""
        for number, part in enumerate(self.parts[:-1]):
            if part.length is None:
                yield f"parts[{number}]", "has no length; only the last part can take what remains of the run"

    def build(self, horizon: Horizon) -> SequenceSchedule:
        """The parts in what remains after warm-up, each with a horizon of its own length.

        :raises InputError: they don't fit, or something doesn't fit into one of them.
        """
        stages: list[Stage] = []
        rest = horizon
        for number, part in enumerate(self.parts):
            name = f"scheduler.parts[{number}]"
            steps = rest.total if part.length is None else steps_within(rest, part.length, f"{name}.length")
            if not steps:
                raise InputError(f"{name}: the parts before it take all {horizon.total} steps, so that 0 remain for it")
            stages.append(Stage(horizon.total - rest.total, steps, part.peak_ratio, _built(part, rest, steps, name)))
            rest = rest.after(steps)
        return SequenceSchedule(tuple(stages))


def _built(part: Part, rest: Horizon, steps: int, name: str) -> Schedule:
    try:
        return build_schedule(part.scheduler, attrs.evolve(rest, total=steps))
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


@hookimpl
def scheduler() -> dict[str, type[Scheduler]]:
    """Offer it as ``sequence``."""
    return {"sequence": Sequence}
