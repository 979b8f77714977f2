"""Correlation of predicted and true numbers over all rows of an evaluation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rtx_plugins.metrics.counting import averaged
from rtx_plugins.metrics.rows import RowsPart

if TYPE_CHECKING:
    from collections.abc import Callable


class CorrelationPart(RowsPart):
    """The correlation of each of K numbers, and their mean.

    Rows are kept, not sums of squares, which would lose most digits of numbers that are far from 0.

    :param correlation: of predictions, targets and weights, each ``[N]``.
    """

    def __init__(self, correlation: Callable[[np.ndarray, np.ndarray, np.ndarray], float], name: str) -> None:
        super().__init__()
        self._correlation = correlation
        self._name = name

    def compute(self) -> dict[str, float]:
        """NaN where there are not two different numbers on each side."""
        arrays = self.arrays()
        if arrays is None:
            return {self._name: math.nan}
        predictions, targets, weights = arrays
        return {self._name: averaged(self._of(*pair, weights) for pair in zip(predictions.T, targets.T, strict=True))}

    def _of(self, predictions: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> float:
        counted = (weights > 0) & ~np.isnan(targets)
        return self._correlation(predictions[counted], targets[counted], weights[counted])


def pearson(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> float:
    """Pearson's r of x and y ``[N]``; NaN where one is constant or not finite."""
    if not all(len(side) and np.isfinite(side).all() and side.min() < side.max() for side in (x, y)):
        return math.nan
    x, y = (_unit(side, weights) for side in (x, y))
    return min(1.0, max(-1.0, float(x @ y)))


def _unit(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Centred, times the root of its weight, of length 1."""
    centred = (values - np.average(values, weights=weights)) * np.sqrt(weights)
    unit: np.ndarray = centred / np.linalg.norm(centred)
    return unit


def spearman(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> float:
    """Spearman's ρ, Pearson's r of ranks; NaN where one side is constant or not finite."""
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return math.nan
    return pearson(_ranks(x, weights), _ranks(y, weights), weights)


def _ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weight below each value and half of that at it: the mean rank of equal values, but for a constant."""
    _, place = np.unique(values, return_inverse=True)
    at = np.bincount(place, weights=weights)
    ranks: np.ndarray = (np.cumsum(at) - at / 2.0)[place]
    return ranks
