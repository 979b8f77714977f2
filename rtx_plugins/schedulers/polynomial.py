"""A fall that follows a power of the way that is left (Chen et al. 2015, arXiv:1412.7062, call it "poly")."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Scheduler, hookimpl
from rtx_plugins.schedulers.common import RATIO

if TYPE_CHECKING:
    from rtx_core import Horizon


@attrs.frozen
class PolynomialSchedule:
    """Factor m + (1 − m) · (1 − i / total)^power, and m from the end on."""

    total: int
    """Updates from the peak to m."""
    power: float
    min_ratio: float
    """m."""

    def factor(self, i: int) -> float:
        """From 1 to m."""
        if i >= self.total:
            return self.min_ratio
        left: float = (1.0 - i / self.total) ** self.power
        return self.min_ratio + (1.0 - self.min_ratio) * left


@attrs.frozen(kw_only=True)
class Polynomial(Scheduler):
    """A fall from the peak that follows a power of what is left of the run."""

    power: float = attrs.field(default=1.0, validator=attrs.validators.gt(0.0))
    """The exponent. 1 falls straight, above 1 fast at first, below 1 fast at the end."""
    min_ratio: float = attrs.field(default=0.0, validator=RATIO)
    """The rate at the end, as a share of the peak, in [0, 1]."""

    def build(self, horizon: Horizon) -> PolynomialSchedule:
        """The fall over what remains after warm-up."""
        return PolynomialSchedule(horizon.total, self.power, self.min_ratio)


@hookimpl
def scheduler() -> dict[str, type[Scheduler]]:
    """Offer it as ``polynomial``."""
    return {"polynomial": Polynomial}
