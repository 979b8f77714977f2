"""The numbers of the shared cases, what is refused, and what happens at the ends; tests/parity has torch's."""

import attrs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rtx_core import Horizon, InputError, Length
from rtx_core.schedule import build_schedule, momentum, refuse_lost_momentum, set_momentum
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


def horizon(total):
    return Horizon(total=total, run_total=total, steps_per_epoch=1, samples_per_epoch=1, tokens_per_epoch=1)


def length(text):
    return Length.parse(text)


def factors(component, total, updates):
    schedule = build_schedule(component, horizon(total))
    return [schedule.factor(i) for i in updates]


# --- cases ------------------------------------------------------------------------------------------------------------


def test_linear_falls_by_equal_steps_to_the_end():
    """Without warm-up the factor is 1 − i/10 (case 7)."""
    assert factors(Linear(), 10, range(11)) == [1 - i / 10 for i in range(11)]


def test_linear_falls_over_what_warmup_leaves():
    """4 of 10 steps rise from 0, 6 take it from the full rate to 0 (case 7)."""
    expected = [0, 0.25, 0.5, 0.75, 1, 0.8333, 0.6667, 0.5, 0.3333, 0.1667]
    assert factors(Linear(warmup=length("4 steps")), 10, range(10)) == pytest.approx(expected, abs=5e-5)


def test_cosine_has_the_known_values():
    """Half-way the factor is one half, at step 9 of 10 it is 0.0244717 (case 8)."""
    assert factors(Cosine(), 10, [0, 5, 9]) == [1.0, pytest.approx(0.5, abs=1e-15), pytest.approx(0.0244717, abs=5e-8)]


@given(total=st.integers(1, 50), cycles=st.integers(1, 5), min_ratio=st.floats(0.0, 1.0), past=st.integers(0, 1000))
def test_cosine_never_rises_after_its_end(total, cycles, min_ratio, past):
    """From the end on the factor is exactly the least ratio, however many cycles went before (case 8)."""
    component = Cosine(min_ratio=min_ratio, cycles=min(cycles, total))
    assert factors(component, total, [total + past]) == [min_ratio]


def test_polynomial_has_the_known_values():
    """From 1 to 0.1 with power 2: .829, .325 and .109; from 10 on exactly .1 (case 9)."""
    found = factors(Polynomial(min_ratio=0.1, power=2.0), 10, [1, 5, 9, 10, 11, 1000])
    assert found == [*(pytest.approx(value, abs=1e-15) for value in (0.829, 0.325, 0.109)), 0.1, 0.1, 0.1]


def test_one_cycle_has_the_known_values():
    """Ten updates with torch's defaults, and the last of them holds (case 10)."""
    expected = [0.04, 0.52, 1, 0.950485, 0.811746, 0.611262, 0.388742, 0.188258, 0.0495194, 4e-6]
    found = factors(OneCycle(), 10, range(12))
    assert found[:10] == pytest.approx(expected, abs=5e-7)
    assert found[9] == found[10] == found[11] == pytest.approx(4e-6, rel=1e-9)


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("component", "end"),
    [(Linear(), 0.0), (Cosine(min_ratio=0.25), 0.25), (Polynomial(min_ratio=0.5), 0.5), (InverseSqrt(), 1.0)],
)
def test_a_schedule_may_have_nothing_left_after_warmup(component, end):
    """Where warm-up fills the run, what follows is at its end."""
    assert factors(attrs.evolve(component, warmup=length("100%")), 10, [9, 10, 11]) == [0.9, end, end]


@pytest.mark.parametrize("component", [Constant(), Warmup(warmup=length("4 steps"))])
def test_constant_and_warmup_hold_the_peak(component):
    """What follows warm-up is the peak rate, for ever."""
    assert [component.build(horizon(10)).factor(i) for i in (0, 1, 9, 10, 1000)] == [1.0] * 5


def test_warmup_alone_must_say_how_long():
    """The scheduler ``warmup`` has no default length, while the others have 0 steps."""
    assert attrs.fields(Warmup).warmup.default is attrs.NOTHING
    assert Constant().warmup == Linear().warmup == Cosine().warmup == length("0 steps")


