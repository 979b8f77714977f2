"""One label for a text or for a pair of texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from rtx_core import Outputs, Record, Task, hookimpl
from rtx_plugins.tasks.common import IGNORED, Labels, at_least_two_names, label_of, outputs_of, value_of
from rtx_plugins.tasks.texts import TextPart, TextTask

if TYPE_CHECKING:
    from collections.abc import Iterable

    import tokenizers
    import torch

    from rtx_core import SpecialTokens
    from rtx_core.components import TargetKind


@attrs.frozen(kw_only=True)
class SequenceClassification(TextTask):
    """Texts, or pairs of texts, each with one label.

    A text that is longer than ``max_length`` is cut at its end, a pair at the end of whichever text is longer.
    ``predict`` adds the column ``prediction`` and, where scores are wanted, ``scores`` with each label's probability.
    """

    default_loss: ClassVar[str] = "cross_entropy"
    default_metrics: ClassVar[tuple[str, ...]] = ("accuracy", "f1")
    target_kind: ClassVar[TargetKind | None] = "class"
    target_field: ClassVar[str] = "label"

    label: str = "label"
    """The column of the label: text, or an integer, which counts as the text of its digits."""
    labels: tuple[str, ...] | None = attrs.field(default=None, validator=at_least_two_names)
    """The labels in the order of the model's outputs. None: those of the training data, sorted."""

    def stratum(self, record: Record) -> str:
        """The record's label."""
        return label_of(value_of(record, self.label), record, self.label)

    def outputs(self, records: Iterable[Record], vocab_size: int) -> Outputs:  # noqa: ARG002 - not predicted
        """The labels and how often each occurs in the training data."""
        return outputs_of(((self.stratum(record), record) for record in records), self.label, self.labels)

    def build(
        self,
        tokenizer: tokenizers.Tokenizer,
        outputs: Outputs,
        *,
        max_length: int,
        special_tokens: SpecialTokens,  # noqa: ARG002 - the tokenizer adds them
    ) -> SequenceClassificationPart:
        """The part that encodes and answers."""
        return SequenceClassificationPart(self, self.truncating(tokenizer, max_length), Labels.of(outputs))


@attrs.define(eq=False)
class SequenceClassificationPart(TextPart[SequenceClassification]):
    """The task with a tokenizer that truncates, and with the labels of its training data."""

    labels: Labels

    def target(self, record: Record) -> list[int]:
        """The class ``[1]``."""
        column = self.task.label
        return [self.labels.number(value_of(record, column), record, column)]

    @property
    def ignored(self) -> list[int]:
        """In place of a class."""
        return [IGNORED]

    def answer(self, row: torch.Tensor, *, scores: bool) -> dict[str, Any]:
        """``prediction``, the likeliest label, and perhaps ``scores``."""
        answer: dict[str, Any] = {"prediction": self.labels.names[int(row.argmax())]}
        if scores:
            answer["scores"] = self.labels.scores(row)
        return answer


@hookimpl
def task() -> dict[str, type[Task]]:
    """Offer the component."""
    return {"sequence_classification": SequenceClassification}
