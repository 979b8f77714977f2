"""Cross-entropy of logits and classes, with label smoothing (Szegedy et al. 2016) and class weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from rtx_core import InputError, Loss, hookimpl

if TYPE_CHECKING:
    from rtx_core import Outputs
    from rtx_plugins.losses.cross_entropy_part import CrossEntropyPart


def _weights_are_valid(_component: object, _field: object, value: Mapping[str, float] | tuple[float, ...]) -> None:
    named = value if isinstance(value, Mapping) else dict(enumerate(value))
    for name, weight in named.items():
        if not (math.isfinite(weight) and weight >= 0.0):
            raise ValueError(f"the weight of {name!r} must be a number ≥ 0, got {weight}")


@attrs.frozen(kw_only=True)
class CrossEntropy(Loss):
    """−log of the probability that the model gives to the right class; negative targets are ignored."""

    label_smoothing: float = attrs.field(default=0.0, validator=[attrs.validators.ge(0.0), attrs.validators.lt(1.0)])
    """Share of each target that is spread evenly over all classes, in [0, 1); ignored targets stay left out."""
    class_weights: Mapping[str, float] | tuple[float, ...] | None = attrs.field(
        default=None, validator=attrs.validators.optional(_weights_are_valid)
    )
    """How much a target of each class counts: by label name, where a label that is not named counts 1, or one number
    for each class in the order of the labels. The loss is divided by the sum of what its targets count. None: all
    count 1."""

    def build(self, outputs: Outputs) -> CrossEntropyPart:
        """The part for these classes.

        :raises InputError: ``class_weights`` doesn't fit the labels.
        """
        from rtx_plugins.losses.cross_entropy_part import CrossEntropyPart

        return CrossEntropyPart(self._weights_of(outputs), self.label_smoothing)

    def _weights_of(self, outputs: Outputs) -> tuple[float, ...] | None:
        weights = self.class_weights
        if isinstance(weights, Mapping):
            labels = outputs.labels or ()
            unknown = [name for name in weights if name not in labels]
            if unknown:
                known = ", ".join(labels) if labels else "none, so give one number for each class"
                raise InputError(f'loss.class_weights: no label "{unknown[0]}"; the labels are {known}')
            weights = tuple(weights.get(label, 1.0) for label in labels)
        if weights is not None and len(weights) != outputs.size:
            raise InputError(
                f"loss.class_weights: {len(weights)} weights for {outputs.size} classes; give one for each"
            )
        return weights


@hookimpl
def loss() -> dict[str, type[Loss]]:
    """Offer it as ``cross_entropy``."""
    return {"cross_entropy": CrossEntropy}