def test_lengths_are_of_the_whole_run_and_count_from_warm_up():
    """Of 100 steps the first 10 rise; ``"50%"`` are 50 steps, so that the drop comes at update 60."""
    component = MultiStep(warmup=length("10%"), milestones=(length("50%"),), gamma=0.5)
    assert factors(component, 100, [5, 10, 59, 60, 99]) == [0.5, 1.0, 1.0, 0.5, 0.5]


def test_warmup_stable_decay_of_a_real_run():
    """100,000 steps with 1 % and 10 %: up to 1,000, level to 90,000, 1 − √½ half-way down, 0 at the end."""
    component = WarmupStableDecay(warmup=length("1%"), decay=length("10%"))
    updates = [0, 500, 1000, 89_999, 90_000, 95_000, 100_000]
    expected = [0.0, 0.5, 1.0, 1.0, 1.0, pytest.approx(1 - 0.5**0.5, abs=1e-15), 0.0]
    assert factors(component, 100_000, updates) == expected


def test_inverse_sqrt_takes_its_time_scale_from_warm_up():
    """4 steps of warm-up, then √(4 / (4 + i)): 1/√2 after 4 more, one half after 12 more (Vaswani et al. 2017)."""
    found = factors(InverseSqrt(warmup=length("4 steps")), 100, [2, 4, 8, 16])
    assert found == [0.5, 1.0, pytest.approx(0.5**0.5, abs=1e-15), 0.5]


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("component", "total", "message"),
    [
        (Linear(warmup=length("20 steps")), 9, "scheduler.warmup: 20 steps, but there are only 9 for it"),
        (Cosine(cycles=10), 9, "scheduler.cycles: 10 cycles need as many steps, but there are only 9 for them"),
        (Step(step_size=length("10 steps")), 9, "scheduler.step_size: 10 steps, but there are only 9"),
        (
            Step(step_size=length("60%"), warmup=length("50%")),
            10,
            "scheduler.step_size: 60% are 6 steps, but there are only 5",
        ),
        (
            MultiStep(milestones=(length("2 steps"), length("3 epochs"))),
            2,
            "scheduler.milestones[1]: 3 epochs are 3 steps, but there are only 2",
        ),
        (
            WarmupStableDecay(decay=length("12 epochs")),
            9,
            "scheduler.decay: 12 epochs are 12 steps, but there are only 9",
        ),
        (
            Cyclic(base_ratio=0.1),
            3999,
            "a cycle of 2000 steps up and 2000 down has 4000, but there are only 3999 for it",
        ),
        (OneCycle(), 3, "a rise over 0.3 of the schedule needs at least 4 steps, and it has 3"),
        (OneCycle(pct_start=0.1), 10, "a rise over 0.1 of the schedule needs at least 11 steps, and it has 10"),
        (
            Sequence(parts=(Part(scheduler=Linear(), length=length("12 steps")), Part(scheduler=Linear()))),
            9,
            "scheduler.parts[0].length: 12 steps, but there are only 9 for it",
        ),
        (
            Sequence(parts=(Part(scheduler=Linear(), length=length("9 steps")), Part(scheduler=Linear()))),
            9,
            "scheduler.parts[1]: the parts before it take all 9 steps, so that 0 remain for it",
        ),
        (
            Sequence(parts=(Part(scheduler=Step(step_size=length("10 steps")), length=length("4 steps")),)),
            9,
            "scheduler.parts[0]: scheduler.step_size: 10 steps, but there are only 4 for it",
        ),
    ],
    ids=lambda value: type(value).__name__ if attrs.has(type(value)) else None,
)
def test_a_horizon_that_is_too_short_is_refused(component, total, message):
    """The message says what is too long, and both numbers."""
    with pytest.raises(InputError) as caught:
        build_schedule(component, horizon(total))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("component", "total"),
    [
        (Linear(warmup=length("9 steps")), 9),
        (Cosine(cycles=9), 9),
        (Step(step_size=length("9 steps")), 9),
        (WarmupStableDecay(decay=length("9 steps")), 9),
        (Cyclic(base_ratio=0.1), 4000),
        (OneCycle(), 4),
        (OneCycle(pct_start=0.1), 11),
    ],
    ids=lambda value: type(value).__name__ if attrs.has(type(value)) else None,
)
def test_a_horizon_that_just_suffices_is_taken(component, total):
    """One step less and it is refused, by the test above."""
    assert 0.0 <= build_schedule(component, horizon(total)).factor(total) <= 1.0


