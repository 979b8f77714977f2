"""Attention pooling over packed sequences. B sequences, T tokens, N targets, H hidden size, K outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from rtx_core import Batch


class AttentionPoolingPart(nn.Module):
    """A query ``[H]``, and a linear layer from the pooled states to the outputs."""

    def __init__(self, hidden_size: int, outputs: int, initializer_range: float) -> None:
        super().__init__()
        self.initializer_range = initializer_range
        self.query = nn.Parameter(torch.zeros(hidden_size))
        self.classifier = nn.Linear(hidden_size, outputs)

    def initialize(self, name: str, tensor: torch.Tensor, generator: torch.Generator) -> None:
        """Fill one parameter, from the seed and its name alone."""
        if name == "classifier.weight":
            tensor.normal_(std=self.initializer_range, generator=generator)
        else:
            tensor.zero_()

    def features(self, hidden_states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The pooled states ``[N, H]`` of each target's sequence; N is B where each sequence has one target."""
        ids, sequences = batch.sequence_ids, len(batch.lengths)
        states = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))  # [T, H]
        scores = (states * self.query).sum(-1)  # [T]; a matrix product would be bfloat16 under autocast
        # The largest score of a sequence is taken off before exp, so that none overflows; it cancels in the quotient.
        largest = scores.new_zeros(sequences).scatter_reduce(0, ids, scores.detach(), "amax", include_self=False)  # [B]
        weights = (scores - largest[ids]).exp()  # [T]
        sums = weights.new_zeros(sequences).index_add(0, ids, weights)  # [B]
        weighted = (weights / sums[ids]).unsqueeze(-1) * states  # [T, H]
        pooled = states.new_zeros(sequences, states.shape[-1]).index_add(0, ids, weighted)  # [B, H]
        return pooled[ids[batch.target_positions]]

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """Logits ``[N, K]``."""
        logits: torch.Tensor = self.classifier(features)
        return logits
