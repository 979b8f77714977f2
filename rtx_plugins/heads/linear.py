"""One linear layer at each target's position: what most classifiers of tokens or sequences end in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Head, InputError, hookimpl

if TYPE_CHECKING:
    import torch


@attrs.frozen(kw_only=True)
class Linear(Head):
    """Dropout, then a linear layer from the hidden state at each target's position to the outputs."""

    dropout: float = attrs.field(default=0.1, validator=[attrs.validators.ge(0.0), attrs.validators.lt(1.0)])
    """Share of the features that is dropped in training."""
    initializer_range: float = attrs.field(default=0.02, validator=attrs.validators.ge(0.0))
    """Standard deviation of the first weights; the bias starts at 0."""

    def build(self, hidden_size: int, outputs: int) -> torch.nn.Module:
        """The module, H to K.

        :raises InputError: the task wants the features themselves.
        """
        if not outputs:
            raise InputError(
                'head.type: linear gives logits, but this task wants embeddings; leave [head] out or write "pooling"'
            )
        from rtx_plugins.heads.linear_part import LinearPart

        return LinearPart(hidden_size, outputs, dropout=self.dropout, initializer_range=self.initializer_range)


@hookimpl
def head() -> dict[str, type[Head]]:
    """Offer it as ``linear``."""
    return {"linear": Linear}