@pytest.mark.parametrize(
    ("cls", "wrong"),
    [
        (Cosine, {"min_ratio": -0.1}),
        (Cosine, {"min_ratio": 1.1}),
        (Cosine, {"cycles": 0}),
        (Polynomial, {"power": 0.0}),
        (Polynomial, {"min_ratio": 2.0}),
        (OneCycle, {"pct_start": 0.0}),
        (OneCycle, {"pct_start": 1.0}),
        (OneCycle, {"div_factor": 0.5}),
        (OneCycle, {"final_div_factor": 0.0}),
        (OneCycle, {"max_momentum": 1.0}),
        (Cyclic, {"base_ratio": 1.5}),
        (Cyclic, {"base_ratio": 0.5, "gamma": 1.01}),
        (Step, {"step_size": length("0 steps")}),
        (Step, {"step_size": length("1 step"), "gamma": 1.5}),
        (MultiStep, {"milestones": ()}),
        (MultiStep, {"milestones": (length("0 epochs"),)}),
        (InverseSqrt, {"timescale": length("0 steps")}),
        (WarmupStableDecay, {"decay": length("0%")}),
        (Sequence, {"parts": ()}),
    ],
)
def test_a_setting_out_of_bounds_is_refused(cls, wrong):
    """Ratios lie in [0, 1], lengths last, counts start at 1."""
    with pytest.raises(ValueError, match=r"must|longer|than|Length"):
        cls(**wrong)


