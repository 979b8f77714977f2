"""Any number of labels for a text or for a pair of texts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import numpy as np

from rtx_core import InputError, Outputs, Record, Task, hookimpl
from rtx_plugins.tasks.common import Labels, label_of, list_of, names_once, sorted_labels, unknown_label
from rtx_plugins.tasks.texts import TextTask
from rtx_plugins.tasks.thresholds import (
    DEFAULT,
    Threshold,
    ThresholdPart,
    between_0_and_1,
    moved,
    of_each,
    unknown_labels,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    import tokenizers
    import torch

    from rtx_core import SpecialTokens
    from rtx_core.components import TargetKind


@attrs.frozen(kw_only=True)
class MultiLabelClassification(TextTask):
    """Texts, or pairs of texts, each with a list of labels, which may be empty.

    ``predict`` adds the column ``prediction``, the list of labels whose probability is above their threshold, and,
    where scores are wanted, ``scores`` with each label's probability.
    """

    default_loss: ClassVar[str] = "binary_cross_entropy"
    default_metrics: ClassVar[tuple[str, ...]] = ("f1", "average_precision")
    target_kind: ClassVar[TargetKind | None] = "labels"
    pipeline_tag: ClassVar[str | None] = "text-classification"
    target_field: ClassVar[str] = "label"

    label: str = "label"
    """The column of the labels: a list of texts or integers, which count as the text of their digits. A label that
    stands twice in a list counts once."""
    labels: tuple[str, ...] | None = attrs.field(default=None, validator=names_once)
    """The labels in the order of the model's outputs. None: those of the training data, sorted."""
    threshold: Threshold = attrs.field(default=DEFAULT, validator=between_0_and_1)
    """The probability above which a label is predicted, in (0, 1): one for all, or a table by label name, where a label
    that is not named has 0.5. ``"tuned"``: after training, the kept model takes for each label the one with the best F1
    on the first evaluation set; run.json has them, and the test set, ``evaluate`` and ``predict`` go by them. Until
    then it is 0.5. Metrics go by thresholds too; what ranks the texts of a label doesn't change."""

    @property
    def tuned_field(self) -> str | None:
        """``threshold``, if it is tuned."""
        return "threshold" if self.threshold == "tuned" else None

    def check(self) -> Iterable[tuple[str, str]]:
        """Thresholds are those of labels that there are."""
        yield from super().check()
        if self.labels is not None:
            yield from (("threshold", problem) for problem in unknown_labels(self.threshold, self.labels))

    def labels_of(self, record: Record) -> dict[str, None]:
        """A record's labels, each once, in its order.

        :raises DataError: there is no list of labels.
        """
        return dict.fromkeys(label_of(value, record, self.label) for value in list_of(record, self.label, "labels"))

    def outputs(self, records: Iterable[Record], vocab_size: int) -> Outputs:  # noqa: ARG002 - not predicted
        """The labels and in how many records of the training data each occurs."""
        counts: Counter[str] = Counter()
        number_of_records = 0
        for record in records:
            number_of_records += 1
            found = self.labels_of(record)
            for label in found:
                if self.labels is not None and label not in self.labels:
                    raise unknown_label(label, self.labels, record, self.label)
            counts.update(found.keys())
        names = self.labels or sorted_labels(counts)
        if not counts:
            raise InputError(f'task: column "{self.label}" of the training data has no label; at least one is needed')
        outputs = Outputs(
            size=len(names), labels=names, counts=tuple(counts[name] for name in names), records=number_of_records
        )
        return attrs.evolve(outputs, thresholds=of_each(self.threshold, outputs))

    def build(
        self,
        tokenizer: tokenizers.Tokenizer,
        outputs: Outputs,
        *,
        max_length: int,
        special_tokens: SpecialTokens,  # noqa: ARG002 - the tokenizer adds them
    ) -> MultiLabelClassificationPart:
        """The part that encodes and answers."""
        return MultiLabelClassificationPart(
            task=self,
            tokenizer=tokenizer,
            max_length=max_length,
            labels=Labels.of(outputs),
            decided=of_each(self.threshold, outputs),
        )


@attrs.define(eq=False)
class MultiLabelClassificationPart(ThresholdPart[MultiLabelClassification]):
    """The task with a tokenizer, and with the labels of its training data."""

    def target(self, record: Record) -> np.ndarray:
        """1 for each label that the record has and 0 for the others, float32 ``[1, K]``."""
        row = np.zeros((1, len(self.labels.names)), dtype=np.float32)
        for label in self.task.labels_of(record):
            row[0, self.labels.number(label, record, self.task.label)] = 1.0
        return row

    @property
    def ignored(self) -> np.ndarray:
        """NaN for each label."""
        return np.full((1, len(self.labels.names)), np.nan, dtype=np.float32)

    def predictions(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits ``[N, K]``, moved so that what is predicted is above 0, whatever the thresholds."""
        return logits if self.decided is None else moved(logits, self.decided)

    def thresholds(self, logits: torch.Tensor, targets: torch.Tensor) -> tuple[float, ...]:
        """For each label the threshold with the best F1 over logits and targets ``[N, K]``, without ignored ones."""
        scores, counted = logits.double().sigmoid(), ~targets.isnan()
        return tuple(
            self.tuned(k, scores[counted[:, k], k], targets[counted[:, k], k] > 0.5)  # noqa: PLR2004 - between 0 and 1
            for k in range(len(self.labels.names))
        )

    def answer(self, row: torch.Tensor, *, scores: bool) -> dict[str, Any]:
        """``prediction``, the labels above their thresholds, and perhaps ``scores``."""
        chosen = (self.predictions(row) > 0.0).tolist()
        names = self.labels.names
        answer: dict[str, Any] = {"prediction": [name for name, is_on in zip(names, chosen, strict=True) if is_on]}
        if scores:
            answer["scores"] = dict(zip(names, row.double().sigmoid().tolist(), strict=True))
        return answer


@hookimpl
def task() -> dict[str, type[Task]]:
    """Offer the component."""
    return {"multi_label_classification": MultiLabelClassification}
