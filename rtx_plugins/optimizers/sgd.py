"""Gradient descent with momentum (Polyak 1964; Nesterov's form as in Sutskever et al. 2013), by ``torch.optim.SGD``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Optimizer, hookimpl
from rtx_plugins.optimizers.common import implemented, kernels

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import torch

    from rtx_core import ParameterGroup


@attrs.frozen(kw_only=True)
class SGD(Optimizer):
    """Steps down the gradient, or down a running sum of gradients."""

    weight_decay: float = attrs.field(default=0.0, validator=attrs.validators.ge(0.0))
    """An L2 penalty: weight_decay · w is added to the gradient; biases and norms are left out."""
    momentum: float = attrs.field(default=0.0, validator=[attrs.validators.ge(0.0), attrs.validators.lt(1.0)])
    """How much of the running sum stays at each update, in [0, 1); 0 keeps none."""
    dampening: float = attrs.field(default=0.0, validator=[attrs.validators.ge(0.0), attrs.validators.lt(1.0)])
    """Share by which a gradient is made smaller before it is added to the running sum; the first is added whole."""
    nesterov: bool = False
    """Look ahead: step down the gradient plus momentum times the running sum. Needs momentum, and no dampening."""
    maximize: bool = False
    """Go up the gradient: the loss grows."""
    fused: bool | None = None
    """Do the whole update in one kernel; it changes the last bits. None does where the device has one (CPU, CUDA)."""

    def check(self) -> Iterable[tuple[str, str]]:
        """Dampening is of the running sum; Nesterov's momentum is defined for momentum without dampening."""
        if self.dampening and not self.momentum:
            yield "dampening", "needs a momentum above 0"
        if self.nesterov and not self.momentum:
            yield "nesterov", "needs a momentum above 0"
        if self.nesterov and self.dampening:
            yield "nesterov", f"needs a dampening of 0, got {self.dampening}"

    def build(self, groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:
        """``torch.optim.SGD`` over the groups.

        :raises InputError: ``fused = true`` on a device that has no such kernel.
        """
        import torch

        used = kernels(groups, "SGD", fused=self.fused)
        optimizer = torch.optim.SGD(
            [group.options() for group in groups],
            lr=self.lr,
            momentum=self.momentum,
            dampening=self.dampening,
            nesterov=self.nesterov,
            maximize=self.maximize,
            **used,
        )
        return implemented(optimizer, **used)


@hookimpl
def optimizer() -> dict[str, type[Optimizer]]:
    """Offer it as ``sgd``."""
    return {"sgd": SGD}
