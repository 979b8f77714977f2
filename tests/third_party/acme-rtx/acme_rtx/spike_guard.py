"""Answers a sudden jump of the loss with a smaller rate and a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from rtx_core import Callback, hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rtx_core import Run


@attrs.define
class SpikeGuardPart:
    """Compares each logged loss with the running mean of those before it."""

    settings: SpikeGuard
    mean: float | None = None
    """Running mean of the loss; None before the first."""
    scale: float = 1.0
    """This part's share of ``run.lr_scale``."""

    def on_log(self, run: Run, values: Mapping[str, float | str | None]) -> None:
        """Look at the row of this step; a skipped step has no loss."""
        loss = values.get("train/loss")
        if not isinstance(loss, float):
            return
        mean = loss if self.mean is None else self.mean
        limit = self.settings.threshold * mean
        spike = not loss <= limit  # NaN is one too
        if spike:
            run.request_checkpoint()
            run.console.warn(f"spike_guard: the loss is {loss:.4g} after a mean of {mean:.4g}; the rate is lowered")
        self._rescale(run, self.settings.factor if spike else self.settings.recovery)
        # A spike counts as the limit: it can't poison the mean, and a level that stays is accepted in time.
        self.mean = mean + (1.0 - self.settings.momentum) * ((limit if spike else loss) - mean)

    def _rescale(self, run: Run, factor: float) -> None:
        scale = min(1.0, self.scale * factor)
        run.lr_scale *= scale / self.scale  # what other parts made of it stays
        self.scale = scale

    def state_dict(self) -> dict[str, Any]:
        """The mean and the scale."""
        return {"mean": self.mean, "scale": self.scale}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.mean, self.scale = state["mean"], state["scale"]


@attrs.frozen(kw_only=True)
class SpikeGuard(Callback):
    """Lowers the rate and asks for a checkpoint when the loss jumps, then lets the rate rise again."""

    threshold: float = attrs.field(default=2.0, validator=attrs.validators.gt(1.0))
    """A loss above this many times its running mean is a spike."""
    momentum: float = attrs.field(default=0.98, validator=[attrs.validators.ge(0.0), attrs.validators.lt(1.0)])
    """How much of the running mean stays at each logged step, in [0, 1)."""
    factor: float = attrs.field(default=0.5, validator=[attrs.validators.gt(0.0), attrs.validators.lt(1.0)])
    """What a spike multiplies the rate by, in (0, 1)."""
    recovery: float = attrs.field(default=1.01, validator=attrs.validators.ge(1.0))
    """What every other logged step multiplies the rate by, until it is whole again; 1 leaves it low."""

    def build(self) -> SpikeGuardPart:
        """The part that remembers."""
        return SpikeGuardPart(self)


@hookimpl
def callback() -> dict[str, type[Callback]]:
    """Offer it as ``spike_guard``."""
    return {"spike_guard": SpikeGuard}
