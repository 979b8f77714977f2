"""The computation behind ``span_cross_entropy``. N rows of targets, of which each sequence's tokens stand in order."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from rtx_plugins.tasks.span_rows import PLACE, START


class SpanCrossEntropyPart(nn.Module):
    """Sums over sequences: (−log p[start] − log q[end]) / 2, each softmax over the sequence's tokens."""

    def weight(self, targets: torch.Tensor) -> float:
        """The sequences among the rows ``[N, 5]`` (on the host) that have a start."""
        rows = targets.numpy()
        return float(np.count_nonzero((rows[:, PLACE] >= 0) & (rows[:, START] == 1)))

    def of_logits(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The sum over logits ``[N, 2]`` and targets ``[N, 5]``, in float32 or wider.

        Rows stay where they are and masks choose among them: to pick rows would wait for the device.
        """
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        is_token = (targets[:, PLACE] >= 0).unsqueeze(-1)  # [N, 1]
        sequence = ((targets[:, PLACE] == 0).cumsum(0) - 1).clamp_min(0)  # [N]
        index = sequence.unsqueeze(-1).expand_as(logits)
        largest = torch.full_like(logits, -torch.inf).scatter_reduce(
            0, index, logits.detach().masked_fill(~is_token, -torch.inf), "amax"
        )
        shifted = (logits - largest.gather(0, index)).masked_fill(~is_token, -torch.inf)
        sums = torch.zeros_like(logits).index_add(0, sequence, shifted.exp())
        right = (targets[:, START : START + 2] == 1) & is_token  # [N, 2]
        # Where a row is not right neither its infinity nor the gradient of one may pass: so both are replaced before.
        log_sums = sums.gather(0, index).masked_fill(~right, 1.0).log()
        return (log_sums - shifted.masked_fill(~right, 0.0)).sum() / 2
