"""Adam with decoupled weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101), by ``torch.optim.AdamW``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Optimizer, hookimpl
from rtx_plugins.optimizers.common import DECAY_RATES, implemented, kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from rtx_core import ParameterGroup


@attrs.frozen(kw_only=True)
class AdamW(Optimizer):
    """Adam whose weight decay shrinks the weights directly and never enters the running averages."""

    weight_decay: float = attrs.field(default=0.01, validator=attrs.validators.ge(0.0))
    """Share of lr by which an update shrinks the weights (w ← w − lr · weight_decay · w); biases and norms are left
    out."""
    betas: tuple[float, float] = attrs.field(default=(0.9, 0.999), validator=DECAY_RATES)
    """Decay rates of the running averages of the gradient and of its square, each in [0, 1)."""
    eps: float = attrs.field(default=1e-8, validator=attrs.validators.gt(0.0))
    """Added to the root of the second average, after its bias correction, so that it is never 0."""
    amsgrad: bool = False
    """Divide by the largest second average so far instead of the current one (Reddi et al. 2018)."""
    maximize: bool = False
    """Go up the gradient: the loss grows."""
    fused: bool | None = None
    """Do the whole update in one kernel; it changes the last bits. None does where the device has one (CPU, CUDA)."""

    def build(self, groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:
        """``torch.optim.AdamW`` over the groups.

        :raises InputError: ``fused = true`` on a device that has no such kernel.
        """
        import torch

        used = kernels(groups, "AdamW", fused=self.fused)
        optimizer = torch.optim.AdamW(
            [group.options() for group in groups],
            lr=self.lr,
            betas=self.betas,
            eps=self.eps,
            amsgrad=self.amsgrad,
            maximize=self.maximize,
            **used,
        )
        return implemented(optimizer, **used)


@hookimpl
def optimizer() -> dict[str, type[Optimizer]]:
    """Offer it as ``adamw``."""
    return {"adamw": AdamW}
