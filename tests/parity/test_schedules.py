"""Every schedule that torch or transformers has, update by update, over a search of settings.

Theirs is asked up to its end: past it torch's cosine rises again, and its one cycle refuses to go on, while ours hold.
"""

from __future__ import annotations

import attrs
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim import lr_scheduler

from rtx_core import Horizon, Length
from rtx_core.schedule import build_schedule, momentum
from rtx_plugins.schedulers.constant import Constant
from rtx_plugins.schedulers.cosine import Cosine
from rtx_plugins.schedulers.cyclic import Cyclic
from rtx_plugins.schedulers.inverse_sqrt import InverseSqrt
from rtx_plugins.schedulers.linear import Linear
from rtx_plugins.schedulers.multi_step import MultiStep
from rtx_plugins.schedulers.one_cycle import OneCycle
from rtx_plugins.schedulers.polynomial import Polynomial
from rtx_plugins.schedulers.sequence import Part, Sequence
from rtx_plugins.schedulers.step import Step
from rtx_plugins.schedulers.warmup import Warmup
from rtx_plugins.schedulers.warmup_stable_decay import WarmupStableDecay

searched = settings(deadline=None, max_examples=60)

totals = st.integers(1, 60)
warmups = st.integers(0, 20)
ratios = st.floats(0.0, 1.0)
gammas = st.floats(0.01, 1.0)
momenta = st.lists(st.floats(0.0, 0.99), min_size=2, max_size=2).map(sorted)
optimizers = st.sampled_from([torch.optim.SGD, torch.optim.Adam])


def steps(number):
    return Length.parse(f"{number} steps")


def ours(component, total):
    """The factors from update 0 to the end, warm-up in front."""
    schedule = schedule_of(component, total)
    return [schedule.factor(i) for i in range(total + 1)]


def schedule_of(component, total):
    lengths = {"steps_per_epoch": 1, "samples_per_epoch": 1, "tokens_per_epoch": 1}
    return build_schedule(component, Horizon(total=total, run_total=total, **lengths))


def theirs(make, last, optimizer=torch.optim.SGD):
    """The rates for a peak of 1 that theirs gives to the updates up to ``last``."""
    return course(make, last, optimizer)[0]


