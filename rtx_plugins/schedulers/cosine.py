"""A fall along half a cosine, once or with warm restarts (Loshchilov & Hutter 2017, arXiv:1608.03983)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs

from rtx_core import InputError, Scheduler, hookimpl
from rtx_plugins.schedulers.common import RATIO

if TYPE_CHECKING:
    from rtx_core import Horizon


@attrs.frozen
class CosineSchedule:
    """Factor m + (1 − m) · (1 + cos πz) / 2, where z goes from 0 to 1 in each cycle and m is the least ratio."""

    total: int
    """Updates of all cycles together."""
    min_ratio: float
    """m."""
    cycles: int
    """How often z goes from 0 to 1."""

    def factor(self, i: int) -> float:
        """From 1 to m in each cycle; m from the end of the last one on."""
        if i >= self.total:
            return self.min_ratio
        # Whole numbers, so that a restart falls on the same update however total and cycles divide.
        z = (i * self.cycles) % self.total / self.total
        return self.min_ratio + (1.0 - self.min_ratio) * (1.0 + math.cos(math.pi * z)) / 2.0


@attrs.frozen(kw_only=True)
class Cosine(Scheduler):
    """A fall along half a cosine."""

    min_ratio: float = attrs.field(default=0.0, validator=RATIO)
    """The rate at the end, as a share of the peak, in [0, 1]."""
    cycles: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    """How many falls the run is divided into; each starts again from the peak. 1 is one fall."""

    def build(self, horizon: Horizon) -> CosineSchedule:
        """The fall over what remains after warm-up.

        :raises InputError: a cycle would have no update of its own.
        """
        if 1 < self.cycles > horizon.total:
            raise InputError(
                f"scheduler.cycles: {self.cycles} cycles need as many steps, but there are only {horizon.total} for "
                "them; write fewer or lengthen [training] duration"
            )
        return CosineSchedule(horizon.total, self.min_ratio, self.cycles)


@hookimpl
def scheduler() -> dict[str, type[Scheduler]]:
    """Offer it as ``cosine``."""
    return {"cosine": Cosine}
