"""What the metrics of classification share: which rows count, and sums that stay exact.

Torch is used through the methods of its tensors alone, so that a metric's module needs no import of it. N rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def row_weights(targets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """How much each of N rows counts: its weight, and 0 where the target is negative (ignored).

    In float64, in which counts of rows stay whole numbers up to 2⁵³, so that batches add exactly; MPS has none.
    """
    wide = weights.float() if weights.device.type == "mps" else weights.double()
    return wide.masked_fill(targets < 0, 0.0)


def ratio(numerator: torch.Tensor | float, denominator: torch.Tensor | float) -> float:
    """Their quotient as a number; NaN where nothing was counted."""
    return float(numerator) / float(denominator) if denominator else float("nan")
