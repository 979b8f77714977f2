"""Rises and falls again and again, while the momentum goes the other way (Smith 2017, arXiv:1506.01186)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from rtx_core import InputError, Length, Scheduler, hookimpl
from rtx_core.lengths import not_zero
from rtx_plugins.schedulers.common import MOMENTUM, RATIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rtx_core import Horizon

Mode = Literal["triangular", "triangular2", "exp_range"]


@attrs.frozen
class CyclicSchedule:
    """Factor b + (1 − b) · h, where h goes from 0 to the cycle's height and back; held from the end on."""

    total: int
    up: int
    """Updates from the foot of a cycle to its top."""
    down: int
    """Updates from its top to the next foot."""
    base_ratio: float
    """b."""
    mode: Mode
    gamma: float
    momenta: tuple[float, float] | None
    """At the top of a cycle of full height, and at its foot."""

    def factor(self, i: int) -> float:
        """The rate as a share of the peak."""
        return self.base_ratio + (1.0 - self.base_ratio) * self._height(i)

    def momentum(self, i: int) -> float | None:
        """The momentum, low where the rate is high; None leaves the optimizer's alone."""
        if self.momenta is None:
            return None
        low, high = self.momenta
        return high - (high - low) * self._height(i)

    def _height(self, i: int) -> float:
        i = min(i, self.total)
        cycle, place = divmod(i, self.up + self.down)
        height = place / self.up if place <= self.up else (self.up + self.down - place) / self.down
        if self.mode == "triangular2":
            return height * 0.5**cycle
        return height * self.gamma**i if self.mode == "exp_range" else height


@attrs.frozen(kw_only=True)
class Cyclic(Scheduler):
    """Goes up and down between a base rate and the peak, as ``torch.optim.lr_scheduler.CyclicLR``."""

    base_ratio: float = attrs.field(validator=RATIO)
    """The rate at the foot of each cycle, as a share of the peak, in [0, 1]."""
    step_size_up: Length = attrs.field(factory=lambda: Length.parse("2000 steps"), validator=not_zero)
    """How long each rise takes."""
    step_size_down: Length | None = attrs.field(default=None, validator=not_zero)
    """How long each fall takes; None: as long as a rise."""
    mode: Mode = "triangular"
    """How high the cycles are: all the same, each half as high as the one before (``triangular2``), or lower with each
    update (``exp_range``)."""
    gamma: float = attrs.field(default=1.0, validator=[attrs.validators.gt(0.0), attrs.validators.le(1.0)])
    """With ``exp_range`` the height at update i is multiplied by gamma^i; in (0, 1]."""
    cycle_momentum: bool = True
    """Move the momentum against the rate: beta1 of Adam's kind, ``momentum`` of SGD. It then takes the place of what
    ``[optimizer]`` says; false leaves that alone."""
    base_momentum: float = attrs.field(default=0.8, validator=MOMENTUM)
    """The momentum where the rate is at its peak, in [0, 1)."""
    max_momentum: float = attrs.field(default=0.9, validator=MOMENTUM)
    """The momentum at the foot of a cycle, in [0, 1)."""

    def check(self) -> Iterator[tuple[str, str]]:
        """A setting that does nothing, and momenta the wrong way round."""
        if self.gamma != 1.0 and self.mode != "exp_range":
            yield "gamma", f'only mode = "exp_range" takes it, and mode is "{self.mode}"'
        if self.base_momentum > self.max_momentum:
            yield "base_momentum", f"must be at most max_momentum, {self.max_momentum}, got {self.base_momentum}"

    def build(self, horizon: Horizon) -> CyclicSchedule:
        """The cycles over what remains after warm-up.

        :raises InputError: not even one fits.
        """
        up = horizon.steps(self.step_size_up)
        down = up if self.step_size_down is None else horizon.steps(self.step_size_down)
        if up + down > horizon.total:
            raise InputError(
                f"scheduler.step_size_up: a cycle of {up} steps up and {down} down has {up + down}, but there are only "
                f"{horizon.total} for it; shorten the cycle or lengthen [training] duration"
            )
        return CyclicSchedule(
            total=horizon.total,
            up=up,
            down=down,
            base_ratio=self.base_ratio,
            mode=self.mode,
            gamma=self.gamma,
            momenta=(self.base_momentum, self.max_momentum) if self.cycle_momentum else None,
        )


@hookimpl
def scheduler() -> dict[str, type[Scheduler]]:
    """Offer it as ``cyclic``."""
    return {"cyclic": Cyclic}
