"""A straight fall from the peak rate to 0 at the end of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Scheduler, hookimpl

if TYPE_CHECKING:
    from rtx_core import Horizon


@attrs.frozen
class LinearSchedule:
    """Factor 1 − i / total, and 0 from the end on."""

    total: int
    """Updates from the peak to 0."""

    def factor(self, i: int) -> float:
        """What is left of the way, from 1 to 0."""
        return 1.0 - i / self.total if i < self.total else 0.0


@attrs.frozen(kw_only=True)
class Linear(Scheduler):
    """A straight fall to 0."""

    def build(self, horizon: Horizon) -> LinearSchedule:
        """The fall over what remains after warm-up."""
        return LinearSchedule(horizon.total)


@hookimpl
def scheduler() -> dict[str, type[Scheduler]]:
    """Offer it as ``linear``."""
    return {"linear": Linear}
