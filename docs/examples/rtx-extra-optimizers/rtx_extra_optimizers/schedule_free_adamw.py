"""Schedule-free AdamW (Defazio et al. 2024, arXiv:2405.15682, algorithm 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Optimizer, hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from rtx_core import ParameterGroup


@attrs.frozen(kw_only=True)
class ScheduleFreeAdamW(Optimizer):
    """AdamW that averages its weights instead of lowering its rate.

    Use it with ``[scheduler] type = "constant"`` and a warm-up: rtx's default schedule falls.
    """

    weight_decay: float = attrs.field(default=0.0, validator=attrs.validators.ge(0.0))
    """Share of lr by which an update shrinks the weights, taken of those at which the gradient was computed; biases and
    norms are left out."""
    beta1: float = attrs.field(default=0.9, validator=[attrs.validators.gt(0.0), attrs.validators.lt(1.0)])
    """Where gradients are computed, in (0, 1): at 0 at the newest weights, at 1 at their average."""
    beta2: float = attrs.field(default=0.999, validator=[attrs.validators.ge(0.0), attrs.validators.lt(1.0)])
    """Decay rate of the running average of the gradient's square, in [0, 1)."""
    eps: float = attrs.field(default=1e-8, validator=attrs.validators.gt(0.0))
    """Added to the root of that average, so that it is never 0."""

    def build(self, groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:
        """The optimizer over the groups."""
        from rtx_extra_optimizers.schedule_free_adamw_part import ScheduleFreeAdamWPart

        return ScheduleFreeAdamWPart(
            [group.options() for group in groups], beta1=self.beta1, beta2=self.beta2, eps=self.eps
        )


@hookimpl
def optimizer() -> dict[str, type[Optimizer]]:
    """Offer it as ``schedule_free_adamw``."""
    return {"schedule_free_adamw": ScheduleFreeAdamW}
