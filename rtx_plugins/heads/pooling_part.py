"""The module behind the head ``pooling``. B sequences, T tokens, N targets, H hidden size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from rtx_core import Batch
    from rtx_plugins.heads.pooling import Mode


class PoolingPart(nn.Module):
    """One vector for each sequence, in float32 or wider. It has no parameters."""

    def __init__(self, mode: Mode, *, normalize: bool) -> None:
        super().__init__()
        self.mode = mode
        self.normalize = normalize

    def features(self, hidden_states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """``[N, H]`` of hidden states ``[T, H]``: for each target that of the sequence that its position stands in."""
        # A sum of hundreds of half-precision states would lose most of their digits.
        states = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))
        sequences = batch.sequence_ids[batch.target_positions]  # [N]
        if self.mode == "cls":
            pooled = states[batch.cu_seqlens[:-1][sequences]]
        elif self.mode == "mean":
            pooled = sequence_means(states, batch)[sequences]
        else:
            pooled = _largest(states, batch)[sequences]
        return functional.normalize(pooled, dim=-1) if self.normalize else pooled

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """The embeddings are what is predicted."""
        return features


def sequence_means(states: torch.Tensor, batch: Batch) -> torch.Tensor:
    """The mean over each sequence's tokens ``[B, H]``, of hidden states ``[T, H]``."""
    sums = states.new_zeros(len(batch.lengths), states.shape[-1]).index_add(0, batch.sequence_ids, states)
    return sums / batch.cu_seqlens.diff().unsqueeze(-1)


def _largest(states: torch.Tensor, batch: Batch) -> torch.Tensor:
    """The largest of each number over each sequence's tokens ``[B, H]``."""
    places = batch.sequence_ids.unsqueeze(-1).expand_as(states)
    nothing = states.new_zeros(len(batch.lengths), states.shape[-1])
    return nothing.scatter_reduce(0, places, states, "amax", include_self=False)
