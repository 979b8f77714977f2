"""One number, or several, for a text or for a pair of texts."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import numpy as np

from rtx_core import DataError, InputError, Layout, Outputs, Record, Task, hookimpl
from rtx_plugins.tasks.common import described, names_once, value_of
from rtx_plugins.tasks.texts import TextPart, TextTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import tokenizers
    import torch

    from rtx_core import Architecture, Head, SpecialTokens
    from rtx_core.components import TargetKind

_DECIMAL = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", re.ASCII)
"""A number as a CSV has it. Python's ``float`` would also take ``nan``, ``infinity`` and ``1_000``."""
_LARGEST = float(np.finfo(np.float32).max)


@attrs.frozen(kw_only=True)
class Regression(TextTask):
    """Texts, or pairs of texts, each with a number or with several.

    A number that is missing (null, NaN or an empty cell) is neither learnt nor measured. ``predict`` adds the column
    ``prediction``: the number, or, where ``target`` is a list, one for each column of it by name.
    """

    default_loss: ClassVar[str] = "mse"
    default_metrics: ClassVar[tuple[str, ...]] = ("pearson", "spearman", "mae")
    target_kind: ClassVar[TargetKind | None] = "values"
    pipeline_tag: ClassVar[str | None] = "text-classification"
    target_field: ClassVar[str] = "target"

    target: str | tuple[str, ...] = attrs.field(default="target", validator=names_once)
    """The column of the number, or a list of columns."""
    standardize: bool = True
    """Whether each target is learnt with mean 0 and standard deviation 1 over the training data. Predictions and
    metrics have the unit of the data again; the losses have not, nor have the kept model's logits in transformers."""

    def layout(self, architecture: Architecture, head: Head, max_length: int) -> Layout:
        """The columns are the names of the outputs."""
        return attrs.evolve(super().layout(architecture, head, max_length), output_names=self.target_columns)

    def outputs(self, records: Iterable[Record], vocab_size: int) -> Outputs:  # noqa: ARG002 - not predicted
        """How many numbers, and with ``standardize`` their means and deviations in the training data.

        :raises InputError: a column has no two different numbers, so that there is nothing to learn.
        """
        rows = np.array([numbers_of(record, self.target_columns) for record in records])
        rows = rows.reshape(-1, len(self.target_columns))
        moments = [_moments(values, column) for values, column in zip(rows.T, self.target_columns, strict=True)]
        if not self.standardize:
            return Outputs(size=len(moments))
        center, scale = zip(*moments, strict=True)
        return Outputs(size=len(moments), center=center, scale=scale)

    def build(
        self,
        tokenizer: tokenizers.Tokenizer,
        outputs: Outputs,
        *,
        max_length: int,
        special_tokens: SpecialTokens,  # noqa: ARG002 - the tokenizer adds them
    ) -> RegressionPart:
        """The part that encodes and answers."""
        unit = Unit(outputs.center or (0.0,) * outputs.size, outputs.scale or (1.0,) * outputs.size)
        return RegressionPart(self, tokenizer, max_length, unit)


def numbers_of(record: Record, columns: Iterable[str]) -> list[float]:
    """A record's numbers, NaN for one that is missing.

    :raises DataError: a column is not there, or holds something else than a number.
    """
    return [_number(value_of(record, column), record, column) for column in columns]


def _number(value: Any, record: Record, column: str) -> float:
    if value is None or (isinstance(value, str) and not value.strip()):
        return math.nan
    is_number = isinstance(value, (Real, Decimal)) and not isinstance(value, bool)
    if not is_number and not (isinstance(value, str) and _DECIMAL.fullmatch(value)):
        raise DataError(record.file, record.line, f'column "{column}": expected a number, got {described(value)}')
    try:
        number = float(value)
    except OverflowError:  # an integer of hundreds of digits
        number = math.inf
    if abs(number) > _LARGEST:
        message = f'column "{column}": {described(value)} is more than a float32 can hold'
        raise DataError(record.file, record.line, message)
    return number


def _moments(values: np.ndarray, column: str) -> tuple[float, float]:
    """Mean and standard deviation of those that are there; exact sums, so the order of the records changes no bit.

    :raises InputError: there are no two different numbers.
    """
    there = values[~np.isnan(values)].tolist()
    mean = math.fsum(there) / max(1, len(there))
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in there) / max(1, len(there)))
    if not there or min(there) == max(there) or not deviation:
        found = f"no number but {there[0]:g}" if there else "no number"
        raise InputError(f'task: column "{column}" of the training data has {found}; two different ones are needed')
    return mean, deviation


@attrs.frozen
class Unit:
    """Between the numbers of the data and those that are learnt. K numbers."""

    center: tuple[float, ...]
    scale: tuple[float, ...]

    def learnt(self, numbers: Sequence[float]) -> np.ndarray:
        """(number − center) / scale, float64 ``[1, K]``."""
        return (np.array([numbers]) - self.center) / self.scale

    def turned_back(self, learnt: torch.Tensor) -> torch.Tensor:
        """In the unit of the data ``[N, K]``, in float64 where the device has it."""
        wide = learnt.float() if learnt.device.type == "mps" else learnt.double()
        return wide * wide.new_tensor(self.scale) + wide.new_tensor(self.center)


@attrs.define(eq=False)
class RegressionPart(TextPart[Regression]):
    """The task with a tokenizer, and with the unit of its training data."""

    unit: Unit
    missing: int = attrs.field(default=0, init=False)
    """Numbers that were not there since the last notes."""

    def target(self, record: Record) -> np.ndarray:
        """The numbers as they are learnt, float32 ``[1, K]``, NaN for one that is missing."""
        numbers = numbers_of(record, self.task.target_columns)
        self.missing += sum(map(math.isnan, numbers))
        learnt = self.unit.learnt(numbers)
        if (np.abs(learnt) > _LARGEST).any():
            raise DataError(record.file, record.line, "a target is too far from those of the training data to compare")
        return learnt.astype(np.float32)

    @property
    def ignored(self) -> np.ndarray:
        """NaN for each number."""
        return np.full((1, len(self.unit.center)), np.nan, dtype=np.float32)

    def notes(self) -> Sequence[str]:
        """How many texts are not seen whole, and how many numbers are not there."""
        missing, self.missing = self.missing, 0
        lost = [f"{missing:,} numbers are missing and neither learnt nor measured"] if missing else []
        return [*super().notes(), *lost]

    def predictions(self, logits: torch.Tensor) -> torch.Tensor:
        """The numbers ``[N, K]`` in the unit of the data."""
        return self.unit.turned_back(logits)

    def measured(self, targets: torch.Tensor) -> torch.Tensor:
        """The targets ``[N, K]`` in the unit of the data."""
        return self.unit.turned_back(targets)

    def answer(self, row: torch.Tensor, *, scores: bool) -> dict[str, Any]:  # noqa: ARG002 - a number has none
        """``prediction``: the number, or the numbers by column."""
        numbers = self.unit.turned_back(row).tolist()
        if isinstance(self.task.target, str):
            return {"prediction": numbers[0]}
        return {"prediction": dict(zip(self.task.target, numbers, strict=True))}


@hookimpl
def task() -> dict[str, type[Task]]:
    """Offer the component."""
    return {"regression": Regression}
