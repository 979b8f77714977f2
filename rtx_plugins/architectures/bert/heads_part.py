"""The module behind BERT's own head. T tokens, N targets, H hidden size, K outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from rtx_plugins.heads.linear_part import LinearPart

if TYPE_CHECKING:
    from rtx_core import Batch
    from rtx_plugins.architectures.bert.heads import PooledClassifier


class PooledClassifierPart(LinearPart):
    """A linear head over tanh(W h + b) of the hidden states at the targets' positions."""

    def __init__(self, hidden_size: int, outputs: int, settings: PooledClassifier) -> None:
        super().__init__(hidden_size, outputs, dropout=settings.dropout, initializer_range=settings.initializer_range)
        self.pooler = Pooler(hidden_size)

    def features(self, hidden_states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """``[N, H]`` of hidden states ``[T, H]``."""
        pooled = self.pooler(hidden_states.index_select(0, batch.target_positions))
        return cast("torch.Tensor", self.dropout(pooled))


class Pooler(nn.Module):
    """tanh of a dense layer, trained by next-sentence prediction where the weights are BERT's."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """``[N, H]`` to ``[N, H]``."""
        return torch.tanh(self.dense(hidden_states))
