"""What metrics share: which rows and entries count, sums that stay exact, and means over classes.

Torch is used through the methods of its tensors alone, so that a metric's module needs no import of it. N rows.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """In float64, in which counts of rows stay whole numbers up to 2⁵³, so that batches add exactly; MPS has none."""
    return tensor.float() if tensor.device.type == "mps" else tensor.double()


def row_weights(targets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """How much each of N rows counts: its weight, and 0 where the class is negative (ignored)."""
    return wide(weights).masked_fill(targets < 0, 0.0)


def entry_weights(targets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """How much each entry of targets ``[N, K]`` counts: its row's weight, and 0 where it is NaN (ignored)."""
    return wide(weights).unsqueeze(-1).expand(targets.shape).masked_fill(targets.isnan(), 0.0)


def class_counts(
    predictions: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor, classes: int
) -> dict[str, torch.Tensor]:
    """For each of K classes how many rows have it as target (``expected``), as the largest logit, and as both."""
    weights = row_weights(targets, weights)
    predicted, expected = predictions.argmax(-1), targets.clamp_min(0)
    nothing = weights.new_zeros(classes)
    # index_add and not bincount, which a GPU can't do deterministically.
    return {
        "right": nothing.index_add(0, expected, weights * (predicted == expected)),
        "predicted": nothing.index_add(0, predicted, weights),
        "expected": nothing.index_add(0, expected, weights),
    }


def ratio(numerator: torch.Tensor | float, denominator: torch.Tensor | float) -> float:
    """Their quotient as a number; NaN where nothing was counted."""
    return float(numerator) / float(denominator) if denominator else float("nan")


def averaged(figures: Iterable[float], shares: Iterable[float] | None = None) -> float:
    """The mean of the figures that there are, weighted by shares; one that is NaN, since nothing of it was counted,
    stays out. NaN where there is none.
    """
    figures = list(figures)
    shares = [1.0] * len(figures) if shares is None else list(shares)
    there = [pair for pair in zip(figures, shares, strict=True) if not math.isnan(pair[0])]
    return ratio(sum(figure * share for figure, share in there), sum(share for _, share in there))
