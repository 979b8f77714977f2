"""Matthews' correlation coefficient of classes (Matthews 1975; for K classes Gorodkin 2004)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import attrs

from rtx_core import Metric, MetricPart, hookimpl
from rtx_plugins.metrics.counting import class_counts

if TYPE_CHECKING:
    import torch

    from rtx_core import Outputs
    from rtx_core.components import Direction, TargetKind


class MccPart(MetricPart):
    """Counts for each of K classes its targets, its predictions and where both agree."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self._classes = classes

    def update(self, predictions: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> None:
        """Count logits ``[N, K]`` and classes ``[N]``."""
        self.add(**class_counts(predictions, targets, weights, self._classes))

    def compute(self) -> dict[str, float]:
        """(c·s − Σ pₖtₖ) / √((s² − Σ pₖ²)(s² − Σ tₖ²)): c of s rows right, pₖ predictions and tₖ targets of class k.

        0 where all targets or all predictions are of one class, NaN where nothing was counted.
        """
        if not self.sums or not self.sums["expected"].any():
            return {"mcc": math.nan}
        right, predicted, expected = (self.sums[name] for name in ("right", "predicted", "expected"))
        rows = expected.sum()
        covariance = right.sum() * rows - (predicted * expected).sum()
        variances = rows**2 - (predicted**2).sum(), rows**2 - (expected**2).sum()
        spread = math.sqrt(float(variances[0])) * math.sqrt(float(variances[1]))
        return {"mcc": float(covariance) / spread if spread else 0.0}


@attrs.frozen(kw_only=True)
class Mcc(Metric):
    """Matthews' correlation of targets and predictions, from −1 to 1, 0 for guessing whatever the shares of the
    classes; logged as ``mcc``.
    """

    target_kinds: ClassVar[tuple[TargetKind, ...]] = ("class",)

    def names(self) -> dict[str, Direction | None]:
        """``mcc``, larger is better."""
        return {"mcc": "max"}

    def build(self, outputs: Outputs) -> MccPart:
        """The part for these classes."""
        return MccPart(outputs.size)


@hookimpl
def metric() -> dict[str, type[Metric]]:
    """Offer it as ``mcc``."""
    return {"mcc": Mcc}
