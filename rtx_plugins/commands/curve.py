"""The course of a schedule as a few lines of text."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import attrs

from rtx_core import Horizon, InputError
from rtx_core.schedule import build_schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rtx_core import Scheduler

STEPS = 100
"""How long the run is that a curve shows; a step is a percent of it."""
_WIDTH, _HEIGHT = 50, 8
_EIGHTHS = " ▁▂▃▄▅▆▇█"


def curve(scheduler: type[Scheduler]) -> Iterator[str]:
    """A heading and the factor over 100 steps with the defaults, or a line that says why there is none."""
    required = [field.name for field in attrs.fields(scheduler) if field.init and field.default is attrs.NOTHING]
    if required:
        yield f"no curve: {', '.join(required)} must be written"
        return
    horizon = Horizon(
        total=STEPS, run_total=STEPS, steps_per_epoch=STEPS, samples_per_epoch=STEPS, tokens_per_epoch=STEPS
    )
    try:
        schedule = build_schedule(scheduler(), horizon)
    except InputError as error:
        yield f"no curve over {STEPS} steps: {error}"
        return
    yield f"factor of the peak rate over {STEPS} steps, with the defaults:"
    top, *middle, bottom = drawn([schedule.factor(i) for i in range(STEPS)])
    yield from (f"1 ┤{top}", *(f"  │{line}" for line in middle), f"0 ┤{bottom}")
    yield f"   0{str(STEPS // 2).rjust(_WIDTH // 2)}{str(STEPS).rjust(_WIDTH // 2)}".rstrip()


def drawn(values: Sequence[float], *, width: int = _WIDTH, height: int = _HEIGHT) -> list[str]:
    """Values in [0, 1] as columns of blocks, an eighth of a line the least, from the top line to the bottom one.

    A column is as high as the greatest of the values that fall to it.
    """
    bounds = [column * len(values) // width for column in range(width + 1)]
    eighths = [round(max(values[low:high]) * height * 8) for low, high in itertools.pairwise(bounds)]
    return [
        "".join(_EIGHTHS[min(max(size - 8 * line, 0), 8)] for size in eighths).rstrip()
        for line in reversed(range(height))
    ]
