"""The module behind the head ``linear``. T tokens, N targets, H hidden size, K outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from torch import nn

from rtx_plugins.architectures.common.initialization import initialize_normal

if TYPE_CHECKING:
    import torch

    from rtx_core import Batch


class LinearPart(nn.Module):
    """Logits of the hidden states at the targets' positions."""

    def __init__(self, hidden_size: int, outputs: int, *, dropout: float, initializer_range: float) -> None:
        super().__init__()
        self.initializer_range = initializer_range
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(hidden_size, outputs)

    def features(self, hidden_states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """``[N, H]`` of hidden states ``[T, H]``."""
        # Dropout here and not in project, which a loss may call piece by piece and again in its backward pass.
        return cast("torch.Tensor", self.dropout(hidden_states.index_select(0, batch.target_positions)))

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """Logits ``[N, K]``."""
        return cast("torch.Tensor", self.classifier(features))

    def initialize(self, name: str, tensor: torch.Tensor, generator: torch.Generator) -> None:
        """Fill one parameter."""
        initialize_normal(name, tensor, generator, std=self.initializer_range)
