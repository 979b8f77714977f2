"""The schedules against torch's, and the numbers of the shared cases."""

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rtx_core import Horizon, Length
from rtx_plugins.schedulers.constant import Constant
from rtx_plugins.schedulers.cosine import Cosine
from rtx_plugins.schedulers.linear import Linear
from rtx_plugins.schedulers.warmup import Warmup


def horizon(total):
    return Horizon(total=total, run_total=total, steps_per_epoch=1, samples_per_epoch=1, tokens_per_epoch=1)


def torch_rates(make, steps):
    """The rates that a torch scheduler gives to a peak of 1, from step 0 on."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def test_linear_falls_by_equal_steps_to_the_end():
    """Without warm-up the factor is 1 − i/10 (case 7)."""
    schedule = Linear().build(horizon(10))
    assert [schedule.factor(i) for i in range(11)] == [1 - i / 10 for i in range(11)]


def test_linear_falls_over_what_warmup_leaves():
    """After 4 of 10 steps of warm-up it takes 6 from the full rate to 0 (case 7)."""
    schedule = Linear().build(horizon(10).after(4))
    expected = [1, 0.8333, 0.6667, 0.5, 0.3333, 0.1667]
    assert [schedule.factor(i) for i in range(6)] == pytest.approx(expected, abs=5e-5)


@settings(deadline=None)  # torch's first scheduler imports a good deal
@given(total=st.integers(1, 60))
def test_linear_is_torchs_linear_lr(total):
    """Every step equals torch's LinearLR from 1 to 0, past the end too."""
    schedule = Linear().build(horizon(total))
    # torch multiplies the last rate by a quotient in each step, which adds a rounding error a step.
    expected = torch_rates(lambda o: torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.0, total_iters=total), total + 3)
    assert [schedule.factor(i) for i in range(total + 3)] == pytest.approx(expected, abs=1e-13)


def test_cosine_has_the_known_values():
    """Half-way the factor is one half, at step 9 of 10 it is 0.0244717 (case 8)."""
    schedule = Cosine().build(horizon(10))
    assert schedule.factor(0) == 1.0
    assert schedule.factor(5) == pytest.approx(0.5, abs=1e-15)
    assert schedule.factor(9) == pytest.approx(0.0244717, abs=5e-8)


@settings(deadline=None)
@given(length=st.integers(1, 40), cycles=st.integers(1, 5), min_ratio=st.floats(0.0, 1.0))
def test_cosine_is_torchs_annealing_with_warm_restarts(length, cycles, min_ratio):
    """Every step of every cycle equals torch's CosineAnnealingWarmRestarts within 1e-12."""
    schedule = Cosine(min_ratio=min_ratio, cycles=cycles).build(horizon(length * cycles))
    expected = torch_rates(
        lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, length, eta_min=min_ratio), length * cycles
    )
    assert [schedule.factor(i) for i in range(length * cycles)] == pytest.approx(expected, abs=1e-12)


@given(total=st.integers(0, 50), cycles=st.integers(1, 5), min_ratio=st.floats(0.0, 1.0), past=st.integers(0, 1000))
def test_cosine_never_rises_after_its_end(total, cycles, min_ratio, past):
    """From the end on the factor is exactly the least ratio, however many cycles went before (case 8)."""
    assert Cosine(min_ratio=min_ratio, cycles=cycles).build(horizon(total)).factor(total + past) == min_ratio


def test_a_schedule_may_have_nothing_left_after_warmup():
    """Where warm-up fills the run, what follows is at its end."""
    assert Linear().build(horizon(0)).factor(0) == 0.0
    assert Cosine(min_ratio=0.25).build(horizon(0)).factor(0) == 0.25


@pytest.mark.parametrize("component", [Constant(), Warmup(warmup=Length.parse("4 steps"))])
def test_constant_and_warmup_hold_the_peak(component):
    """What follows warm-up is the peak rate, for ever."""
    schedule = component.build(horizon(10))
    assert [schedule.factor(i) for i in (0, 1, 9, 10, 1000)] == [1.0] * 5


def test_warmup_alone_must_say_how_long():
    """The scheduler ``warmup`` has no default length, while the others have 0 steps."""
    assert attrs.fields(Warmup).warmup.default is attrs.NOTHING
    assert Constant().warmup == Linear().warmup == Cosine().warmup == Length.parse("0 steps")


@pytest.mark.parametrize("wrong", [{"min_ratio": -0.1}, {"min_ratio": 1.1}, {"cycles": 0}])
def test_cosine_refuses_what_is_no_ratio_or_count(wrong):
    """A ratio lies in [0, 1] and there is at least one fall."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Cosine(**wrong)
