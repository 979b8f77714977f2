"""Adafactor (Shazeer & Stern 2018, arXiv:1804.04235), by ``torch.optim.Adafactor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Optimizer, hookimpl
from rtx_plugins.optimizers.common import implemented

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from rtx_core import ParameterGroup


@attrs.frozen(kw_only=True)
class Adafactor(Optimizer):
    """Keeps the average square of a matrix's gradient as one row and one column: little memory, no momentum.

    At update t a tensor moves by min(lr, 1/√t) · max(eps2, RMS of its weights): ``lr`` is relative to their size.
    """

    lr: float = attrs.field(default=1e-2, validator=attrs.validators.gt(0.0))
    """The largest relative rate; the schedule's factor multiplies it, and 1/√t bounds it."""
    weight_decay: float = attrs.field(default=0.0, validator=attrs.validators.ge(0.0))
    """Share of lr by which an update shrinks the weights (w ← w − lr · weight_decay · w); biases and norms are left
    out."""
    beta2_decay: float = attrs.field(default=-0.8, validator=attrs.validators.le(0.0))
    """Power of t in 1 − t^beta2_decay, the decay rate of the average square at update t; 0 or below."""
    eps1: float | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.gt(0.0)))
    """The least that an average square may be; None takes the spacing of the parameters' numbers around 1."""
    eps2: float = attrs.field(default=1e-3, validator=attrs.validators.gt(0.0))
    """The least size of a tensor's weights (RMS) that its rate is relative to, so that zeros can move."""
    d: float = attrs.field(default=1.0, validator=attrs.validators.ge(1.0))
    """The largest size (RMS) of a tensor's update before the rate; larger ones are scaled down to it."""
    maximize: bool = False
    """Go up the gradient: the loss grows."""

    def build(self, groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:
        """``torch.optim.Adafactor`` over the groups, one tensor after the other: its other form takes more memory."""
        import torch

        optimizer = torch.optim.Adafactor(
            [group.options() for group in groups],
            lr=self.lr,
            beta2_decay=self.beta2_decay,
            eps=(self.eps1, self.eps2),
            d=self.d,
            maximize=self.maximize,
            foreach=False,
        )
        return implemented(optimizer)


@hookimpl
def optimizer() -> dict[str, type[Optimizer]]:
    """Offer it as ``adafactor``."""
    return {"adafactor": Adafactor}
