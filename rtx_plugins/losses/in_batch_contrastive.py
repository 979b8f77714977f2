"""Telling a text's positive from all other texts of the step (InfoNCE: van den Oord et al. 2018, arXiv:1807.03748)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from rtx_core import Loss, hookimpl

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rtx_core import Outputs
    from rtx_core.components import TargetKind
    from rtx_plugins.losses.in_batch_contrastive_part import InBatchContrastivePart


def _above_zero(_component: object, _field: object, value: tuple[float, ...] | None) -> None:
    """Validator of a field of factors.

    :raises ValueError: one would take its loss away, or turn it round.
    """
    for weight in value or ():
        if weight <= 0.0:
            raise ValueError(f"each weight must be > 0, got {weight}")


@attrs.frozen(kw_only=True)
class InBatchContrastive(Loss):
    """−log softmax of an anchor's cosine with its own positive, among the positives and negatives of the whole step.

    An anchor's negatives are the positives of all other anchors, and every negative that the data name, for whichever
    anchor. The loss is the mean over the anchors.
    """

    whole_step: ClassVar[bool] = True
    target_kinds: ClassVar[tuple[TargetKind, ...]] = ("embedding",)

    temperature: float = attrs.field(default=0.05, validator=attrs.validators.gt(0.0))
    """What cosines are divided by: the smaller, the more the nearest negatives count. It is 1 over the ``scale`` of
    sentence-transformers."""
    symmetric: bool = False
    """Whether each positive is also to find its anchor among the anchors of the step. The loss is then the mean of both
    directions."""
    sizes: tuple[int, ...] = attrs.field(default=(), validator=attrs.validators.deep_iterable(attrs.validators.ge(1)))
    """Matryoshka (Kusupati et al. 2022, arXiv:2205.13147): the loss is the sum of those of the embeddings' first so
    many numbers, so that an embedding can be cut to any of these sizes later. Empty: all numbers, once."""
    size_weights: tuple[float, ...] | None = attrs.field(default=None, validator=_above_zero)
    """What the loss of each of ``sizes`` is multiplied with, in their order; None: 1."""

    def check(self) -> Iterable[tuple[str, str]]:
        """Each size once, and a weight for each."""
        if len(set(self.sizes)) < len(self.sizes):
            yield "sizes", "a size occurs more than once; to let it count more, write size_weights"
        if self.size_weights is not None and len(self.size_weights) != len(self.sizes):
            yield "size_weights", f"{len(self.size_weights)} weights for {len(self.sizes)} sizes; give one for each"

    def build(self, outputs: Outputs) -> InBatchContrastivePart:  # noqa: ARG002 - embeddings have no outputs
        """The part."""
        from rtx_plugins.losses.in_batch_contrastive_part import InBatchContrastivePart

        weights = self.size_weights or (1.0,) * len(self.sizes)
        return InBatchContrastivePart(
            self.temperature, dict(zip(self.sizes, weights, strict=True)), symmetric=self.symmetric
        )


@hookimpl
def loss() -> dict[str, type[Loss]]:
    """Offer it as ``in_batch_contrastive``."""
    return {"in_batch_contrastive": InBatchContrastive}
