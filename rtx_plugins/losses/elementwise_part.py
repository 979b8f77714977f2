"""What losses over N rows of K numbers share: each entry counts once, NaN entries don't count."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


class ElementwisePart(nn.Module):
    """A sum over the entries of targets float32 ``[N, K]``; a subclass says what one entry costs."""

    def costs(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """What each entry costs, ``[N, K]``."""
        raise NotImplementedError

    def weight(self, targets: torch.Tensor) -> float:
        """How many entries (on the host) are not NaN: what torch's mean reduction divides by."""
        return float(np.count_nonzero(~np.isnan(targets.numpy())))

    def of_logits(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The sum over logits ``[N, K]`` and targets ``[N, K]``, in float32 or wider."""
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        ignored = targets.isnan()
        # Filled before the loss and not only after it: the gradient of a NaN that is left out is NaN still.
        costs = self.costs(logits, targets.masked_fill(ignored, 0.0).to(logits.dtype))
        return costs.masked_fill(ignored, 0.0).sum()
