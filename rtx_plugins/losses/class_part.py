"""What losses over classes share: a target counts as much as its class's weight, and ignored ones don't count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Sequence


class ClassPart(nn.Module):
    """A sum over targets int64 ``[N]``, of which negative ones don't count; a subclass says what one costs.

    :param class_weights: K numbers, or None for all 1.
    """

    class_weights: torch.Tensor | None

    def __init__(self, class_weights: Sequence[float] | None) -> None:
        super().__init__()
        # Two copies: weight() runs on the host before the forward pass, and the buffer moves to the device. They are
        # settings, not state: not persistent, so that no checkpoint holds them.
        self._host_weights = None if class_weights is None else np.array(class_weights, dtype=np.float64)
        device_weights = None if class_weights is None else torch.tensor(class_weights, dtype=torch.float32)
        self.register_buffer("class_weights", device_weights, persistent=False)

    def weight(self, targets: torch.Tensor) -> float:
        """Σ w[y] over the targets ``[N]`` (on the host) that are not ignored; their number without class weights."""
        counted = targets.numpy() >= 0
        if self._host_weights is None:
            return float(np.count_nonzero(counted))
        return float(self._host_weights[targets.numpy()[counted]].sum())

    def shares(self, targets: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """How much each target counts, ``[N]``: w[y], and 0 where it is ignored."""
        if self.class_weights is None:
            return (targets >= 0).to(dtype)
        return self.class_weights.to(dtype)[targets.clamp_min(0)].masked_fill(targets < 0, 0.0)
