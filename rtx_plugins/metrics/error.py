"""The mean of a function of the distance between predicted and true numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtx_core import MetricPart
from rtx_plugins.metrics.counting import averaged, entry_weights, ratio, wide

if TYPE_CHECKING:
    import torch


class ErrorPart(MetricPart):
    """Sums |x − y|ᵖ for each of K numbers; the figure is the mean over the numbers of their means.

    :param power: p.
    """

    def __init__(self, power: int, name: str) -> None:
        super().__init__()
        self._power = power
        self._name = name

    def update(self, predictions: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> None:
        """Count predictions ``[N, K]`` and targets ``[N, K]``."""
        weights = entry_weights(targets, weights)
        errors = (wide(predictions) - wide(targets)).abs() ** self._power
        # An ignored entry has an error of NaN, which times 0 would stay.
        self.add(errors=(errors.masked_fill(targets.isnan(), 0.0) * weights).sum(0), entries=weights.sum(0))

    def compute(self) -> dict[str, float]:
        """The mean; NaN where nothing was counted."""
        if not self.sums:
            return {self._name: float("nan")}
        means = map(ratio, self.sums["errors"].tolist(), self.sums["entries"].tolist())
        return {self._name: averaged(means)}
