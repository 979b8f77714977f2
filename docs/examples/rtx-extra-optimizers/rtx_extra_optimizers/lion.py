"""Lion, evolved sign momentum (Chen et al. 2023, arXiv:2302.06675)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Optimizer, hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from rtx_core import ParameterGroup


@attrs.frozen(kw_only=True)
class Lion(Optimizer):
    """Moves every weight by the rate, up or down: by the sign of a running average of gradients."""

    weight_decay: float = attrs.field(default=0.0, validator=attrs.validators.ge(0.0))
    """Share of lr by which an update shrinks the weights (w ← w − lr · weight_decay · w); biases and norms are left
    out. With a rate of a third to a tenth of AdamW's, three to ten times its decay does the same."""
    betas: tuple[float, float] = attrs.field(
        default=(0.9, 0.99),
        validator=attrs.validators.deep_iterable([attrs.validators.ge(0.0), attrs.validators.lt(1.0)]),
    )
    """How much of the running average counts in an update, and how much of it stays, each in [0, 1)."""

    def build(self, groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:
        """The optimizer over the groups."""
        from rtx_extra_optimizers.lion_part import LionPart

        return LionPart([group.options() for group in groups], betas=self.betas)


@hookimpl
def optimizer() -> dict[str, type[Optimizer]]:
    """Offer it as ``lion``."""
    return {"lion": Lion}
