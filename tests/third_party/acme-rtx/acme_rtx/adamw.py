"""AdamW in place of rtx's own: plain torch operations, one tensor after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Optimizer, hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from rtx_core import ParameterGroup


@attrs.frozen(kw_only=True)
class AcmeAdamW(Optimizer):
    """Adam with decoupled weight decay, never fused: slower, and the same bits on every device."""

    weight_decay: float = attrs.field(default=0.01, validator=attrs.validators.ge(0.0))
    """Share of lr by which an update shrinks the weights; biases and norms are left out."""
    betas: tuple[float, float] = attrs.field(
        default=(0.9, 0.999),
        validator=attrs.validators.deep_iterable([attrs.validators.ge(0.0), attrs.validators.lt(1.0)]),
    )
    """Decay rates of the running averages of the gradient and of its square, each in [0, 1)."""
    eps: float = attrs.field(default=1e-8, validator=attrs.validators.gt(0.0))
    """Added to the root of the second average."""

    def build(self, groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:
        """The optimizer over the groups."""
        from acme_rtx.adamw_part import PlainAdamW

        return PlainAdamW([group.options() for group in groups], lr=self.lr, betas=self.betas, eps=self.eps)


@hookimpl
def optimizer() -> dict[str, type[Optimizer]]:
    """Offer it under the name of rtx's own, which it replaces."""
    return {"adamw": AcmeAdamW}
