"""What losses share: a factor for each class or label, by name, in order, or from how often it occurs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from rtx_core import InputError

if TYPE_CHECKING:
    from rtx_core import Outputs

Factors = Mapping[str, float] | tuple[float, ...] | Literal["balanced"]
"""Factors by label, in the order of the labels, or made from how often each label occurs in the training data."""


def numbers_from_zero(_component: object, _field: object, value: Factors) -> None:
    """Validator of a field of factors.

    :raises ValueError: one is negative or not finite.
    """
    if value == "balanced":
        return
    named = value if isinstance(value, Mapping) else dict(enumerate(value))
    for name, weight in named.items():
        if not (math.isfinite(weight) and weight >= 0.0):
            raise ValueError(f"the weight of {name!r} must be a number ≥ 0, got {weight}")


def class_weights_of(written: Factors | None, outputs: Outputs) -> tuple[float, ...] | None:
    """K weights of classes. Balanced: n / (K · count), n targets in all, so that every class counts alike and a target
    counts 1 on average, as scikit-learn's ``compute_class_weight`` has it.

    :raises InputError: they don't fit the labels, all are 0, or a label has no count or the count 0.
    """
    field = "loss.class_weights"
    if written != "balanced":
        weights = factors_of(written, outputs, field)
        if weights is not None and not any(weights):
            raise InputError(f"{field}: all are 0, so no target would count")
        return weights
    counts = _counts(outputs, field)
    return tuple(sum(counts) / (len(counts) * count) for count in counts)


def positive_weights_of(written: Factors | None, outputs: Outputs) -> tuple[float, ...] | None:
    """K weights of the presence of labels. Balanced: negatives / positives, so that of each label its presence and its
    absence count alike.

    :raises InputError: they don't fit the labels, or a label is in no training record or in all of them.
    """
    field = "loss.positive_weights"
    if written != "balanced":
        return factors_of(written, outputs, field)
    counts, records = _counts(outputs, field), outputs.records
    if records is None:
        raise InputError(f'{field}: "balanced" needs the number of training records, which this task does not give')
    if records in counts:
        name = _name(outputs, counts.index(records))
        raise InputError(
            f'{field}: "balanced" weighs by records without a label, but {name} is in each of the {records:,} training '
            "records; take it out of task.labels, or give the weights by label"
        )
    return tuple((records - count) / count for count in counts)


def _counts(outputs: Outputs, field: str) -> tuple[int, ...]:
    """How often each label occurs in the training data.

    :raises InputError: this isn't known, or one doesn't occur.
    """
    if outputs.counts is None:
        raise InputError(f'{field}: "balanced" goes by how often each label occurs, but this task has no labels')
    if 0 in outputs.counts:
        raise InputError(
            f'{field}: "balanced" has no weight for {_name(outputs, outputs.counts.index(0))}, which never occurs in '
            "the training data; take it out of task.labels, add data, or give the weights by label"
        )
    return outputs.counts


def _name(outputs: Outputs, number: int) -> str:
    return f"label {number}" if outputs.labels is None else f'the label "{outputs.labels[number]}"'


def factors_of(
    written: Mapping[str, float] | tuple[float, ...] | None, outputs: Outputs, field: str
) -> tuple[float, ...] | None:
    """K factors in the order of the outputs; 1 for a label that is not named.

    :param field: where they were written, as ``loss.class_weights``.
    :raises InputError: they don't fit the labels.
    """
    if isinstance(written, Mapping):
        labels = outputs.labels or ()
        unknown = [name for name in written if name not in labels]
        if unknown:
            known = ", ".join(labels) if labels else "none, so give one number for each class"
            raise InputError(f'{field}: no label "{unknown[0]}"; the labels are {known}')
        written = tuple(written.get(label, 1.0) for label in labels)
    if written is not None and len(written) != outputs.size:
        raise InputError(f"{field}: {len(written)} weights for {outputs.size} classes; give one for each")
    return written
