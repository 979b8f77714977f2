"""Cross-entropy of logits and classes, with label smoothing (Szegedy et al. 2016) and class weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import attrs

from rtx_core import Loss, hookimpl
from rtx_plugins.losses.common import factors_of, numbers_from_zero

if TYPE_CHECKING:
    from rtx_core import Outputs
    from rtx_core.components import TargetKind
    from rtx_plugins.losses.cross_entropy_part import CrossEntropyPart


@attrs.frozen(kw_only=True)
class CrossEntropy(Loss):
    """−log of the probability that the model gives to the right class; negative targets are ignored."""

    target_kinds: ClassVar[tuple[TargetKind, ...]] = ("class",)

    label_smoothing: float = attrs.field(default=0.0, validator=[attrs.validators.ge(0.0), attrs.validators.lt(1.0)])
    """Share of each target that is spread evenly over all classes, in [0, 1); ignored targets stay left out."""
    class_weights: Mapping[str, float] | tuple[float, ...] | None = attrs.field(
        default=None, validator=attrs.validators.optional(numbers_from_zero)
    )
    """How much a target of each class counts: by label name, where a label that is not named counts 1, or one number
    for each class in the order of the labels. The loss is divided by the sum of what its targets count. None: all
    count 1."""

    def build(self, outputs: Outputs) -> CrossEntropyPart:
        """The part for these classes.

        :raises InputError: ``class_weights`` doesn't fit the labels.
        """
        from rtx_plugins.losses.cross_entropy_part import CrossEntropyPart

        return CrossEntropyPart(factors_of(self.class_weights, outputs, "loss.class_weights"), self.label_smoothing)


@hookimpl
def loss() -> dict[str, type[Loss]]:
    """Offer it as ``cross_entropy``."""
    return {"cross_entropy": CrossEntropy}
