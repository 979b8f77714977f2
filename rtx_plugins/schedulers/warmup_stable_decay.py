"""The peak rate for most of the run, then a short fall (Hu et al. 2024, arXiv:2404.06395, call it WSD).

The default shape is the one that Hägele et al. 2024 (arXiv:2405.18392) found best, and ModernBERT used.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import attrs

from rtx_core import Length, Scheduler, hookimpl
from rtx_core.lengths import not_zero
from rtx_core.schedule import steps_within
from rtx_plugins.schedulers.common import RATIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rtx_core import Horizon

Shape = Literal["linear", "cosine", "sqrt"]
_WHOLE = 100
"""Percent of a run."""


def fallen(shape: Shape, z: float) -> float:
    """What is left of a fall from 1 to 0, where z goes from 0 to 1."""
    if shape == "linear":
        return 1.0 - z
    return (1.0 + math.cos(math.pi * z)) / 2.0 if shape == "cosine" else 1.0 - math.sqrt(z)


@attrs.frozen
class WarmupStableDecaySchedule:
    """Factor 1, then m + (1 − m) · f(z) while z goes from 0 to 1, where f is the shape; m from the end on."""

    stable: int
    """Updates at the peak."""
    decay: int
    """Updates of the fall."""
    shape: Shape
    min_ratio: float
    """m."""

    def factor(self, i: int) -> float:
        """The rate as a share of the peak."""
        if i < self.stable:
            return 1.0
        if i >= self.stable + self.decay:
            return self.min_ratio
        return self.min_ratio + (1.0 - self.min_ratio) * fallen(self.shape, (i - self.stable) / self.decay)


@attrs.frozen(kw_only=True)
class WarmupStableDecay(Scheduler):
    """Holds the peak after warm-up and falls at the end, so that a run can be lengthened before its fall begins."""

    decay: Length = attrs.field(factory=lambda: Length.parse("10%"), validator=not_zero)
    """How long the fall at the end takes."""
    shape: Shape = "sqrt"
    """How the rate falls: straight, along half a cosine, or as 1 − √z, fast at first."""
    min_ratio: float = attrs.field(default=0.0, validator=RATIO)
    """The rate at the end, as a share of the peak, in [0, 1]."""

    def check(self) -> Iterator[tuple[str, str]]:
        """Warm-up and fall fit into the run, as far as that can be told from the file."""
        if self.warmup.unit == self.decay.unit == "%" and self.warmup.value + self.decay.value > _WHOLE:
            yield "decay", f"a fall of {self.decay} and a warm-up of {self.warmup} are more than the run"

    def build(self, horizon: Horizon) -> WarmupStableDecaySchedule:
        """Peak and fall in what remains after warm-up.

        :raises InputError: the fall is longer than that.
        """
        decay = steps_within(horizon, self.decay, "scheduler.decay")
        return WarmupStableDecaySchedule(horizon.total - decay, decay, self.shape, self.min_ratio)


@hookimpl
def scheduler() -> dict[str, type[Scheduler]]:
    """Offer it as ``warmup_stable_decay``."""
    return {"warmup_stable_decay": WarmupStableDecay}
