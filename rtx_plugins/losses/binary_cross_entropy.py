"""Cross-entropy of each of K labels alone: a text has any number of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from rtx_core import Loss, hookimpl
from rtx_plugins.losses.common import Factors, numbers_from_zero, positive_weights_of

if TYPE_CHECKING:
    from rtx_core import Outputs
    from rtx_core.components import TargetKind
    from rtx_plugins.losses.binary_cross_entropy_part import BinaryCrossEntropyPart


@attrs.frozen(kw_only=True)
class BinaryCrossEntropy(Loss):
    """−log of the probability of what each label is, the mean over labels and texts; NaN targets are ignored."""

    target_kinds: ClassVar[tuple[TargetKind, ...]] = ("labels",)

    label_smoothing: float = attrs.field(default=0.0, validator=[attrs.validators.ge(0.0), attrs.validators.lt(1.0)])
    """Share of each target that is replaced by 1/2, in [0, 1): of 0.1 the targets are 0.05 and 0.95."""
    positive_weights: Factors | None = attrs.field(default=None, validator=attrs.validators.optional(numbers_from_zero))
    """How much the loss where a label is there counts beside that where it isn't: by label name, where a label that is
    not named has 1, or one number for each label in their order. Rare labels are found more often with more than 1.
    ``"balanced"``: how many training records lack the label for each that has it. As in torch the mean is still over
    the number of entries. None: all 1."""

    def build(self, outputs: Outputs) -> BinaryCrossEntropyPart:
        """The part for these labels.

        :raises InputError: ``positive_weights`` doesn't fit the labels, or a label to balance never or always occurs.
        """
        from rtx_plugins.losses.binary_cross_entropy_part import BinaryCrossEntropyPart

        return BinaryCrossEntropyPart(positive_weights_of(self.positive_weights, outputs), self.label_smoothing)


@hookimpl
def loss() -> dict[str, type[Loss]]:
    """Offer it as ``binary_cross_entropy``."""
    return {"binary_cross_entropy": BinaryCrossEntropy}
