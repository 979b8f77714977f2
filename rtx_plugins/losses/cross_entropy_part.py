"""The computation behind ``cross_entropy``. N targets, K classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Sequence


class CrossEntropyPart(nn.Module):
    """Sums over targets: Σ w[y] · −log p[y], smoothed as ``torch.nn.functional.cross_entropy`` does.

    :param class_weights: K numbers, or None for all 1.
    """

    class_weights: torch.Tensor | None

    def __init__(self, class_weights: Sequence[float] | None, label_smoothing: float) -> None:
        super().__init__()
        self.label_smoothing = label_smoothing
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

    def of_logits(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The sum over logits ``[N, K]`` and targets ``[N]``, in float32 or wider; negative targets don't count."""
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return functional.cross_entropy(
            logits,
            targets.clamp_min(-1),
            weight=None if self.class_weights is None else self.class_weights.to(logits.dtype),
            ignore_index=-1,
            reduction="sum",
            label_smoothing=self.label_smoothing,
        )
