"""Figures of a ranking by score, of two classes, of K classes each against the rest, and of K labels.

N rows. Ties count as in scikit-learn: rows of equal score pass a threshold together.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from rtx_plugins.metrics.counting import averaged
from rtx_plugins.metrics.rows import RowsPart

if TYPE_CHECKING:
    from collections.abc import Callable

    from rtx_plugins.metrics.f1 import Average

    Figure = Callable[[np.ndarray, np.ndarray], float]


class RankingPart(RowsPart):
    """A figure of each class or label, or an average of them.

    :param figure: of the weights of positive and of negative rows at or above each distinct score, from the highest.
    """

    def __init__(self, figure: Figure, size: int, average: Average, name: str) -> None:
        super().__init__()
        self._figure = figure
        self._size = size
        self._average = average
        self._name = name

    def compute(self) -> dict[str, Any]:
        """The average under its name, or the list of classes; NaN where a class has no positive or no negative row."""
        arrays = self.arrays()
        if arrays is None:
            return {self._name: [math.nan] * self._size if self._average == "none" else math.nan}
        scores, truth, weights = _columns(*arrays)
        if self._size == 2 and arrays[1].ndim == 1 and self._average != "none":  # noqa: PLR2004 - two classes
            # One question, asked once: how the second class stands out, as scikit-learn takes it.
            scores, truth, weights = scores[:, 1:], truth[:, 1:], weights[:, 1:]
        if self._average == "micro":
            return {self._name: self._of(scores.ravel(), truth.ravel(), weights.ravel())}
        figures = [self._of(*column) for column in zip(scores.T, truth.T, weights.T, strict=True)]
        if self._average == "none":
            return {self._name: figures}
        shares = (truth * weights).sum(0).tolist() if self._average == "weighted" else None
        return {self._name: averaged(figures, shares)}

    def _of(self, scores: np.ndarray, truth: np.ndarray, weights: np.ndarray) -> float:
        counted = weights > 0
        scores, truth, weights = scores[counted], truth[counted], weights[counted]
        if np.isnan(scores).any() or truth.all() or not truth.any():
            return math.nan
        order = np.argsort(-scores, kind="stable")
        last_of_each = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
        positive, negative = ((weights * side)[order].cumsum()[last_of_each] for side in (truth, ~truth))
        return self._figure(positive, negative)


def _columns(
    predictions: np.ndarray, targets: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, whether a row is positive, and weights, each ``[N, K]``; the weight of an ignored entry is 0."""
    if targets.ndim > 1:
        return predictions, targets > 0.5, weights[:, None] * ~np.isnan(targets)  # noqa: PLR2004 - between 0 and 1
    classes = predictions.shape[1]
    weights = np.repeat((weights * (targets >= 0))[:, None], classes, axis=1)
    return _class_scores(predictions), targets[:, None] == np.arange(classes), weights


def _class_scores(logits: np.ndarray) -> np.ndarray:
    """What ranks rows as the probability of each class does ``[N, K]``, without its rounding to 0 and 1."""
    if logits.shape[1] == 2:  # noqa: PLR2004 - of two classes the difference says it all, and equal ones stay equal
        margin = logits[:, 1] - logits[:, 0]
        return np.stack([-margin, margin], axis=1)
    shifted = logits - logits.max(1, keepdims=True)
    log_probabilities: np.ndarray = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return log_probabilities


def area_under_roc(positive: np.ndarray, negative: np.ndarray) -> float:
    """The share of pairs of a positive and a negative row of which the positive has the higher score; ties are half.

    :param positive: weight of the positive rows at or above each distinct score, from the highest.
    :param negative: the same of negative rows.
    """
    heights = positive + np.append(0.0, positive[:-1])
    return float((np.diff(negative, prepend=0.0) * heights).sum() / 2.0 / (positive[-1] * negative[-1]))


def average_precision(positive: np.ndarray, negative: np.ndarray) -> float:
    """Σ (Rᵢ − Rᵢ₋₁) Pᵢ over the distinct scores: precision P, weighted by how much recall R grows, not interpolated.

    :param positive: weight of the positive rows at or above each distinct score, from the highest.
    :param negative: the same of negative rows.
    """
    precision = positive / (positive + negative)
    return float((np.diff(positive, prepend=0.0) * precision).sum() / positive[-1])
