"""One rise and one long fall, while the momentum goes the other way (Smith & Topin 2018, arXiv:1708.07120)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import attrs

from rtx_core import InputError, Scheduler, hookimpl
from rtx_plugins.schedulers.common import MOMENTUM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rtx_core import Horizon

Anneal = Literal["cosine", "linear"]


def annealed(anneal: Anneal, start: float, end: float, z: float) -> float:
    """On the way from one value to another, where z goes from 0 to 1."""
    if anneal == "linear":
        return (end - start) * z + start
    return end + (start - end) / 2.0 * (1.0 + math.cos(math.pi * z))


@attrs.frozen
class Phase:
    """From one rate and momentum to another."""

    end: float
    """The update that reaches them; it may lie between two."""
    rates: tuple[float, float]
    """As shares of the peak."""
    momenta: tuple[float, float]


@attrs.frozen
class OneCycleSchedule:
    """The phases one after the other; the last ends with the last update, and its end holds."""

    phases: tuple[Phase, ...]
    anneal: Anneal
    cycle_momentum: bool

    def factor(self, i: int) -> float:
        """The rate as a share of the peak."""
        phase, z = self._place(i)
        return annealed(self.anneal, *phase.rates, z)

    def momentum(self, i: int) -> float | None:
        """The momentum, low where the rate is high; None leaves the optimizer's alone."""
        if not self.cycle_momentum:
            return None
        phase, z = self._place(i)
        return annealed(self.anneal, *phase.momenta, z)

    def _place(self, i: int) -> tuple[Phase, float]:
        """The phase of an update, and how much of it is over."""
        start = 0.0
        for phase in self.phases:
            if i <= phase.end:
                return phase, (i - start) / (phase.end - start)
            start = phase.end
        return self.phases[-1], 1.0


@attrs.frozen(kw_only=True)
class OneCycle(Scheduler):
    """Rises from a small rate to the peak and falls to almost nothing, as ``torch.optim.lr_scheduler.OneCycleLR``.

    The rise is its own warm-up, so ``warmup`` is not needed.
    """

    pct_start: float = attrs.field(default=0.3, validator=[attrs.validators.gt(0.0), attrs.validators.lt(1.0)])
    """The share of the schedule in which the rate rises, in (0, 1); with ``three_phase`` at most 0.5."""
    div_factor: float = attrs.field(default=25.0, validator=attrs.validators.ge(1.0))
    """The first rate is the peak divided by this."""
    final_div_factor: float = attrs.field(default=1e4, validator=attrs.validators.gt(0.0))
    """The last rate is the first one divided by this."""
    anneal: Anneal = "cosine"
    """How the rate gets from one value to the next: along half a cosine, or straight."""
    three_phase: bool = False
    """Fall back to the first rate as fast as it rose, and only then to the last; false falls in one go."""
    cycle_momentum: bool = True
    """Move the momentum against the rate: beta1 of Adam's kind, ``momentum`` of SGD. It then takes the place of what
    ``[optimizer]`` says; false leaves that alone."""
    base_momentum: float = attrs.field(default=0.85, validator=MOMENTUM)
    """The momentum where the rate is at its peak, in [0, 1)."""
    max_momentum: float = attrs.field(default=0.95, validator=MOMENTUM)
    """The momentum at the start and at the end, in [0, 1)."""

    def check(self) -> Iterator[tuple[str, str]]:
        """Every phase ends before the next one, and no rate is above the peak."""
        if self.three_phase and self.pct_start > 0.5:  # noqa: PLR2004 - rise and fall take it each
            yield "pct_start", f"with three_phase rise and fall take it each, so at most 0.5, got {self.pct_start}"
        if self.div_factor * self.final_div_factor < 1.0:
            least = 1.0 / self.div_factor
            yield "final_div_factor", f"must be at least 1 / div_factor, {least:g}, or the last rate is above the peak"
        if self.base_momentum > self.max_momentum:
            yield "base_momentum", f"must be at most max_momentum, {self.max_momentum}, got {self.base_momentum}"

    def build(self, horizon: Horizon) -> OneCycleSchedule:
        """The cycle over what remains after warm-up.

        :raises InputError: the rise has no room for an update.
        """
        total, top = horizon.total, self.pct_start * horizon.total - 1.0
        if top <= 0.0:
            raise InputError(
                f"scheduler.pct_start: a rise over {self.pct_start:g} of the schedule needs at least "
                f"{math.floor(1.0 / self.pct_start) + 1} steps, and it has {total}; lengthen [training] duration"
            )
        low, high = self.base_momentum, self.max_momentum
        first = 1.0 / self.div_factor
        last = first / self.final_div_factor
        rise = Phase(top, (first, 1.0), (high, low))
        phases = [rise, Phase(total - 1, (1.0, last), (low, high))]
        if self.three_phase:
            back = Phase(2.0 * self.pct_start * total - 2.0, (1.0, first), (low, high))
            phases = [rise, back, Phase(total - 1, (first, last), (high, high))]
        return OneCycleSchedule(tuple(phases), self.anneal, self.cycle_momentum)


@hookimpl
def scheduler() -> dict[str, type[Scheduler]]:
    """Offer it as ``one_cycle``."""
    return {"one_cycle": OneCycle}
