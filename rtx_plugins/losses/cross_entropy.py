"""Cross-entropy of logits and classes, with label smoothing (Szegedy et al. 2016, arXiv:1512.00567), class weights and
z-loss (Chowdhery et al. 2022, arXiv:2204.02311, section 5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from rtx_core import Loss, hookimpl
from rtx_plugins.losses.common import Factors, class_weights_of, numbers_from_zero

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
    class_weights: Factors | None = attrs.field(default=None, validator=attrs.validators.optional(numbers_from_zero))
    """How much a target of each class counts: by label name, where a label that is not named counts 1, or one number
    for each class in the order of the labels. ``"balanced"``: n / (K · count) of n targets and K classes in the
    training data, so that a rare class counts as much as a frequent one. The loss is divided by the sum of what its
    targets count. None: all count 1."""
    z_loss: float = attrs.field(default=0.0, validator=attrs.validators.ge(0.0))
    """Factor of log² Z, which is added for each target, as much as the target counts. Z is what its softmax divides
    by: near 1 logits don't drift, which keeps long training in 16 bits stable. PaLM has 1e-4."""
    chunk_size: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(1)))
    """Targets whose logits exist at once, in training: with a large vocabulary logits take more memory than all else.
    They are computed twice. The same loss and gradients within rounding. None: all at once."""

    def build(self, outputs: Outputs) -> CrossEntropyPart:
        """The part for these classes.

        :raises InputError: ``class_weights`` doesn't fit the labels, or a label to balance never occurs.
        """
        from rtx_plugins.losses.cross_entropy_part import ChunkedCrossEntropyPart, CrossEntropyPart

        weights = class_weights_of(self.class_weights, outputs)
        if self.chunk_size is None:
            return CrossEntropyPart(weights, self.label_smoothing, self.z_loss)
        return ChunkedCrossEntropyPart(weights, self.label_smoothing, self.z_loss, self.chunk_size)


@hookimpl
def loss() -> dict[str, type[Loss]]:
    """Offer it as ``cross_entropy``."""
    return {"cross_entropy": CrossEntropy}