@pytest.mark.parametrize(
    ("component", "field", "message"),
    [
        (OneCycle(three_phase=True, pct_start=0.6), "pct_start", "at most 0.5"),
        (OneCycle(div_factor=4.0, final_div_factor=0.2), "final_div_factor", "at least 1 / div_factor, 0.25"),
        (OneCycle(base_momentum=0.96), "base_momentum", "at most max_momentum, 0.95"),
        (Cyclic(base_ratio=0.1, base_momentum=0.95), "base_momentum", "at most max_momentum, 0.9"),
        (Cyclic(base_ratio=0.1, gamma=0.9), "gamma", 'only mode = "exp_range" takes it'),
        (WarmupStableDecay(warmup=length("20%"), decay=length("81%")), "decay", "more than the run"),
        (
            Sequence(parts=(Part(scheduler=Linear()), Part(scheduler=Linear()))),
            "parts[0]",
            "only the last part",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(component, field, message):
    """The pipeline's check names the field."""
    ((found, text),) = component.check()
    assert found == field
    assert message in text


@pytest.mark.parametrize(
    "component",
    [
        OneCycle(three_phase=True, pct_start=0.5),
        OneCycle(div_factor=4.0, final_div_factor=0.25),
        Cyclic(base_ratio=0.1, gamma=0.9, mode="exp_range"),
        WarmupStableDecay(warmup=length("20%"), decay=length("80%")),
        Sequence(parts=(Part(scheduler=Linear(), length=length("1 step")), Part(scheduler=Linear()))),
    ],
)
def test_settings_at_the_bounds_are_taken(component):
    """Nothing is refused that works."""
    assert list(component.check()) == []


# --- sequence ---------------------------------------------------------------------------------------------------------


def parts(*entries):
    return Sequence(parts=tuple(Part(scheduler=component, **settings) for component, settings in entries))


def test_a_sequence_hands_over_at_each_length():
    """4 steps of linear, 3 level at half the peak, then 3 of a warm-up of its own to a quarter, which holds."""
    component = parts(
        (Linear(), {"length": length("4 steps")}),
        (Constant(), {"length": length("30%"), "peak_ratio": 0.5}),
        (Warmup(warmup=length("2 steps")), {"peak_ratio": 0.25}),
    )
    expected = [1.0, 0.75, 0.5, 0.25, 0.5, 0.5, 0.5, 0.0, 0.125, 0.25, 0.25, 0.25]
    assert factors(component, 10, range(12)) == expected


def test_a_sequence_that_ends_early_holds():
    """The last part's own length passes, and its end holds to the end of the run."""
    component = parts((Constant(), {"length": length("2 steps")}), (Linear(), {"length": length("2 steps")}))
    assert factors(component, 10, range(7)) == [1.0, 1.0, 1.0, 0.5, 0.0, 0.0, 0.0]


def test_a_sequence_may_hold_sequences_and_have_a_warm_up():
    """2 steps of warm-up, then a sequence of two whose first is a sequence of two."""
    inner = parts((Constant(), {"length": length("1 step")}), (Linear(), {"peak_ratio": 0.5}))
    outer = parts((inner, {"length": length("3 steps")}), (Constant(), {}))
    found = factors(attrs.evolve(outer, warmup=length("2 steps")), 8, range(8))
    assert found == [0.0, 0.5, 1.0, 0.5, 0.25, 1.0, 1.0, 1.0]


def test_a_part_without_momentum_keeps_that_of_its_neighbours():
    """Before a cycle the momentum is what it begins with, after it what it ended with; without one there is none."""
    cycle = Cyclic(base_ratio=0.1, step_size_up=length("2 steps"), base_momentum=0.5, max_momentum=0.75)
    component = parts(
        (Constant(), {"length": length("2 steps")}), (cycle, {"length": length("6 steps")}), (Constant(), {})
    )
    schedule = build_schedule(component, horizon(10))
    assert [momentum(schedule, i) for i in range(12)] == [*[0.75] * 3, 0.625, 0.5, 0.625, 0.75, 0.625, *[0.5] * 4]
    without = build_schedule(parts((Linear(), {"length": length("1 step")}), (Constant(), {})), horizon(4))
    assert [momentum(without, i) for i in range(5)] == [None] * 5


# --- momentum ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [OneCycle, Cyclic])
def test_cycle_momentum_can_be_switched_off(cls):
    """Then the schedule has none, and an optimizer without any is fine."""
    needed = {"base_ratio": 0.1, "step_size_up": length("2 steps")} if cls is Cyclic else {}
    schedule = build_schedule(cls(cycle_momentum=False, **needed), horizon(10))
    assert [momentum(schedule, i) for i in range(12)] == [None] * 12
    optimizer = torch.optim.Adagrad([torch.nn.Parameter(torch.zeros(1))])
    refuse_lost_momentum(schedule, optimizer)
    set_momentum(schedule, 3, optimizer)
    assert "momentum" not in optimizer.param_groups[0]


def test_warm_up_begins_with_the_momentum_of_what_follows():
    """While the rate rises from 0 the momentum is that of the cycle's first update."""
    schedule = build_schedule(OneCycle(warmup=length("3 steps"), anneal="linear"), horizon(13))
    assert [momentum(schedule, i) for i in (0, 2, 3, 5, 12, 13)] == [0.95, 0.95, 0.95, 0.85, 0.95, 0.95]


def test_momentum_becomes_beta1_or_momentum():
    """Of every group; the second beta stays."""
    schedule = build_schedule(OneCycle(anneal="linear", max_momentum=0.75, base_momentum=0.5), horizon(10))
    groups = [[{"params": [torch.nn.Parameter(torch.zeros(1))]} for _ in range(2)] for _ in range(2)]
    adam, sgd = torch.optim.Adam(groups[0], betas=(0.9, 0.99)), torch.optim.SGD(groups[1], lr=0.1)
    for optimizer in (adam, sgd):
        refuse_lost_momentum(schedule, optimizer)
        set_momentum(schedule, 1, optimizer)
    assert [group["betas"] for group in adam.param_groups] == [(0.625, 0.99)] * 2
    assert [group["momentum"] for group in sgd.param_groups] == [0.625] * 2


def test_an_optimizer_without_momentum_is_refused():
    """Before the first step, with what to write instead."""
    schedule = build_schedule(OneCycle(), horizon(10))
    with pytest.raises(
        InputError, match="Adagrad has neither betas nor momentum; set scheduler.cycle_momentum = false"
    ):
        refuse_lost_momentum(schedule, torch.optim.Adagrad([torch.nn.Parameter(torch.zeros(1))]))
