"""Adam with decoupled weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101), by ``torch.optim.AdamW``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import InputError, Optimizer, hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from rtx_core import ParameterGroup

_FUSED_DEVICES = ("cpu", "cuda")


@attrs.frozen(kw_only=True)
class AdamW(Optimizer):
    """Adam whose weight decay shrinks the weights directly and never enters the running averages."""

    weight_decay: float = attrs.field(default=0.01, validator=attrs.validators.ge(0.0))
    """Share of lr by which an update shrinks the weights (w ← w − lr · weight_decay · w); biases and norms are left
    out."""
    betas: tuple[float, float] = attrs.field(
        default=(0.9, 0.999),
        validator=attrs.validators.deep_iterable([attrs.validators.ge(0.0), attrs.validators.lt(1.0)]),
    )
    """Decay rates of the running averages of the gradient and of its square, each in [0, 1)."""
    eps: float = attrs.field(default=1e-8, validator=attrs.validators.gt(0.0))
    """Added to the root of the second average, after its bias correction, so that it is never 0."""
    amsgrad: bool = False
    """Divide by the largest second average so far instead of the current one (Reddi et al. 2018)."""
    fused: bool | None = None
    """Do the whole update in one kernel; it changes the last bits. None does where the device has one (CPU, CUDA)."""

    def build(self, groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:
        """``torch.optim.AdamW`` over the groups.

        :raises InputError: ``fused = true`` on a device that has no such kernel.
        """
        import torch

        devices = sorted({parameter.device.type for group in groups for parameter in group.parameters.values()})
        return torch.optim.AdamW(
            [group.options() for group in groups],
            lr=self.lr,
            betas=self.betas,
            eps=self.eps,
            amsgrad=self.amsgrad,
            fused=self._fused_on(devices),
        )

    def _fused_on(self, devices: Sequence[str]) -> bool:
        without = [device for device in devices if device not in _FUSED_DEVICES]
        if self.fused and without:
            raise InputError(f"optimizer.fused: there is no fused AdamW on {without[0]}; leave the key out")
        return not without if self.fused is None else self.fused


@hookimpl
def optimizer() -> dict[str, type[Optimizer]]:
    """Offer it as ``adamw``."""
    return {"adamw": AdamW}
