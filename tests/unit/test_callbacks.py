"""What callbacks that change a step do, each on a small run."""

import contextlib
import io
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rtx_core import Horizon, InputError, Run
from rtx_core.config.pipeline import evaluated
from rtx_core.console import Console
from rtx_core.registry import PartHooks
from rtx_plugins.callbacks.amp import Amp
from rtx_plugins.callbacks.clip_grad_norm import ClipGradNorm
from rtx_plugins.callbacks.clip_grad_value import ClipGradValue
from rtx_plugins.callbacks.early_stopping import EarlyStopping
from rtx_plugins.callbacks.ema import Ema
from rtx_plugins.callbacks.nan_guard import NanGuard
from rtx_plugins.callbacks.reduce_on_plateau import ReduceOnPlateau
from rtx_plugins.metrics.accuracy import Accuracy
from rtx_plugins.metrics.f1 import F1

NAN = math.nan


@pytest.fixture
def make_run(tmp_path):
    """A run of two parameters in two groups, and a third that is not trained."""

    def make(*, monitor="eval/loss", direction="min", whole_step=False):
        model = torch.nn.ParameterList([torch.zeros(1), torch.zeros(1), torch.zeros(1)])
        return Run(
            pipeline=SimpleNamespace(
                evaluated=evaluated({"accuracy": Accuracy(), "f1": F1(average="none")}, [""]),
                loss=SimpleNamespace(whole_step=whole_step),
            ),
            folder=tmp_path,
            model=model,
            optimizer=torch.optim.SGD([{"params": [model[0]]}, {"params": [model[1]]}], lr=1.0),
            strategy=SimpleNamespace(device=torch.device("cpu"), rank=0, world_size=1),
            console=Console(io.StringIO()),
            horizon=Horizon(total=10, run_total=10, steps_per_epoch=5, samples_per_epoch=5, tokens_per_epoch=50),
            monitor=monitor,
            monitor_direction=direction,
            threads=1,
        )

    return make


class Strategy:
    """Answers the hook that amp wraps."""

    def compute_loss(self, run, batch):
        return (torch.ones(2, 2) @ torch.ones(2, 2))[0, 0]


def hooks_of(part, run):
    """The hooks of a part, called as the loop does."""
    hooks = PartHooks({"callback.tested": part, "strategy": Strategy()}, default="strategy")
    hooks.run = run
    return hooks.call


# --- clip_grad_norm ---------------------------------------------------------------------------------------------------


def test_clipping_scales_the_whole_gradient_by_one_factor(make_run):
    """Gradients 3 and 4 of two groups have norm 5; max_norm 1 leaves 0.6 and 0.8, and 5 is logged as a tensor."""
    run = make_run()
    run.model[0].grad, run.model[1].grad = torch.tensor([3.0]), torch.tensor([4.0])
    hooks_of(ClipGradNorm(max_norm=1.0).build(), run).on_gradients(run=run)
    # torch divides by norm + 1e-6.
    assert [p.grad.item() for p in run.model[:2]] == pytest.approx([0.6, 0.8], rel=1e-6)
    logged = run.take_logged()
    assert isinstance(logged["grad_norm"], torch.Tensor)  # a number would have waited for the device
    assert logged["grad_norm"].item() == 5.0


def test_a_gradient_within_the_norm_is_left_alone(make_run):
    """Norm 0.5 under max_norm 1 keeps its bits; what the optimizer doesn't hold or has no gradient takes no part."""
    run = make_run()
    run.model[0].grad, run.model[2].grad = torch.tensor([0.5]), torch.tensor([100.0])
    hooks_of(ClipGradNorm().build(), run).on_gradients(run=run)
    assert run.model[0].grad.item() == 0.5
    assert run.model[2].grad.item() == 100.0
    assert run.take_logged()["grad_norm"].item() == 0.5


