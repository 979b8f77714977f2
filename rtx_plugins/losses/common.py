"""What losses share: a factor for each class or label, by name or in order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rtx_core import InputError

if TYPE_CHECKING:
    from rtx_core import Outputs


def numbers_from_zero(_component: object, _field: object, value: Mapping[str, float] | tuple[float, ...]) -> None:
    """Validator of a field of factors.

    :raises ValueError: one is negative or not finite.
    """
    named = value if isinstance(value, Mapping) else dict(enumerate(value))
    for name, weight in named.items():
        if not (math.isfinite(weight) and weight >= 0.0):
            raise ValueError(f"the weight of {name!r} must be a number ≥ 0, got {weight}")


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
