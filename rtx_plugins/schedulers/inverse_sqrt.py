"""A fall with one over the root of the updates (Vaswani et al. 2017, arXiv:1706.03762, section 5.3)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs

from rtx_core import Length, Scheduler, hookimpl
from rtx_core.lengths import not_zero

if TYPE_CHECKING:
    from rtx_core import Horizon

_WITHOUT_WARMUP = 10_000
"""The time scale where there is no warm-up to take it from, as in ``transformers`` and T5."""


@attrs.frozen
class InverseSqrtSchedule:
    """Factor √(s / (s + i)), where s is the time scale; held from the end on."""

    total: int
    timescale: int
    """s, in updates."""

    def factor(self, i: int) -> float:
        """From 1 down, ever slower; 1/√2 after one time scale."""
        return math.sqrt(self.timescale / (self.timescale + min(i, self.total)))


@attrs.frozen(kw_only=True)
class InverseSqrt(Scheduler):
    """Falls with one over the root of the updates, at a pace that doesn't depend on how long the run is."""

    timescale: Length | None = attrs.field(default=None, validator=not_zero)
    """How long the rate takes to fall to 1/√2 of its peak; None: as long as warm-up, as in the paper, or 10,000 steps
    where there is none."""

    def build(self, horizon: Horizon) -> InverseSqrtSchedule:
        """The fall over what remains after warm-up."""
        timescale = horizon.steps(self.timescale or self.warmup) or _WITHOUT_WARMUP
        return InverseSqrtSchedule(horizon.total, timescale)


@hookimpl
def scheduler() -> dict[str, type[Scheduler]]:
    """Offer it as ``inverse_sqrt``."""
    return {"inverse_sqrt": InverseSqrt}
