"""Lengths with a unit, and the horizon that turns them into steps."""

from fractions import Fraction

import pytest

from rtx_core.errors import InputError
from rtx_core.lengths import Horizon, Interval, Length

HORIZON = Horizon(total=27, run_total=27, steps_per_epoch=9, samples_per_epoch=33, tokens_per_epoch=900)


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("500 steps", 500, "steps"),
        ("1 step", 1, "steps"),
        ("3 epochs", 3, "epochs"),
        ("0.5 epochs", Fraction(1, 2), "epochs"),
        ("2e9 tokens", 2_000_000_000, "tokens"),
        ("1_000 samples", 1000, "samples"),
        ("10%", 10, "%"),
        (" 7  steps ", 7, "steps"),
    ],
)
def test_a_length_is_a_number_and_a_unit(text, value, unit):
    """Singular, plural and spaces make no difference, and the number is exact."""
    assert Length.parse(text) == Length(Fraction(value), unit)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3", 'a length needs a unit: "3 epochs" or "3 steps"?'),
        ("three epochs", "expected a length like"),
        ("-1 steps", "expected a length like"),
        ("3 parsecs", 'unknown unit "parsecs"'),
        ("5 minutes", 'unknown unit "minutes"'),
        ("", "expected a length like"),
        ("nan steps", "expected a length like"),
        ("9007199254740994 steps", "is too long; the longest is 2\\*\\*53 steps"),
        ("1e999999999 tokens", "is too long"),
        ("1e-999999999 epochs", "is too short"),
    ],
)
def test_anything_else_is_refused(text, message):
    """The message says what was expected; a bare number is asked what it means."""
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        Length.parse(text)


def test_an_interval_may_be_wall_clock_time():
    """Minutes are seconds for an interval, and no steps."""
    interval = Interval.parse("20 minutes")
    assert interval.seconds == 1200
    with pytest.raises(InputError, match="wall-clock"):
        HORIZON.steps(interval)
    assert Interval.parse("20 steps").seconds is None


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("5 steps", 5),
        ("2 epochs", 18),
        ("0.5 epochs", 5),
        ("10%", 3),
        ("100%", 27),
        ("11 samples", 3),
        ("1000 tokens", 10),
        ("0 steps", 0),
    ],
)
def test_a_fraction_of_a_step_is_rounded_up(text, steps):
    """Lengths become steps before the run."""
    assert HORIZON.steps(text) == steps


def test_rounding_up_is_exact():
    """0.1 × 30 is 3 steps, not the 4 that binary fractions would give."""
    assert (
        Horizon(total=30, run_total=30, steps_per_epoch=30, samples_per_epoch=30, tokens_per_epoch=1).steps(
            "0.1 epochs"
        )
        == 3
    )


def test_an_interval_of_half_an_epoch_meets_every_epochs_end():
    """Each multiple is rounded up by itself, so the intervals don't drift."""
    every = Length.parse("0.5 epochs")
    assert [step for step in range(1, 20) if HORIZON.due(every, step)] == [5, 9, 14, 18]


def test_percent_is_of_the_whole_run():
    """Also in what remains after warm-up."""
    assert HORIZON.after(7).steps("10%") == 3
    assert HORIZON.after(7).total == 20


@pytest.mark.parametrize("text", ["500 steps", "1 epoch", "10%", "0.5 epochs", "2000000000 tokens"])
def test_a_length_is_written_as_it_is_read(text):
    """resolved.toml holds lengths as text."""
    assert str(Length.parse(text)) == text
