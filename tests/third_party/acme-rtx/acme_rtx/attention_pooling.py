"""A head that weighs the tokens of a sequence by a learned query (Lin et al. 2017, arXiv:1703.03130, with one hop)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Head, hookimpl

if TYPE_CHECKING:
    import torch


@attrs.frozen(kw_only=True)
class AttentionPooling(Head):
    """Softmax-weighted mean of each sequence's hidden states, then a linear layer."""

    initializer_range: float = attrs.field(default=0.02, validator=attrs.validators.ge(0.0))
    """Standard deviation of the linear layer's first weights. The query starts at 0: a plain mean."""

    def build(self, hidden_size: int, outputs: int) -> torch.nn.Module:
        """The module, H to K."""
        from acme_rtx.attention_pooling_part import AttentionPoolingPart

        return AttentionPoolingPart(hidden_size, outputs, self.initializer_range)


@hookimpl
def head() -> dict[str, type[Head]]:
    """Offer it as ``attention_pooling``."""
    return {"attention_pooling": AttentionPooling}
