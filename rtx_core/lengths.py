"""Lengths with a unit (``"3 epochs"``, ``"10%"``) and the horizon that turns them into steps before the run."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any, ClassVar, Self

import attrs

from rtx_core.errors import InputError

_NUMBER = re.compile(r"\s*(?P<number>\d+(?:_\d+)*(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*(?P<unit>%|[a-z]*)\s*")


_LONGEST = 2**53
"""Of any unit: up to here a float counts steps exactly, and no run gets there."""


@attrs.frozen
class Length:
    """How long something lasts in the course of training. Exact: ``"0.1 epochs"`` is the fraction 1/10."""

    value: Fraction
    unit: str

    units: ClassVar[tuple[str, ...]] = ("steps", "epochs", "tokens", "samples", "%")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``"500 steps"``, ``"2e9 tokens"``, ``"10%"``; singular and plural are the same.

        :raises ValueError: the text is no length; the message says what was expected.
        """
        match = _NUMBER.fullmatch(text)
        if match is None:
            raise ValueError(f'expected a length like "500 steps", "3 epochs" or "10%", got "{text}"')
        number, unit = match["number"].replace("_", ""), match["unit"]
        if not unit:
            raise ValueError(cls.question(number))
        plural = unit if unit == "%" or unit.endswith("s") else f"{unit}s"
        if plural not in cls.units:
            raise ValueError(f'unknown unit "{unit}" in "{text}"; units are {", ".join(cls.units)}')
        size = float(number)
        # Before the exact value is made, which takes as much memory as its exponent says.
        if size > _LONGEST or (size == 0.0 and any(digit in "123456789" for digit in re.split("[eE]", number)[0])):
            raise ValueError(f'"{text}" is too {"long" if size else "short"}; the longest is 2**53 {plural}')
        return cls(Fraction(number), plural)

    @staticmethod
    def question(number: object) -> str:
        """Ask what a bare number means, for the error that refuses it."""
        return f'a length needs a unit: "{number} epochs" or "{number} steps"?'

    def __str__(self) -> str:
        number = str(self.value.numerator) if self.value.denominator == 1 else repr(float(self.value))
        if self.unit == "%":
            return f"{number}%"
        return f"{number} {self.unit[:-1] if self.value == 1 else self.unit}"


@attrs.frozen
class Interval(Length):
    """A length that may also be wall-clock time (``"20 minutes"``), for what changes no result of a run."""

    units: ClassVar[tuple[str, ...]] = (*Length.units, "seconds", "minutes", "hours")

    @property
    def seconds(self) -> float | None:
        """The wall-clock time in seconds, None for a length in steps, epochs, …."""
        factor = {"seconds": 1, "minutes": 60, "hours": 3600}.get(self.unit)
        return None if factor is None else float(self.value * factor)


def not_zero(_instance: object, _attribute: attrs.Attribute[Any], value: Any) -> None:
    """A validator: the length is longer than nothing, or None.

    :raises ValueError: it is 0.
    """
    if value is not None and value.value <= 0:
        raise ValueError(f'must be longer than nothing, got "{value}"')


UNKNOWN_OF_STREAMS = ("epochs", "tokens")
"""Units that mean nothing before the training data were read."""


@attrs.frozen(kw_only=True)
class Horizon:
    """The length of a run in steps, known before step 0; what a scheduler builds its schedule for."""

    total: int
    """Steps that this schedule has in front of it (a nested schedule gets what remains)."""
    run_total: int
    """Steps of the whole run: what ``%`` refers to."""
    steps_per_epoch: int
    samples_per_epoch: int
    tokens_per_epoch: int
    streamed: bool = False
    """Whether nobody knows how many samples there are: then an epoch stands for one step."""

    def steps(self, length: Length | str) -> int:
        """Convert a length to steps; every fraction of a step is rounded up.

        :raises InputError: the length is wall-clock time, or the text is no length.
        """
        return math.ceil(self.exact(length))

    def due(self, every: Length | Fraction, step: int) -> bool:
        """Whether a multiple of ``every`` falls on the finished step, each multiple rounded up by itself.

        So ``"0.5 epochs"`` of 9 steps falls on 5, 9, 14, 18, and every second time is an epoch's end.
        """
        exact = every if isinstance(every, Fraction) else self.exact(every)
        under, over = exact.as_integer_ratio()  # whole numbers: this is asked in every step
        return under > 0 and step * over // under != (step - 1) * over // under

    def exact(self, length: Length | str) -> Fraction:
        """A length in steps, with its fraction of a step.

        :raises InputError: the length is wall-clock time, or the text is no length.
        """
        if isinstance(length, str):
            try:
                length = Length.parse(length)
            except ValueError as error:
                raise InputError(str(error)) from error
        per_unit = {
            "steps": Fraction(1),
            "epochs": Fraction(self.steps_per_epoch),
            "%": Fraction(self.run_total, 100),
            "samples": Fraction(self.steps_per_epoch, max(self.samples_per_epoch, 1)),
            "tokens": Fraction(self.steps_per_epoch, max(self.tokens_per_epoch, 1)),
        }
        if self.streamed and length.unit in UNKNOWN_OF_STREAMS:
            raise InputError(
                f'"{length}" can\'t be converted to steps: the training data are streamed, so that nobody knows how '
                "long an epoch is; write steps or samples"
            )
        if length.unit not in per_unit:
            raise InputError(f'"{length}" is wall-clock time and can\'t be converted to steps')
        return length.value * per_unit[length.unit]

    def after(self, steps: int) -> Horizon:
        """The horizon that remains after the given number of steps."""
        return attrs.evolve(self, total=self.total - steps)
