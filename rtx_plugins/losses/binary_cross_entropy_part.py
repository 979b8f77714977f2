"""The computation behind ``binary_cross_entropy``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from rtx_plugins.losses.elementwise_part import ElementwisePart

if TYPE_CHECKING:
    from collections.abc import Sequence


class BinaryCrossEntropyPart(ElementwisePart):
    """−w · y · log σ(x) − (1 − y) · log(1 − σ(x)), as ``torch.nn.BCEWithLogitsLoss`` has it.

    :param positive_weights: w, K numbers, or None for all 1.
    """

    positive_weights: torch.Tensor | None

    def __init__(self, positive_weights: Sequence[float] | None, label_smoothing: float) -> None:
        super().__init__()
        self.label_smoothing = label_smoothing
        weights = None if positive_weights is None else torch.tensor(positive_weights, dtype=torch.float32)
        # Settings, not state: no checkpoint holds them.
        self.register_buffer("positive_weights", weights, persistent=False)

    def costs(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Of each entry ``[N, K]``."""
        smoothed = targets * (1.0 - self.label_smoothing) + self.label_smoothing / 2.0
        weights = None if self.positive_weights is None else self.positive_weights.to(logits.dtype)
        return functional.binary_cross_entropy_with_logits(logits, smoothed, pos_weight=weights, reduction="none")
