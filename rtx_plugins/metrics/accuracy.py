"""The share of targets whose class has the largest logit."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from rtx_core import Metric, MetricPart, hookimpl
from rtx_plugins.metrics.counting import ratio, row_weights

if TYPE_CHECKING:
    import torch

    from rtx_core import Outputs
    from rtx_core.components import Direction, TargetKind


class AccuracyPart(MetricPart):
    """Counts what is right and what there is."""

    def update(self, predictions: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> None:
        """Count logits ``[N, K]`` and classes ``[N]``."""
        weights = row_weights(targets, weights)
        right = predictions.argmax(-1) == targets
        self.add(right=(weights * right).sum(), rows=weights.sum())

    def compute(self) -> dict[str, float]:
        """The share; NaN where nothing was counted."""
        return {"accuracy": ratio(self.sums.get("right", 0.0), self.sums.get("rows", 0.0))}


@attrs.frozen(kw_only=True)
class Accuracy(Metric):
    """The share of targets whose class has the largest logit; logged as ``accuracy``."""

    target_kinds: ClassVar[tuple[TargetKind, ...]] = ("class",)

    def names(self) -> dict[str, Direction | None]:
        """``accuracy``, larger is better."""
        return {"accuracy": "max"}

    def build(self, outputs: Outputs) -> AccuracyPart:  # noqa: ARG002 - a share needs no names of classes
        """The part, for any number of classes."""
        return AccuracyPart()


@hookimpl
def metric() -> dict[str, type[Metric]]:
    """Offer it as ``accuracy``."""
    return {"accuracy": Accuracy}
