"""Thresholds: the probability above which a label is predicted, as written, or tuned for the best F1.

A threshold moves the logits by logit(t), so that what is predicted is above 0, or the largest. The order of texts by
the score of a label stays, and with it every figure of that ranking.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import attrs
import numpy as np

from rtx_core import InputError
from rtx_plugins.metrics.counting import wide
from rtx_plugins.tasks.common import Labels, quoted
from rtx_plugins.tasks.texts import TaskT, TextPart

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

    from rtx_core import Outputs

Threshold = float | Mapping[str, float] | Literal["tuned"]
"""A probability for all labels, one for each by its name, or those with the best F1 on the evaluation data."""

DEFAULT = 0.5

_SATURATED = 2.0**-40
"""Scores nearer to 0 or 1 count as equal: between them no probability would be left to be the threshold."""


def between_0_and_1(_component: object, _field: object, value: Threshold | None) -> None:
    """Validator of a ``threshold`` field: at 0 everything would be predicted, at 1 nothing.

    :raises ValueError: a number isn't between them.
    """
    if value is None or value == "tuned":
        return
    if not isinstance(value, Mapping):
        value = {"": value}
    for name, number in value.items():
        if not 0.0 < number < 1.0:
            what = f'the threshold of "{name}"' if name else "a threshold"
            raise ValueError(f"{what} lies between 0 and 1, got {number}")


def unknown_labels(threshold: Threshold | None, names: Sequence[str]) -> Iterator[str]:
    """What is wrong with a table of thresholds: a label that isn't there."""
    if isinstance(threshold, Mapping):
        for name in threshold.keys() - set(names):
            yield f'no label "{name}"; the labels are {quoted(names)}'


def of_each(threshold: Threshold, outputs: Outputs) -> tuple[float, ...] | None:
    """The thresholds of K labels that are predicted each alone; None where all are 0.5.

    :param outputs: their own thresholds hold for labels that are not named.
    :raises InputError: a label is named that isn't there.
    """
    names = outputs.labels or ()
    for problem in unknown_labels(threshold, names):
        raise InputError(f"task.threshold: {problem}")
    before = outputs.thresholds or (DEFAULT,) * outputs.size
    if isinstance(threshold, Mapping):
        found = tuple(threshold.get(name, other) for name, other in zip(names, before, strict=True))
    else:
        found = before if threshold == "tuned" else (threshold,) * outputs.size
    return None if set(found) == {DEFAULT} else found


def best(scores: np.ndarray, positive: np.ndarray) -> float | None:
    """The threshold with the best F1, None where nothing is positive.

    It is the middle between two neighbouring scores, or between the lowest score and 0; of several with this F1 the one
    nearest to 0.5, and of two as near the higher.

    :param scores: probabilities, float64 ``[N]``.
    :param positive: whether each row has the label, bool ``[N]``.
    """
    if not positive.any():
        return None
    distinct, places = np.unique(scores.clip(_SATURATED, 1.0 - _SATURATED), return_inverse=True)
    # From the highest score: what is predicted when it, or one below it, is the lowest that passes.
    predicted = np.bincount(places)[::-1].cumsum()[::-1]
    right = np.bincount(places, weights=positive)[::-1].cumsum()[::-1]
    f1 = 2.0 * right / (predicted + positive.sum())
    thresholds = (distinct + np.append(0.0, distinct[:-1])) / 2.0
    return float(min(thresholds[f1 == f1.max()], key=lambda t: (abs(t - DEFAULT), -t)))


@attrs.define(eq=False)
class ThresholdPart(TextPart[TaskT]):
    """A task over texts whose labels are predicted above thresholds."""

    labels: Labels
    decided: tuple[float, ...] | None
    """The threshold of each label; None: the task's own rule."""
    untuned: list[str] = attrs.field(factory=list, init=False)
    """Labels that had no example to choose a threshold by, since the last notes."""

    def notes(self) -> Sequence[str]:
        """How many texts are not seen whole, and which labels keep the threshold 0.5."""
        names, self.untuned = self.untuned, []
        lost = [f"no example of {quoted(names)} to tune a threshold by, so it stays at {DEFAULT}"] if names else []
        return [*super().notes(), *lost]

    def tuned(self, number: int, scores: torch.Tensor, positive: torch.Tensor) -> float:
        """The best threshold of a label, by its number; 0.5 where there is no example of it."""
        found = best(scores.numpy(), positive.numpy())
        if found is None:
            self.untuned.append(self.labels.names[number])
        return DEFAULT if found is None else found


def moved(logits: torch.Tensor, thresholds: Sequence[float]) -> torch.Tensor:
    """Logits ``[…, K]`` less the logit of each threshold, in float64 so that no two scores become equal."""
    logits = wide(logits)
    return logits - logits.new_tensor([math.log(t / (1.0 - t)) for t in thresholds])