def course(make, last, optimizer):
    """The rates, and the momenta or beta1s."""
    optimizer = optimizer([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    (group,) = optimizer.param_groups
    scheduler = make(optimizer)
    rates, momenta = [], []
    for i in range(last + 1):
        rates.append(group["lr"])
        momenta.append(group["betas"][0] if "betas" in group else group["momentum"])
        if i < last:
            optimizer.step()
            scheduler.step()
    return rates, momenta


def close(expected):
    return pytest.approx(expected, rel=0, abs=1e-12)


# --- torch ------------------------------------------------------------------------------------------------------------


@searched
@given(total=totals)
def test_linear_is_torchs_linear_lr(total):
    """A fall from 1 to 0 by LinearLR."""
    assert ours(Linear(), total) == close(theirs(lambda o: lr_scheduler.LinearLR(o, 1.0, 0.0, total), total))


@searched
@given(total=totals, min_ratio=ratios)
def test_cosine_is_torchs_cosine_annealing(total, min_ratio):
    """One fall by CosineAnnealingLR."""
    expected = theirs(lambda o: lr_scheduler.CosineAnnealingLR(o, total, min_ratio), total)
    assert ours(Cosine(min_ratio=min_ratio), total) == close(expected)


@searched
@given(length=st.integers(1, 40), cycles=st.integers(1, 5), min_ratio=ratios)
def test_cosine_with_cycles_is_torchs_warm_restarts(length, cycles, min_ratio):
    """Every cycle by CosineAnnealingWarmRestarts, which begins another one at the end."""
    last = length * cycles - 1
    expected = theirs(lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, length, eta_min=min_ratio), last)
    assert ours(Cosine(min_ratio=min_ratio, cycles=cycles), last + 1)[:-1] == close(expected)


@searched
@given(total=totals, power=st.floats(0.1, 5.0))
def test_polynomial_is_torchs_polynomial_lr(total, power):
    """From 1 to 0 by PolynomialLR."""
    expected = theirs(lambda o: lr_scheduler.PolynomialLR(o, total, power), total)
    assert ours(Polynomial(power=power), total) == close(expected)


@searched
@given(
    total=st.integers(2, 60),
    share=st.floats(0.01, 0.99),
    div_factor=st.floats(1.0, 100.0),
    final_div_factor=st.floats(1.0, 1e5),
    anneal=st.sampled_from(["cosine", "linear"]),
    three_phase=st.booleans(),
    momenta=momenta,
    optimizer=optimizers,
)
def test_one_cycle_is_torchs(total, share, anneal, momenta, optimizer, three_phase, **factors):
    """Rate and momentum by OneCycleLR, with Adam's beta1 and with SGD's momentum, in two and in three phases."""
    top = 0.5 if three_phase else 1.0  # with a larger share torch's second phase would end after the third
    low, high = 1.01 / total, top
    if low >= high:
        return
    pct_start = low + share * (high - low)
    base, most = momenta
    rates, expected = course(
        lambda o: lr_scheduler.OneCycleLR(
            o,
            max_lr=1.0,
            total_steps=total,
            pct_start=pct_start,
            anneal_strategy="cos" if anneal == "cosine" else anneal,
            base_momentum=base,
            max_momentum=most,
            three_phase=three_phase,
            **factors,
        ),
        total - 1,
        optimizer,
    )
    component = OneCycle(
        pct_start=pct_start,
        anneal=anneal,
        three_phase=three_phase,
        base_momentum=base,
        max_momentum=most,
        **factors,
    )
    schedule = schedule_of(component, total)
    assert [schedule.factor(i) for i in range(total)] == close(rates)
    assert [momentum(schedule, i) for i in range(total)] == close(expected)


@searched
@given(
    total=st.integers(20, 80),
    up=st.integers(1, 10),
    down=st.none() | st.integers(1, 10),
    mode=st.sampled_from(["triangular", "triangular2", "exp_range"]),
    gamma=st.floats(0.8, 1.0),
    base_ratio=ratios,
    momenta=momenta,
    optimizer=optimizers,
)
def test_cyclic_is_torchs(total, up, down, mode, gamma, base_ratio, momenta, optimizer):
    """Rate and momentum by CyclicLR in each mode."""
    gamma = gamma if mode == "exp_range" else 1.0
    base, most = momenta
    rates, expected = course(
        lambda o: lr_scheduler.CyclicLR(
            o,
            base_lr=base_ratio,
            max_lr=1.0,
            step_size_up=up,
            step_size_down=down,
            mode=mode,
            gamma=gamma,
            base_momentum=base,
            max_momentum=most,
        ),
        total,
        optimizer,
    )
    component = Cyclic(
        base_ratio=base_ratio,
        step_size_up=steps(up),
        step_size_down=None if down is None else steps(down),
        mode=mode,
        gamma=gamma,
        base_momentum=base,
        max_momentum=most,
    )
    schedule = schedule_of(component, total)
    assert ours(component, total) == close(rates)
    assert [momentum(schedule, i) for i in range(total + 1)] == close(expected)


@searched
@given(total=totals, size=st.integers(1, 60), gamma=ratios)
def test_step_is_torchs(total, size, gamma):
    """Drops at equal distances by StepLR."""
    size = min(size, total)
    expected = theirs(lambda o: lr_scheduler.StepLR(o, size, gamma), total)
    assert ours(Step(step_size=steps(size), gamma=gamma), total) == close(expected)


@searched
@given(total=totals, gamma=gammas)
def test_a_drop_each_step_is_torchs_exponential_lr(total, gamma):
    """``step_size = "1 step"`` by ExponentialLR."""
    expected = theirs(lambda o: lr_scheduler.ExponentialLR(o, gamma), total)
    assert ours(Step(step_size=steps(1), gamma=gamma), total) == close(expected)


@searched
@given(total=totals, places=st.lists(st.integers(1, 60), min_size=1, max_size=6), gamma=ratios)
def test_multi_step_is_torchs(total, places, gamma):
    """Drops at milestones in any order, some of them twice, by MultiStepLR."""
    places = [min(place, total) for place in places]
    expected = theirs(lambda o: lr_scheduler.MultiStepLR(o, places, gamma), total)
    assert ours(MultiStep(milestones=tuple(map(steps, places)), gamma=gamma), total) == close(expected)


def torch_and_ours(total, gamma):
    """Pairs that last so long, for what chains them."""
    return [
        (lambda o: lr_scheduler.CosineAnnealingLR(o, total, 0.1), Cosine(min_ratio=0.1)),
        (lambda o: lr_scheduler.PolynomialLR(o, total, 2.0), Polynomial(power=2.0)),
        (lambda o: lr_scheduler.StepLR(o, 1, gamma), Step(step_size=steps(1), gamma=gamma)),
        (lambda o: lr_scheduler.LinearLR(o, 1.0, 0.0, total), Linear()),
        (lambda o: lr_scheduler.MultiStepLR(o, [1, total], gamma), MultiStep(milestones=(steps(1),), gamma=gamma)),
    ]


@searched
@given(first=st.integers(1, 20), second=st.integers(1, 20), which=st.permutations(range(5)), gamma=gammas)
def test_a_sequence_is_torchs_sequential_lr(first, second, which, gamma):
    """Two of five schedules one after the other by SequentialLR, each from its own beginning."""
    their_first, our_first = torch_and_ours(first, gamma)[which[0]]
    their_second, our_second = torch_and_ours(second, gamma)[which[1]]
    expected = theirs(
        lambda o: lr_scheduler.SequentialLR(o, [their_first(o), their_second(o)], [first]), first + second - 1
    )
    found = Sequence(parts=(Part(scheduler=our_first, length=steps(first)), Part(scheduler=our_second)))
    assert ours(found, first + second)[:-1] == close(expected)


@searched
@given(warmup=st.integers(1, 20), rest=st.integers(1, 20), which=st.integers(0, 4), gamma=gammas)
def test_warm_up_is_a_sequential_lr_in_front(warmup, rest, which, gamma):
    """Any of five schedules after a LambdaLR that rises from 0, by SequentialLR."""
    make, component = torch_and_ours(rest, gamma)[which]
    expected = theirs(
        lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.LambdaLR(o, lambda i: i / warmup), make(o)], milestones=[warmup]
        ),
        warmup + rest - 1,
    )
    warm = attrs.evolve(component, warmup=steps(warmup))
    assert ours(warm, warmup + rest)[:-1] == close(expected)


