"""One label for a text or for a pair of texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from rtx_core import Outputs, Record, Sample, Task, hookimpl
from rtx_plugins.tasks.common import (
    IGNORED,
    Labels,
    at_least_two_names,
    chunks,
    label_of,
    outputs_of,
    sample_of,
    text_of,
    truncating,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import tokenizers
    import torch

    from rtx_core import SpecialTokens


@attrs.frozen(kw_only=True)
class SequenceClassification(Task):
    """Texts, or pairs of texts, each with one label.

    A text that is longer than ``max_length`` is cut at its end, a pair at the end of whichever text is longer.
    ``predict`` adds the column ``prediction`` and, where scores are wanted, ``scores`` with each label's probability.
    """

    default_loss: ClassVar[str] = "cross_entropy"
    default_head: ClassVar[str] = "linear"
    default_metrics: ClassVar[tuple[str, ...]] = ("accuracy", "f1")

    text: str | tuple[str, str] = "text"
    """The column of the text, or the two columns of a pair: ``["premise", "hypothesis"]``."""
    label: str = "label"
    """The column of the label: text, or an integer, which counts as the text of its digits."""
    labels: tuple[str, ...] | None = attrs.field(default=None, validator=at_least_two_names)
    """The labels in the order of the model's outputs. None: those of the training data, sorted."""

    @property
    def text_columns(self) -> tuple[str, ...]:
        """One column, or two."""
        return (self.text,) if isinstance(self.text, str) else self.text

    def check(self) -> Iterable[tuple[str, str]]:
        """The label is another column than the text, or it would be learnt from itself."""
        if self.label in self.text_columns:
            yield "label", f'"{self.label}" is the column of the text too'

    def columns(self, *, targets: bool) -> tuple[str, ...]:
        """The columns that a record must have."""
        return (*self.text_columns, self.label) if targets else self.text_columns

    def texts(self, record: Record) -> Iterator[str]:
        """The texts of a record."""
        return (text_of(record, column) for column in self.text_columns)

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
        pair = len(self.text_columns) > 1
        return SequenceClassificationPart(self, truncating(tokenizer, max_length, pair=pair), Labels.of(outputs))


@attrs.define(eq=False)
class SequenceClassificationPart:
    """The task with a tokenizer that truncates, and with the labels of its training data."""

    task: SequenceClassification
    tokenizer: tokenizers.Tokenizer
    labels: Labels
    texts_cut: int = 0
    """Texts that ``max_length`` cut since the last notes."""

    def samples(self, records: Iterable[Record], *, targets: bool = True) -> Iterator[Sample]:
        """Encode records, one sample each, in order; its target stands at the first token.

        :param targets: False for records whose labels are missing or don't matter.
        :raises DataError: a value is missing, of the wrong type, or an unknown label.
        """
        encoded = ((self._input(record), self._target(record) if targets else IGNORED) for record in records)
        for chunk in chunks(encoded, lambda item: sum(map(len, item[0]))):
            inputs = [texts if len(texts) > 1 else texts[0] for texts, _ in chunk]
            encodings = self.tokenizer.encode_batch_fast(inputs)
            for encoding, (_, target) in zip(encodings, chunk, strict=True):
                self.texts_cut += bool(encoding.overflowing)
                yield sample_of(encoding, [0], [target])

    def _input(self, record: Record) -> tuple[str, ...]:
        return tuple(self.task.texts(record))

    def _target(self, record: Record) -> int:
        column = self.task.label
        return self.labels.number(value_of(record, column), record, column)

    def notes(self) -> Sequence[str]:
        """How many texts are not seen whole."""
        cut, self.texts_cut = self.texts_cut, 0
        return [f"{cut:,} texts were cut at max_length"] if cut else []

    def predictions(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits ``[N, K]``."""
        return logits

    def answers(
        self,
        records: Sequence[Record],  # noqa: ARG002 - the logits say it all
        logits: Sequence[torch.Tensor],
        *,
        scores: bool,
    ) -> list[dict[str, Any]]:
        """``prediction`` and perhaps ``scores`` of each record, from its logits ``[1, K]``."""
        return [self._answer(rows[0], scores=scores) for rows in logits]

    def _answer(self, row: torch.Tensor, *, scores: bool) -> dict[str, Any]:
        answer: dict[str, Any] = {"prediction": self.labels.names[int(row.argmax())]}
        if scores:
            answer["scores"] = self.labels.scores(row)
        return answer


@hookimpl
def task() -> dict[str, type[Task]]:
    """Offer the component."""
    return {"sequence_classification": SequenceClassification}
