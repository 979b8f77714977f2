"""REX, a reflected exponential decay (Chen et al. 2022, arXiv:2107.04197)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Scheduler, hookimpl

if TYPE_CHECKING:
    from rtx_core import Horizon


@attrs.frozen
class RexSchedule:
    """Factor (1 − z) / (1 − z/2), where z goes from 0 to 1."""

    total: int

    def factor(self, i: int) -> float:
        """From 1 to 0; 0 from the end on."""
        if i >= self.total:
            return 0.0
        z = i / self.total
        return (1.0 - z) / (1.0 - z / 2.0)


@attrs.frozen(kw_only=True)
class Rex(Scheduler):
    """Holds the rate longer than ``linear`` and then falls faster."""

    def build(self, horizon: Horizon) -> RexSchedule:
        """The fall over what remains after warm-up."""
        return RexSchedule(horizon.total)


@hookimpl
def scheduler() -> dict[str, type[Scheduler]]:
    """Offer it as ``rex``."""
    return {"rex": Rex}
