"""One label for a text or for a pair of texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from rtx_core import InputError, Outputs, Record, Task, hookimpl
from rtx_plugins.tasks.common import IGNORED, Labels, at_least_two_names, label_of, outputs_of, value_of
from rtx_plugins.tasks.texts import TextTask
from rtx_plugins.tasks.thresholds import Threshold, ThresholdPart, between_0_and_1, moved, unknown_labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
    pipeline_tag: ClassVar[str | None] = "text-classification"
    target_field: ClassVar[str] = "label"

    label: str = "label"
    """The column of the label: text, or an integer, which counts as the text of its digits."""
    labels: tuple[str, ...] | None = attrs.field(default=None, validator=at_least_two_names)
    """The labels in the order of the model's outputs. None: those of the training data, sorted."""
    threshold: Threshold | None = attrs.field(default=None, validator=between_0_and_1)
    """Of two labels: the probability above which the second is predicted, in (0, 1), or ``{ NAME = 0.3 }`` for the one
    of that name. ``"tuned"``: after training, the kept model takes the one with the best F1, on the first evaluation
    set, of the label that is rarer in the training data (the second if neither is); run.json has it, and the test set,
    ``evaluate`` and ``predict`` go by it. Until then, and with None, the likelier label is predicted."""

    @property
    def tuned_field(self) -> str | None:
        """``threshold``, if it is tuned."""
        return "threshold" if self.threshold == "tuned" else None

    def check(self) -> Iterable[tuple[str, str]]:
        """A threshold lies between two labels."""
        yield from super().check()
        if isinstance(self.threshold, Mapping) and len(self.threshold) != 1:
            yield "threshold", f"expected the threshold of one of the two labels, got {len(self.threshold)}"
        elif self.labels is not None:
            yield from (("threshold", problem) for problem in self.unfit(self.labels))

    def unfit(self, names: tuple[str, ...]) -> Iterator[str]:
        """Why there is no such threshold between these labels."""
        if self.threshold is not None and len(names) != 2:  # noqa: PLR2004 - this one or that one
            yield f"lies between two labels; there are {len(names)}, of which the likeliest is predicted"
        else:
            yield from unknown_labels(self.threshold, names)

    def decided(self, outputs: Outputs) -> tuple[float, ...] | None:
        """The thresholds of the two labels, which sum to 1; None where the likeliest label is predicted.

        :raises InputError: there are more labels, or another is named.
        """
        names, threshold = outputs.labels or (), self.threshold
        for problem in self.unfit(names):
            raise InputError(f"task.threshold: {problem}")
        if threshold is None or threshold == "tuned":
            return outputs.thresholds
        if isinstance(threshold, Mapping):
            ((name, number),) = threshold.items()
            return both(names.index(name), number)
        return both(1, threshold)

    def stratum(self, record: Record) -> str:
        """The record's label."""
        return label_of(value_of(record, self.label), record, self.label)

    def outputs(self, records: Iterable[Record], vocab_size: int) -> Outputs:  # noqa: ARG002 - not predicted
        """The labels and how often each occurs in the training data."""
        outputs = outputs_of(((self.stratum(record), record) for record in records), self.label, self.labels)
        return attrs.evolve(outputs, thresholds=self.decided(outputs))

    def build(
        self,
        tokenizer: tokenizers.Tokenizer,
        outputs: Outputs,
        *,
        max_length: int,
        special_tokens: SpecialTokens,  # noqa: ARG002 - the tokenizer adds them
    ) -> SequenceClassificationPart:
        """The part that encodes and answers."""
        counts = outputs.counts
        return SequenceClassificationPart(
            task=self,
            tokenizer=tokenizer,
            max_length=max_length,
            labels=Labels.of(outputs),
            decided=self.decided(outputs),
            rarer=0 if counts is not None and counts[0] < counts[1] else 1,
        )


def both(number: int, threshold: float) -> tuple[float, float]:
    """The thresholds of two labels, from that of one of them."""
    return (1.0 - threshold, threshold) if number else (threshold, 1.0 - threshold)


@attrs.define(eq=False)
class SequenceClassificationPart(ThresholdPart[SequenceClassification]):
    """The task with a tokenizer, and with the labels of its training data."""

    rarer: int
    """Of two labels the one that occurs less often in the training data."""

    def target(self, record: Record) -> list[int]:
        """The class ``[1]``."""
        column = self.task.label
        return [self.labels.number(value_of(record, column), record, column)]

    @property
    def ignored(self) -> list[int]:
        """In place of a class."""
        return [IGNORED]

    def predictions(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits ``[N, K]``; of two labels with a threshold moved so that the largest is what is predicted."""
        return logits if self.decided is None else moved(logits, (0.5, self.decided[1]))

    def thresholds(self, logits: torch.Tensor, targets: torch.Tensor) -> tuple[float, ...]:
        """The thresholds with the best F1 of the rarer label over logits ``[N, 2]`` and classes ``[N]``."""
        counted = targets >= 0
        scores = logits[counted].double().softmax(-1)[:, self.rarer]
        return both(self.rarer, self.tuned(self.rarer, scores, targets[counted] == self.rarer))

    def answer(self, row: torch.Tensor, *, scores: bool) -> dict[str, Any]:
        """``prediction``, the likeliest label or, of two, the one above its threshold, and perhaps ``scores``."""
        answer: dict[str, Any] = {"prediction": self.labels.names[int(self.predictions(row).argmax())]}
        if scores:
            answer["scores"] = self.labels.scores(row)
        return answer


@hookimpl
def task() -> dict[str, type[Task]]:
    """Offer the component."""
    return {"sequence_classification": SequenceClassification}