def test_opposite_gradients_of_a_step_have_no_norm_to_clip(make_run):
    """What adds to 0 over the micro-batches stays 0 under max_norm 0.05 (case 5)."""
    run = make_run()
    bias = run.model[0]
    for share in (-0.125, -0.125, 0.125, 0.125):
        (share * bias).sum().backward()
    hooks_of(ClipGradNorm(max_norm=0.05).build(), run).on_gradients(run=run)
    assert bias.grad.item() == 0.0


@pytest.mark.parametrize("max_norm", [0.5, 1e4])
def test_clipping_is_that_of_torch_to_the_bit(make_run, max_norm):
    """Norm and gradients of tensors of several sizes equal those of ``torch.nn.utils.clip_grad_norm_``."""
    generator, runs = torch.Generator().manual_seed(0), [make_run() for _ in range(2)]
    for index, size in enumerate((3, 1000)):
        gradient = torch.randn(size, generator=generator)
        for run in runs:
            parameter = run.optimizer.param_groups[index]["params"][0]
            parameter.data, parameter.grad = torch.zeros(size), gradient.clone()
    ours, theirs = ([p for g in run.optimizer.param_groups for p in g["params"]] for run in runs)
    hooks_of(ClipGradNorm(max_norm=max_norm).build(), runs[0]).on_gradients(run=runs[0])
    norm = torch.nn.utils.clip_grad_norm_(theirs, max_norm)
    assert torch.equal(runs[0].take_logged()["grad_norm"], norm)
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))


def test_a_value_is_cut_alone(make_run):
    """Entries beyond the largest value become it, with their sign; others keep their bits."""
    run = make_run()
    run.model[0].data = torch.zeros(4)
    run.model[0].grad = torch.tensor([0.5, -0.25, 3.0, -3.0])
    hooks_of(ClipGradValue(max_value=0.5).build(), run).on_gradients(run=run)
    assert run.model[0].grad.tolist() == [0.5, -0.25, 0.5, -0.5]


@pytest.mark.parametrize("max_norm", [0.0, -1.0])
def test_a_norm_is_above_0(max_norm):
    """There is no number that means off: ``enabled = false`` does."""
    with pytest.raises(ValueError, match="max_norm"):
        ClipGradNorm(max_norm=max_norm)


# --- amp --------------------------------------------------------------------------------------------------------------


def dtype_of_products(part, run):
    """The dtype in which a matrix product under the part's wrapper comes out."""
    return hooks_of(part, run).compute_loss(run=run, batch=None).dtype


@pytest.mark.parametrize(
    ("dtype", "device", "why"),
    [
        ("auto", "cpu", ""),
        ("float32", "cpu", ""),
        ("bf16", "cpu", "cpu doesn't compute in bfloat16 here; the run stays in float32"),
        ("bf16", "mps", "mps doesn't compute in bfloat16 here; the run stays in float32"),
        ("fp16", "mps", "float16 needs a GPU of CUDA or a CPU, not mps"),
        ("fp16", "cpu", None),
    ],
)
def test_amp_says_where_it_is_inactive(dtype, device, why):
    """On a CPU bfloat16 and what was only tried are inactive, the latter without a word; float16 works."""
    assert Amp(dtype=dtype).inactive_on(torch.device(device)) == why


