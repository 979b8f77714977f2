"""Cross-entropy of where a span starts and of where it ends (Devlin et al. 2019, arXiv:1810.04805, section 4.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from rtx_core import InputError, Loss, hookimpl

if TYPE_CHECKING:
    from rtx_core import Outputs
    from rtx_core.components import TargetKind
    from rtx_plugins.losses.span_cross_entropy_part import SpanCrossEntropyPart

_START_AND_END = 2


@attrs.frozen(kw_only=True)
class SpanCrossEntropy(Loss):
    """−log of the probability of the right start among all tokens of a sequence, and of the right end; their mean.

    Each sequence (a window of a long text) counts once. On one sequence it is the loss of ``transformers``'
    ``BertForQuestionAnswering``.
    """

    target_kinds: ClassVar[tuple[TargetKind, ...]] = ("span",)

    def build(self, outputs: Outputs) -> SpanCrossEntropyPart:
        """The part.

        :raises InputError: there are not two outputs.
        """
        if outputs.size != _START_AND_END:
            raise InputError(
                f"loss: span_cross_entropy takes two outputs, start and end, but the task has {outputs.size}"
            )
        from rtx_plugins.losses.span_cross_entropy_part import SpanCrossEntropyPart

        return SpanCrossEntropyPart()


@hookimpl
def loss() -> dict[str, type[Loss]]:
    """Offer it as ``span_cross_entropy``."""
    return {"span_cross_entropy": SpanCrossEntropy}