# --- transformers -----------------------------------------------------------------------------------------------------


@searched
@given(warmup=warmups, rest=totals)
def test_linear_is_transformers(warmup, rest):
    """With warm-up by get_linear_schedule_with_warmup."""
    total = warmup + rest
    expected = theirs(lambda o: transformers.get_linear_schedule_with_warmup(o, warmup, total), total)
    assert ours(Linear(warmup=steps(warmup)), total) == close(expected)


@searched
@given(warmup=warmups, rest=totals)
def test_constant_is_transformers(warmup, rest):
    """``constant`` and ``warmup`` by get_constant_schedule_with_warmup."""
    expected = theirs(lambda o: transformers.get_constant_schedule_with_warmup(o, warmup), warmup + rest)
    assert ours(Constant(warmup=steps(warmup)), warmup + rest) == close(expected)
    assert ours(Warmup(warmup=steps(warmup)), warmup + rest) == close(expected)


@searched
@given(warmup=warmups, rest=totals, min_ratio=ratios)
def test_cosine_is_transformers(warmup, rest, min_ratio):
    """With warm-up by get_cosine_with_min_lr_schedule_with_warmup."""
    total = warmup + rest
    make = transformers.get_cosine_with_min_lr_schedule_with_warmup
    expected = theirs(lambda o: make(o, warmup, total, min_lr_rate=min_ratio), total)
    assert ours(Cosine(warmup=steps(warmup), min_ratio=min_ratio), total) == close(expected)


@searched
@given(warmup=warmups, length=st.sampled_from([1, 2, 4, 8, 16]), cycles=st.integers(1, 5))
def test_cosine_with_cycles_is_transformers(warmup, length, cycles):
    """With warm-up by get_cosine_with_hard_restarts_schedule_with_warmup.

    Of other lengths its rounding puts some restarts one update late.
    """
    total = warmup + length * cycles
    make = transformers.get_cosine_with_hard_restarts_schedule_with_warmup
    expected = theirs(lambda o: make(o, warmup, total, num_cycles=cycles), total)
    assert ours(Cosine(warmup=steps(warmup), cycles=cycles), total) == close(expected)


@searched
@given(warmup=warmups, rest=totals, min_ratio=st.floats(0.0, 0.99), power=st.floats(0.1, 5.0))
def test_polynomial_is_transformers(warmup, rest, min_ratio, power):
    """With warm-up by get_polynomial_decay_schedule_with_warmup."""
    total = warmup + rest
    make = transformers.get_polynomial_decay_schedule_with_warmup
    expected = theirs(lambda o: make(o, warmup, total, lr_end=min_ratio, power=power), total)
    assert ours(Polynomial(warmup=steps(warmup), min_ratio=min_ratio, power=power), total) == close(expected)


@searched
@given(warmup=warmups, rest=totals, timescale=st.none() | st.integers(1, 100))
def test_inverse_sqrt_is_transformers(warmup, rest, timescale):
    """With and without a time scale of its own by get_inverse_sqrt_schedule."""
    expected = theirs(lambda o: transformers.get_inverse_sqrt_schedule(o, warmup, timescale), warmup + rest)
    own = None if timescale is None else steps(timescale)
    assert ours(InverseSqrt(warmup=steps(warmup), timescale=own), warmup + rest) == close(expected)


@searched
@given(
    warmup=warmups,
    stable=st.integers(0, 40),
    decay=st.integers(1, 40),
    shape=st.sampled_from(["linear", "cosine", "sqrt"]),
    min_ratio=ratios,
)
def test_warmup_stable_decay_is_transformers(warmup, stable, decay, shape, min_ratio):
    """Each shape by get_wsd_schedule, whose warm-up begins at 0 where it has no least ratio."""
    total = warmup + stable + decay
    if warmup:
        min_ratio = 0.0
    kind = "1-sqrt" if shape == "sqrt" else shape
    expected = theirs(
        lambda o: transformers.get_wsd_schedule(
            o, warmup, decay, num_training_steps=total, decay_type=kind, min_lr_ratio=min_ratio
        ),
        total,
    )
    component = WarmupStableDecay(warmup=steps(warmup), decay=steps(decay), shape=shape, min_ratio=min_ratio)
    assert ours(component, total) == close(expected)
