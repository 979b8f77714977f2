"""Adam (Kingma & Ba 2015, arXiv:1412.6980), by ``torch.optim.Adam``."""

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
class Adam(Optimizer):
    """Divides a running average of the gradient by the root of one of its square. For decay prefer ``adamw``."""

    weight_decay: float = attrs.field(default=0.0, validator=attrs.validators.ge(0.0))
    """An L2 penalty: weight_decay · w is added to the gradient, so it goes through both averages and weighs least where
    gradients are large; biases and norms are left out."""
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
        """``torch.optim.Adam`` over the groups.

        :raises InputError: ``fused = true`` on a device that has no such kernel.
        """
        import torch

        used = kernels(groups, "Adam", fused=self.fused)
        optimizer = torch.optim.Adam(
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
    """Offer it as ``adam``."""
    return {"adam": Adam}
