"""The head that ``transformers`` has for BERT and for no other family here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Head

if TYPE_CHECKING:
    import torch


@attrs.frozen(kw_only=True)
class PooledClassifier(Head):
    """``BertForSequenceClassification``: the pooler at each target's position, dropout, a linear layer."""

    dropout: float
    """Share of the pooled features that is dropped in training."""
    initializer_range: float
    """Standard deviation of the first weights; biases start at 0."""

    def build(self, hidden_size: int, outputs: int) -> torch.nn.Module:
        """The module, H to K."""
        from rtx_plugins.architectures.bert.heads_part import PooledClassifierPart

        return PooledClassifierPart(hidden_size, outputs, self)
