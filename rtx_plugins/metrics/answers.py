"""Exact match and F1 of answers as the script of SQuAD 2.0 computes them (Rajpurkar et al. 2018, arXiv:1806.03822)."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from typing import TYPE_CHECKING, ClassVar

import attrs
import numpy as np

from rtx_core import Metric, MetricPart, SpanRole, hookimpl
from rtx_plugins.metrics.counting import ratio, wide
from rtx_plugins.tasks.span_rows import FIRST, LAST, PLACE, text_of_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from rtx_core import Outputs
    from rtx_core.components import Direction, TargetKind

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


class AnswersPart(MetricPart):
    """Keeps both figures of each sample."""

    def update_by_sample(
        self,
        predictions: torch.Tensor,
        targets: torch.Tensor,
        weights: torch.Tensor,
        samples: torch.Tensor,
    ) -> None:
        """Count each sample once.

        :param predictions: int64 ``[N, 2]``: the characters of the answer that is predicted, the same in all rows of a
            sample; twice the same number where there is none.
        :param targets: ``[N, 5]``: the rows of a sample that are no tokens, its text and its right answers.
        :param weights: none of these rows counts by itself.
        """
        chosen, rows = predictions.cpu().numpy().astype(np.int64), targets.cpu().numpy()
        bounds = np.flatnonzero(np.diff(samples.cpu().numpy())) + 1
        figures = [
            figures_of(spans[0], own)
            for spans, own in zip(np.split(chosen, bounds), np.split(rows, bounds), strict=True)
        ]
        self.collect(figures=wide(weights).new_tensor(figures))

    def compute(self) -> dict[str, float]:
        """Both means; NaN where there was no sample."""
        rows = [row for tensor in self.rows.get("figures", []) for row in tensor.tolist()]
        # fsum rounds once, so that the order of samples changes nothing.
        return {
            name: ratio(math.fsum(row[column] for row in rows), len(rows))
            for column, name in enumerate(("exact_match", "answer_f1"))
        }


def figures_of(span: np.ndarray, rows: np.ndarray) -> tuple[float, float]:
    """Exact match and F1 of one sample, from the characters of its answer and its rows ``[n, 5]``."""
    text = text_of_rows(rows)
    references = [text[row[FIRST] : row[LAST]] for row in rows[rows[:, PLACE] == SpanRole.REFERENCE]]
    return compared(text[span[0] : span[1]], references)


def compared(answer: str, references: Sequence[str]) -> tuple[float, float]:
    """Exact match and F1 of an answer, each the best over the references.

    References of which nothing is left (articles, punctuation) don't count; where there is no other the right answer is
    none, an empty text.
    """
    words = normalised(answer).split()
    expected = [split for reference in references if (split := normalised(reference).split())] or [[]]
    return max(float(words == reference) for reference in expected), max(_f1(words, other) for other in expected)


def normalised(text: str) -> str:
    """In lower case, without punctuation (ASCII) and articles, with single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _f1(words: Sequence[str], expected: Sequence[str]) -> float:
    """The harmonic mean of precision and recall of words; where either has none, whether both have none."""
    if not words or not expected:
        return float(words == expected)
    common = sum((Counter(words) & Counter(expected)).values())
    if not common:
        return 0.0
    # Not 2 · common / (all words), which rounds otherwise in one of some thousand cases.
    precision, recall = common / len(words), common / len(expected)
    return 2 * precision * recall / (precision + recall)


@attrs.frozen(kw_only=True)
class Answers(Metric):
    """The share of answers that equal a right one, and the mean overlap in words; logged as ``exact_match`` and
    ``answer_f1``, from 0 to 1.

    Case, punctuation and articles don't count. Of several right answers the best counts; where a question has none,
    giving none is 1 and anything else 0.
    """

    target_kinds: ClassVar[tuple[TargetKind, ...]] = ("span",)

    def names(self) -> dict[str, Direction | None]:
        """Both, larger is better."""
        return {"exact_match": "max", "answer_f1": "max"}

    def build(self, outputs: Outputs) -> AnswersPart:  # noqa: ARG002 - texts are compared
        """The part."""
        return AnswersPart()


@hookimpl
def metric() -> dict[str, type[Metric]]:
    """Offer it as ``answers``."""
    return {"answers": Answers}
