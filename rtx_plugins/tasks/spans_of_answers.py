"""The best answer that the logits of a text's windows give, as ``transformers``' question-answering pipeline chose it.

In each window, P(start = i) and P(end = j) are softmaxes over the tokens of the text and the window's first token,
which stands for "no answer here". An answer's score is the product of both; where none may be given, it scores the
smallest such product of the first token over all windows.
"""

from __future__ import annotations

import math

import attrs
import numpy as np

from rtx_plugins.tasks.span_rows import FIRST, LAST, PLACE


@attrs.frozen
class Answer:
    """A part of a text, or none."""

    first: int
    """Its first character; equal to ``last`` where there is no answer."""
    last: int
    """The character behind its last."""
    score: float
    """Its probability by the model, in [0, 1]."""

    @property
    def is_none(self) -> bool:
        """Whether there is no answer."""
        return self.first == self.last


def best_answer(logits: np.ndarray, rows: np.ndarray, *, longest: int, may_be_none: bool) -> Answer:
    """Choose the answer of one text; of equal scores the first, then the shorter.

    :param logits: float64 ``[N, 2]``, of start and end at each token of its windows.
    :param rows: int64 ``[N, 5]``, the tokens' targets.
    :param longest: tokens of the longest answer.
    :param may_be_none: whether no answer is one too. Without any token to answer with there is none in any case.
    """
    best, span, none = -math.inf, (0, 0), 0.0
    bounds = np.flatnonzero(rows[:, PLACE] == 0)[1:]
    for window, places in zip(np.split(logits, bounds), np.split(rows, bounds), strict=True):
        scores, first_token = _log_probabilities(window, places)
        none = min(none, first_token)
        sums = _of_spans(scores, longest)
        start, length = divmod(int(sums.argmax()), longest)
        if sums[start, length] > best:
            best, span = sums[start, length], (places[start, FIRST], places[start + length, LAST])
    if math.isinf(best) or (may_be_none and none > best):
        return Answer(0, 0, math.exp(none))
    return Answer(int(span[0]), int(span[1]), math.exp(best))


def _log_probabilities(logits: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, float]:
    """Logarithms of the probabilities of start and end at each token ``[n, 2]``, −∞ where no answer can be, and of both
    at the first token.
    """
    inside = (rows[:, FIRST] >= 0)[:, None]
    first = rows[:, PLACE, None] == 0
    counted = np.where(inside | first, logits, -np.inf)
    largest = counted.max(axis=0)
    scores = counted - largest - np.log(np.exp(counted - largest).sum(axis=0))
    return np.where(inside, scores, -np.inf), float(scores[0].sum())


def _of_spans(scores: np.ndarray, longest: int) -> np.ndarray:
    """The sum of start and end ``[n, longest]`` for each first token and each length, less one."""
    behind = np.full(longest - 1, -np.inf)
    ends = np.lib.stride_tricks.sliding_window_view(np.append(scores[:, 1], behind), longest)
    sums: np.ndarray = scores[:, :1] + ends
    return sums
