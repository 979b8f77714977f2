"""F1, the harmonic mean of precision and recall: 2·tp / (2·tp + fp + fn) of each class, and its averages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import attrs

from rtx_core import Metric, MetricPart, hookimpl
from rtx_plugins.metrics.counting import averaged, class_counts, entry_weights, ratio

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from rtx_core import Outputs
    from rtx_core.components import Direction, TargetKind

Average = Literal["macro", "micro", "weighted", "none"]


class F1Part(MetricPart):
    """Counts for each of K classes or labels its targets, its predictions and where both agree."""

    def __init__(self, classes: int, average: Average, name: str) -> None:
        super().__init__()
        self._classes = classes
        self._average = average
        self._name = name

    def update(self, predictions: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> None:
        """Count logits ``[N, K]`` and classes ``[N]``, or labels ``[N, K]``, which are predicted above 0."""
        if targets.is_floating_point():
            self.add(**_label_counts(predictions, targets, weights))
        else:
            self.add(**class_counts(predictions, targets, weights, self._classes))

    def compute(self) -> Mapping[str, Any]:
        """The average under its name, or the list of classes; NaN where nothing was counted."""
        nothing = [0.0] * self._classes
        right, predicted, expected = (
            self.sums[name].tolist() if name in self.sums else nothing for name in ("right", "predicted", "expected")
        )
        if self._average == "micro":
            return {self._name: _f1(sum(right), sum(predicted), sum(expected))}
        scores = [_f1(*counts) for counts in zip(right, predicted, expected, strict=True)]
        if self._average == "none":
            return {self._name: scores}
        return {self._name: averaged(scores, expected if self._average == "weighted" else None)}


def _label_counts(predictions: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> dict[str, torch.Tensor]:
    weights = entry_weights(targets, weights)
    predicted, expected = weights * (predictions > 0.0), weights * (targets > 0.5)  # noqa: PLR2004 - between 0 and 1
    return {
        "right": (predicted * (targets > 0.5)).sum(0),  # noqa: PLR2004 - the same
        "predicted": predicted.sum(0),
        "expected": expected.sum(0),
    }


def _f1(right: float, predicted: float, expected: float) -> float:
    return ratio(2.0 * right, predicted + expected)


@attrs.frozen(kw_only=True)
class F1(Metric):
    """The harmonic mean of precision and recall, of classes or of labels; logged as ``f1_macro``, ``f1_micro``,
    ``f1_weighted`` or ``f1_per_class``.
    """

    target_kinds: ClassVar[tuple[TargetKind, ...]] = ("class", "labels")

    average: Average = "macro"
    """``macro``: the mean over the classes that occur in targets or predictions; ``micro``: over all rows at once;
    ``weighted``: the mean weighted by how many targets a class has; ``none``: a list in the order of the labels, which
    can't be the monitor."""

    def names(self) -> dict[str, Direction | None]:
        """``f1_`` and the average, larger is better; no direction for the list."""
        return {self._name: None if self.average == "none" else "max"}

    def build(self, outputs: Outputs) -> F1Part:
        """The part for these classes."""
        return F1Part(outputs.size, self.average, self._name)

    @property
    def _name(self) -> str:
        return "f1_per_class" if self.average == "none" else f"f1_{self.average}"


@hookimpl
def metric() -> dict[str, type[Metric]]:
    """Offer it as ``f1``."""
    return {"f1": F1}