@pytest.mark.parametrize(("dtype", "expected"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_amp_wraps_the_forward_pass_alone(make_run, dtype, expected):
    """Products inside compute_loss are of the dtype; outside, and after an error in it, they are float32."""
    run, part = make_run(), Amp(dtype=dtype).build()
    assert dtype_of_products(part, run) == expected
    assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


@pytest.mark.parametrize(
    ("dtype", "supported", "why"),
    [
        ("auto", True, None),
        ("auto", False, ""),
        ("bf16", True, None),
        ("bf16", False, "cuda doesn't compute in bfloat16 here; the run stays in float32"),
    ],
)
def test_amp_goes_by_what_the_gpu_computes(monkeypatch, dtype, supported, why):
    """On a GPU auto and bf16 take bfloat16 where it is no emulation."""
    asked = []
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **how: asked.append(how) or supported)
    assert Amp(dtype=dtype).inactive_on(torch.device("cuda")) == why
    assert asked == [{"including_emulation": False}]


def test_a_scaler_and_cached_gradients_exclude_each_other(make_run):
    """A loss over the whole step sends gradients through a cache, which fp16 would scale twice."""
    run = make_run(whole_step=True)
    with pytest.raises(InputError, match=r'callbacks\.amp\.dtype: "fp16" can\'t be used .*; take "bf16"'):
        hooks_of(Amp(dtype="fp16").build(), run).on_build(run=run)


# --- nan_guard, ema ---------------------------------------------------------------------------------------------------


def test_pairs_can_not_be_left_out(make_run):
    """``rewind`` ignores the targets of samples, which a loss over pairs of them can't."""
    run = make_run(whole_step=True)
    with pytest.raises(InputError, match=r'callbacks\.nan_guard\.action: "rewind" .*; take "skip" or "stop"'):
        hooks_of(NanGuard(action="rewind").build(), run).on_build(run=run)
    hooks_of(NanGuard(action="skip").build(), run).on_build(run=run)


def test_the_decay_of_an_average_rises_to_its_value():
    """With warm-up it is (1 + n) / (10 + n) until that is more than the decay; without, the decay from the start."""
    part = Ema(decay=0.5).build()
    assert [part.decay(n) for n in (1, 2, 7, 8, 9, 1000)] == [2 / 11, 3 / 12, 8 / 17, 0.5, 0.5, 0.5]
    assert [Ema(decay=0.5, warmup=False).build().decay(n) for n in (1, 2)] == [0.5, 0.5]


def test_two_averages_exclude_each_other(make_run):
    """An optimizer that shows other weights than it trains (schedule-free) leaves nothing for another to show."""
    run = make_run()
    run.optimizer.train = run.optimizer.eval = lambda: None
    with pytest.raises(InputError, match=r"callbacks\.ema: the optimizer has an average of its own"):
        hooks_of(Ema().build(), run).on_build(run=run)


# --- early_stopping ---------------------------------------------------------------------------------------------------


def evaluate(part, run, values, name="eval"):
    """Feed one value per evaluation; the evaluation after which the run stops, counted from 1, None if it goes on."""
    hooks = hooks_of(part, run)
    hooks.on_build(run=run)
    for number, value in enumerate(values, start=1):
        hooks.on_eval_end(run=run, name=name, values={"eval/loss": value, "eval/accuracy": value})
        if run.stop_reason is not None:
            return number
    return None


def test_patience_goes_on_after_a_resume(make_run):
    """0.5, 0.6, 0.7, a resume, 0.8 with patience 3: stops right after the 4th, and best stays 0.5 (case 15)."""
    before = EarlyStopping(patience=3).build()
    assert evaluate(before, make_run(), [0.5, 0.6, 0.7]) is None
    assert before.state_dict() == {"best": 0.5, "count": 2}
    run, after = make_run(), EarlyStopping(patience=3).build()
    after.load_state_dict(before.state_dict())
    assert evaluate(after, run, [0.8]) == 1
    assert after.best == 0.5
    assert run.stop_reason == "early_stopping: eval/loss has not improved for 3 evaluations (best 0.5)"


def test_nan_is_never_best(make_run):
    """NaN, 0.6, 0.5 (min): best is 0.5, and NaN counts as no improvement (case 16)."""
    run, part = make_run(), EarlyStopping(patience=2).build()
    assert evaluate(part, run, [NAN]) is None
    assert part.state_dict() == {"best": None, "count": 1}
    assert evaluate(part, run, [0.6, 0.5]) is None
    assert part.state_dict() == {"best": 0.5, "count": 0}
    assert evaluate(part, run, [NAN, None]) == 2
    assert part.best == 0.5


def test_the_state_holds_plain_numbers(make_run):
    """A metric may give numpy's numbers, which a checkpoint would refuse."""
    part = EarlyStopping().build()
    evaluate(part, make_run(), [np.float64(0.5)])
    assert type(part.state_dict()["best"]) is float


def test_only_nan_stops_too(make_run):
    """Patience ends although there never was a number, and the reason says so."""
    run = make_run()
    assert evaluate(EarlyStopping(patience=1).build(), run, [NAN]) == 1
    assert run.stop_reason == "early_stopping: eval/loss has not improved for 1 evaluation (it never was a number)"


@pytest.mark.parametrize(
    ("direction", "values", "stops"), [("max", [0.1, 0.2, 0.3, 0.3, 0.2], 5), ("min", [0.1, 0.2, 0.3], 3)]
)
def test_the_direction_is_the_monitors(make_run, direction, values, stops):
    """Larger is better for max, smaller for min, and an equal value is no improvement."""
    run = make_run(monitor="eval/accuracy", direction=direction)
    assert evaluate(EarlyStopping(patience=2).build(), run, values) == stops


def test_small_gains_are_no_improvement(make_run):
    """Each must beat the best by more than min_delta, and the best doesn't creep along meanwhile."""
    part = EarlyStopping(patience=3, min_delta=0.125).build()
    assert evaluate(part, make_run(), [1.0, 0.9375, 0.875, 0.8125]) is None
    assert part.state_dict() == {"best": 0.8125, "count": 0}


def test_other_sets_are_passed_by(make_run):
    """An evaluation that doesn't hold the monitored value neither improves nor counts."""
    run = make_run(monitor="eval/clean/loss")
    part = EarlyStopping(patience=1).build()
    hooks = hooks_of(part, run)
    hooks.on_build(run=run)
    hooks.on_eval_end(run=run, name="eval/clean", values={"eval/clean/loss": 0.5})
    hooks.on_eval_end(run=run, name="eval/noisy", values={"eval/noisy/loss": 0.9})
    hooks.on_eval_end(run=run, name="test", values={"test/loss": 0.9})
    assert run.stop_reason is None
    assert part.state_dict() == {"best": 0.5, "count": 0}


def test_it_may_look_at_another_value_than_the_run(make_run):
    """With its own monitor the direction is that value's: accuracy rises while the run goes by the loss."""
    run, part = make_run(), EarlyStopping(patience=1, monitor="eval/accuracy").build()
    assert evaluate(part, run, [0.1, 0.2, 0.3]) is None
    assert part.best == 0.3


@pytest.mark.parametrize("settings", [{"patience": 0}, {"min_delta": -0.1}])
def test_patience_and_delta_have_a_range(settings):
    """Patience is at least 1 and min_delta not negative."""
    with pytest.raises(ValueError, match=next(iter(settings))):
        EarlyStopping(**settings)


# --- reduce_on_plateau ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["min", "max"])
@pytest.mark.parametrize(("patience", "min_delta"), [(1, 0.0), (3, 0.125)])
def test_the_rate_falls_when_torchs_does(make_run, direction, patience, min_delta):
    """Over 60 evaluations, NaN among them, the scale is that of ``ReduceLROnPlateau``, whose patience is one less."""
    run = make_run(monitor="eval/accuracy", direction=direction)
    hooks = hooks_of(ReduceOnPlateau(factor=0.5, patience=patience, min_delta=min_delta).build(), run)
    hooks.on_build(run=run)
    theirs = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
        theirs, direction, factor=0.5, patience=patience - 1, threshold=min_delta, threshold_mode="abs", eps=0.0
    )
    values = np.random.default_rng(0).integers(0, 64, 60) / 16.0
    values[[0, 7, 20, 21, 22]] = NAN
    for value in values.tolist():
        hooks.on_eval_end(run=run, name="eval", values={"eval/accuracy": value})
        plateau.step(value)
        assert run.lr_scale == theirs.param_groups[0]["lr"]
    assert run.lr_scale < 0.5


@pytest.mark.parametrize("factor", [0.0, 1.0, 2.0])
def test_the_factor_lowers_the_rate(factor):
    """It is between 0 and 1, both left out."""
    with pytest.raises(ValueError, match="factor"):
        ReduceOnPlateau(factor=factor)
