"""What hooks may set on a run is checked when they set it."""

import math

import numpy as np
import pytest
import torch

from rtx_core.errors import PluginError
from rtx_core.run import Run


@pytest.fixture
def run():
    """A run whose large objects nobody looks at."""
    names = ("pipeline", "folder", "model", "optimizer", "strategy", "console", "horizon", "monitor")
    return Run(**dict.fromkeys(names), monitor_direction="min", threads=1)


@pytest.mark.parametrize("value", ["a", None, True, math.nan, math.inf, -0.5, [1.0]], ids=str)
def test_a_scale_that_is_no_factor_is_refused_by_the_name_of_who_sets_it(run, value):
    """At the assignment, with the value; the former scale stays."""
    run.speaker = "spike_guard"
    with pytest.raises(
        PluginError, match=r"^spike_guard: run.lr_scale: expected a finite number from 0, got "
    ) as caught:
        run.lr_scale = value
    assert repr(value) in str(caught.value)
    assert run.lr_scale == 1.0


def test_a_scale_may_be_any_finite_number_from_0(run):
    """0 included: a rate of 0 is a pause."""
    for value in (0, 0.25, 3):
        run.lr_scale = value
        assert run.lr_scale == value


@pytest.mark.parametrize("direction", ["min", "max"])
def test_only_a_finite_number_is_ever_the_best(run, direction):
    """A perplexity can exceed every number, and run.json has no infinity: such a step is as one without a value."""
    run.monitor_direction = direction
    assert [run.improves(value) for value in (None, math.nan, math.inf, -math.inf)] == [False] * 4
    assert run.improves(7.0)
    run.best_value = 7.0
    assert [run.improves(value) for value in (6.0, 7.0, 8.0)] == [direction == "min", False, direction == "max"]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (torch.zeros(3), "a tensor of shape [3]"),
        (np.zeros((1, 2)), "a tensor of shape [1, 2]"),
        ([1.0], "[1.0]"),
        ("a number".split, "<built-in method split"),
    ],
    ids=["tensor", "array", "list", "function"],
)
def test_what_is_no_single_number_is_refused_by_the_name_of_who_logs_it(run, value, told):
    """When it is logged, not when the row is written, where nobody knows any more whose it is."""
    run.speaker = "histogram"
    with pytest.raises(PluginError) as caught:
        run.log({"weights": value})
    assert str(caught.value).startswith(
        f"histogram: run.log: weights: expected a number or a tensor with one, got {told}"
    )


@pytest.mark.parametrize(
    "value", [2, 0.5, np.float32(0.5), np.array(0.5), torch.tensor(0.5), torch.tensor([0.5])], ids=repr
)
def test_single_numbers_of_every_kind_can_be_logged(run, value):
    """Python's, numpy's and tensors of one number; the last stay where they are."""
    run.speaker = "histogram"
    run.log({"mean": value})
    (logged,) = run.take_logged().values()
    assert float(logged) == float(value)
    assert isinstance(logged, torch.Tensor) == isinstance(value, torch.Tensor)
