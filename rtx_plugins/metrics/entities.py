"""Precision, recall and F1 of the spans that tags spell: right if start, end and label are, as seqeval counts them.

The default of the CoNLL shared tasks (Tjong Kim Sang & De Meulder 2003), over all spans at once (micro average).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import attrs

from rtx_core import InputError, Metric, MetricPart, hookimpl
from rtx_plugins.tasks.tags import OUTSIDE, Scheme, Tag, spans_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import torch

    from rtx_core import Outputs
    from rtx_core.components import Direction, TargetKind
    from rtx_plugins.tasks.tags import Span

_FIGURES = ("precision", "recall", "f1")


class EntitiesPart(MetricPart):
    """Counts for each label its spans among the targets, among the predictions, and in both."""

    def __init__(self, tags: Sequence[Tag], strict: Scheme | None, *, per_label: bool) -> None:
        super().__init__()
        self._tags = tags
        self._strict = strict
        self._per_label = per_label
        self._labels = sorted({tag.label for tag in tags if tag != OUTSIDE})

    def update_by_sample(
        self, predictions: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor, samples: torch.Tensor
    ) -> None:
        """Count logits ``[N, K]`` and classes ``[N]``; a span ends where its sample does, and ignored targets are not
        there.
        """
        counted = ((weights > 0) & (targets >= 0)).tolist()
        rows = zip(samples.tolist(), targets.tolist(), predictions.argmax(-1).tolist(), strict=True)
        number = {label: i for i, label in enumerate(self._labels)}
        counts = [[0, 0, 0] for _ in self._labels]
        for _, sample in itertools.groupby(itertools.compress(rows, counted), key=lambda row: row[0]):
            _, expected, predicted = zip(*sample, strict=True)
            there, found = set(self._spans(expected)), set(self._spans(predicted))
            for place, spans in enumerate((there & found, found, there)):
                for span in spans:
                    counts[number[span.label]][place] += 1
        self.add(counts=targets.new_tensor(counts).reshape(-1, 3))

    def _spans(self, numbers: Sequence[int]) -> Iterator[Span]:
        return spans_of((self._tags[number] for number in numbers), strict=self._strict)

    def compute(self) -> Mapping[str, Any]:
        """The figures over all labels, and perhaps those of each label in a list; 0 where there is nothing to count."""
        counts = self.sums["counts"].tolist() if self.sums else [[0, 0, 0] for _ in self._labels]
        total = _figures(*(sum(row[place] for row in counts) for place in range(3)))
        values: dict[str, Any] = dict(zip(_names(), total, strict=True))
        if self._per_label:
            each = [_figures(*row) for row in counts]
            values |= {name: [row[i] for row in each] for i, name in enumerate(_names("_per_label"))}
        return values


def _figures(right: int, predicted: int, expected: int) -> tuple[float, float, float]:
    """Precision, recall and F1; 0 of 0 is 0, as in seqeval."""
    precision, recall = (right / count if count else 0.0 for count in (predicted, expected))
    return precision, recall, 2.0 * precision * recall / (precision + recall) if right else 0.0


def _names(ending: str = "") -> list[str]:
    return [f"entity_{figure}{ending}" for figure in _FIGURES]


@attrs.frozen(kw_only=True)
class Entities(Metric):
    """The spans of a task with a scheme that are right in start, end and label: ``entity_precision``, their share of
    the predicted ones, ``entity_recall``, of those that are there, and ``entity_f1``.
    """

    target_kinds: ClassVar[tuple[TargetKind, ...]] = ("class",)
    needs_scheme: ClassVar[bool] = True

    mode: Literal["lenient", "strict"] = "lenient"
    """``lenient``: every tag but O is in a span, and one that continues nothing begins its own (the default of seqeval
    and of conlleval); ``strict``: spans that don't keep to the scheme are left out."""
    per_label: bool = False
    """Add ``entity_f1_per_label`` and the like: lists in the order of the sorted labels, which can't be the monitor."""

    def names(self) -> dict[str, Direction | None]:
        """The three figures, larger is better; no direction for the lists."""
        names: dict[str, Direction | None] = dict.fromkeys(_names(), "max")
        return names | dict.fromkeys(_names("_per_label")) if self.per_label else names

    def build(self, outputs: Outputs) -> EntitiesPart:
        """The part for these tags.

        :raises InputError: they have no scheme.
        """
        if outputs.scheme is None or outputs.labels is None:
            raise InputError("metrics.entities: the task's tags have no scheme, so they make up no entities")
        scheme = cast("Scheme", outputs.scheme)
        tags = [Tag.parse(name, scheme) for name in outputs.labels]
        return EntitiesPart(tags, scheme if self.mode == "strict" else None, per_label=self.per_label)


@hookimpl
def metric() -> dict[str, type[Metric]]:
    """Offer it as ``entities``."""
    return {"entities": Entities}
