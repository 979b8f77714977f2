"""How many targets of each class are predicted as each class."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from rtx_core import InputError, Metric, MetricPart, hookimpl
from rtx_plugins.metrics.counting import row_weights

if TYPE_CHECKING:
    import torch

    from rtx_core import Outputs
    from rtx_core.components import Direction, TargetKind

_MOST_CLASSES = 1000
"""Beyond it the matrix is for nobody to read; of a vocabulary it would take gigabytes."""


class ConfusionMatrixPart(MetricPart):
    """Counts pairs of a target and a prediction."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self._classes = classes

    def update(self, predictions: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> None:
        """Count logits ``[N, K]`` and classes ``[N]``."""
        weights = row_weights(targets, weights)
        pairs = targets.clamp_min(0) * self._classes + predictions.argmax(-1)
        self.add(pairs=weights.new_zeros(self._classes**2).index_add(0, pairs, weights))

    def compute(self) -> dict[str, list[list[float]]]:
        """Row: the target's class, column: the predicted one, in the order of the labels."""
        size = self._classes
        if "pairs" not in self.sums:
            return {"confusion_matrix": [[0.0] * size for _ in range(size)]}
        return {"confusion_matrix": self.sums["pairs"].reshape(size, size).tolist()}


@attrs.frozen(kw_only=True)
class ConfusionMatrix(Metric):
    """How many targets of each class (rows) are predicted as each class (columns), in the order of the labels; logged
    as ``confusion_matrix``, which can't be the monitor.
    """

    target_kinds: ClassVar[tuple[TargetKind, ...]] = ("class",)

    def names(self) -> dict[str, Direction | None]:
        """``confusion_matrix``, which has no direction."""
        return {"confusion_matrix": None}

    def build(self, outputs: Outputs) -> ConfusionMatrixPart:
        """The part for these classes.

        :raises InputError: there are too many.
        """
        if outputs.size > _MOST_CLASSES:
            raise InputError(f"metrics.confusion_matrix: {outputs.size} classes; it takes at most {_MOST_CLASSES}")
        return ConfusionMatrixPart(outputs.size)


@hookimpl
def metric() -> dict[str, type[Metric]]:
    """Offer it as ``confusion_matrix``."""
    return {"confusion_matrix": ConfusionMatrix}
