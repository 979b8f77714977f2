"""The parts of an outside package, each against a formula or an independent implementation."""

import copy
import importlib
import importlib.util
import io
import itertools
import math
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.metrics import top_k_accuracy_score

from rtx_core import Batch, GroupRule, Horizon, Outputs, ParameterGroup, Run, Sample
from rtx_core.components import KINDS
from rtx_core.console import Console
from rtx_plugins.optimizers.adamw import AdamW

HERE = Path(__file__).parent
ACME = HERE / "acme-rtx"


@pytest.fixture(autouse=True)
def _acme_can_be_imported(monkeypatch):
    monkeypatch.syspath_prepend(str(ACME))


def component(kind, name):
    """The component that the package's entry point offers."""
    points = tomllib.loads((ACME / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]["rtx.v1"]
    return getattr(importlib.import_module(points[f"{kind}.{name}"]), kind)()[name]


def horizon(total):
    return Horizon(total=total, run_total=total, steps_per_epoch=1, samples_per_epoch=1, tokens_per_epoch=1)


def group(weight, *, lr, weight_decay=0.0):
    return ParameterGroup(parameters={"w": weight}, lr=lr, weight_decay=weight_decay, layer=None, role="matrix")


def test_every_entry_point_offers_a_component_of_its_kind():
    """The map in pyproject.toml is true: each module's hook returns the name, and its class is of that kind."""
    points = tomllib.loads((ACME / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]["rtx.v1"]
    kinds = sorted(point.partition(".")[0] for point in points)
    assert kinds == ["callback", "head", "optimizer", "optimizer", "scheduler"]
    for point in points:
        kind, _, name = point.partition(".")
        assert issubclass(component(kind, name), KINDS[kind])


# --- adamw ------------------------------------------------------------------------------------------------------------


def test_acmes_adamw_gives_the_numbers_of_ours():
    """20 updates equal those of rtx's fused AdamW within float32, from the same table of settings."""
    weights = []
    for kind in (component("optimizer", "adamw"), AdamW):
        weight = torch.nn.Parameter(torch.linspace(-1, 1, 10))
        optimizer = kind(lr=0.01, weight_decay=0.1, betas=(0.9, 0.99)).build([group(weight, lr=0.01, weight_decay=0.1)])
        generator = torch.Generator().manual_seed(0)
        for _ in range(20):
            weight.grad = torch.randn(10, generator=generator)
            optimizer.step()
        weights.append(weight.detach())
    assert optimizer.param_groups[0]["fused"] is True
    torch.testing.assert_close(*weights, rtol=1e-6, atol=1e-7)


# --- prodigy ----------------------------------------------------------------------------------------------------------


def paper(x, gradient_of, steps, *, decay=0.0, d=1e-6, beta1=0.9, beta2=0.999, eps=1e-8):
    """Algorithm 4 of arXiv:2306.06101 in numpy, with γ = 1 and decoupled decay; the weights and d after each step."""
    start, m, v, r, s, root = x.copy(), 0.0, 0.0, 0.0, np.zeros_like(x), math.sqrt(beta2)
    for _ in range(steps):
        g = gradient_of(x)
        m = beta1 * m + (1 - beta1) * d * g
        v = beta2 * v + (1 - beta2) * d**2 * g**2
        r = root * r + (1 - root) * d**2 * (g @ (start - x))
        s = root * s + (1 - root) * d**2 * g
        x = x - d * (m / (np.sqrt(v) + d * eps) + decay * x)
        d = max(d, r / np.abs(s).sum())
        yield x, d


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_prodigy_is_the_papers_algorithm(decay):
    """In float64 weights and the estimate d follow algorithm 4 at every one of 200 steps within 1e-9."""
    curvature, target = np.array([1.0, 4.0, 0.25]), np.array([3.0, -2.0, 5.0])
    weight = torch.nn.Parameter(torch.tensor([0.5, 0.0, 1.0], dtype=torch.float64))
    optimizer = component("optimizer", "prodigy")(weight_decay=decay).build([group(weight, lr=1.0, weight_decay=decay)])
    reference = paper(weight.detach().numpy().copy(), lambda x: curvature * (x - target), 200, decay=decay)
    for x, d in reference:
        weight.grad = torch.from_numpy(curvature) * (weight.detach() - torch.from_numpy(target))
        optimizer.step()
        assert optimizer.param_groups[0]["d"] == pytest.approx(d, rel=1e-9)
        np.testing.assert_allclose(weight.detach().numpy(), x, rtol=1e-9, atol=1e-12)
    assert d > 1.0  # it left 1e-6 far behind, so the agreement is about more than the first estimate


def test_prodigy_needs_no_rate():
    """From d0 = 1e-6 and lr 1 it comes close to the least of a quadratic whose start is 5 away."""
    weight = torch.nn.Parameter(torch.zeros(3))
    target = torch.tensor([3.0, -2.0, 5.0])
    optimizer = component("optimizer", "prodigy")().build([group(weight, lr=1.0)])
    for step in range(400):
        optimizer.param_groups[0]["lr"] = 1 - step / 400
        weight.grad = weight.detach() - target
        optimizer.step()
    torch.testing.assert_close(weight.detach(), target, rtol=0, atol=0.05)


def test_the_estimate_may_be_kept_from_growing_fast():
    """With growth_rate 1.02 d is at most 1.02 times the last, after its first growth; d_max keeps the estimate."""
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = component("optimizer", "prodigy")(growth_rate=1.02).build([group(weight, lr=1.0)])
    estimates = []
    for _ in range(60):
        weight.grad = weight.detach() - 1.0
        optimizer.step()
        estimates.append(optimizer.param_groups[0]["d"])
    grown = [later / earlier for earlier, later in itertools.pairwise(estimates) if earlier > 1e-6]
    assert max(grown) == pytest.approx(1.02, rel=1e-12)
    assert optimizer.param_groups[0]["d_max"] > estimates[-1]


def test_prodigy_waits_for_the_first_gradient():
    """Zero gradients and a rate of 0 (the first step of a warm-up) leave weights and estimate alone."""
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = component("optimizer", "prodigy")(weight_decay=0.1).build([group(weight, lr=1.0, weight_decay=0.1)])
    weight.grad = torch.zeros(2)
    optimizer.step()
    optimizer.param_groups[0]["lr"], weight.grad = 0.0, torch.ones(2)
    optimizer.step()
    assert weight.tolist() == [1.0, 1.0]
    assert optimizer.param_groups[0]["d"] == 1e-6


def test_prodigys_floats_are_restored_exactly():
    """A second optimizer goes on from the state with the same bits; d, d_max and d_numerator are plain floats in it."""
    kind, target = component("optimizer", "prodigy"), torch.tensor([3.0, -2.0])
    straight = torch.nn.Parameter(torch.zeros(2))
    optimizer = kind().build([group(straight, lr=1.0)])

    def train(optimizer, weight):
        for _ in range(20):
            weight.grad = weight.detach() - target
            optimizer.step()

    train(optimizer, straight)
    state = copy.deepcopy(optimizer.state_dict())
    assert {name: type(state["param_groups"][0][name]) for name in ("d", "d_max", "d_numerator")} == {
        "d": float,
        "d_max": float,
        "d_numerator": float,
    }
    resumed = torch.nn.Parameter(straight.detach().clone())
    other = kind().build([group(resumed, lr=1.0)])
    other.load_state_dict(state)
    train(optimizer, straight)
    train(other, resumed)
    assert torch.equal(straight, resumed)
    assert other.param_groups[0]["d"] == optimizer.param_groups[0]["d"]


def test_prodigy_refuses_rates_of_single_layers():
    """One estimate serves all parameters: ``check`` names each field that would give some another rate."""
    rule = GroupRule(match=("*.bias",), lr=0.1)
    assert [field for field, _ in component("optimizer", "prodigy")(layer_lr_decay=0.9, groups=(rule,)).check()] == [
        "layer_lr_decay",
        "groups",
    ]
    assert (
        list(component("optimizer", "prodigy")(groups=(GroupRule(match=("*.bias",), weight_decay=0.0),)).check()) == []
    )


# --- rex --------------------------------------------------------------------------------------------------------------


def test_rex_is_the_papers_formula():
    """(1 − z) / (1 − z/2): 1 at first, 2/3 half-way, 0 from the end on."""
    schedule = component("scheduler", "rex")().build(horizon(10))
    assert [schedule.factor(i) for i in (0, 5, 10, 11, 1000)] == [1.0, pytest.approx(2 / 3), 0.0, 0.0, 0.0]
    # The paper writes it as (1 − z) / (1/2 + (1 − z)/2).
    expected = [(1 - i / 10) / (0.5 + 0.5 * (1 - i / 10)) for i in range(10)]
    assert [schedule.factor(i) for i in range(10)] == pytest.approx(expected, rel=1e-15)


# --- spike_guard ------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    """A run that needs neither a model nor a pipeline."""
    return Run(
        pipeline=None,
        folder=tmp_path,
        model=None,
        optimizer=None,
        strategy=SimpleNamespace(device=torch.device("cpu"), rank=0, world_size=1),
        console=Console(io.StringIO()),
        horizon=horizon(10),
        monitor="eval/loss",
        monitor_direction="min",
        threads=1,
    )


def guard(**settings):
    return component("callback", "spike_guard")(**settings).build()


def log(part, run, *losses):
    """Feed one row per loss; the rate's scale and whether a checkpoint was asked for, after each."""
    seen = []
    for loss in losses:
        run.checkpoint_requested = False
        part.on_log(run=run, values={"train/loss": loss})
        seen.append((run.lr_scale, run.checkpoint_requested))
    return seen


def test_a_spike_lowers_the_rate_and_asks_for_a_checkpoint(run):
    """Losses 1, 1.9, 3.2 against twice a running mean of 1 and then 1.45: only the third is a spike."""
    part = guard(threshold=2.0, momentum=0.5, factor=0.5)
    assert log(part, run, 1.0, 1.9, 3.2) == [(1.0, False), (1.0, False), (0.5, True)]
    assert part.mean == pytest.approx(1.45 + 0.5 * (2.9 - 1.45))  # the spike counts as the limit
    assert run.console.rich.file.getvalue() == (
        "warning: spike_guard: the loss is 3.2 after a mean of 1.45; the rate is lowered\n"
    )


def test_the_rate_comes_back_slowly_and_not_too_far(run):
    """After a spike every calm step multiplies by 1.5, and the last one stops at the whole rate."""
    part = guard(factor=0.5, recovery=1.5)
    log(part, run, 1.0, 100.0)
    assert [scale for scale, _ in log(part, run, 1.0, 1.0, 1.0)] == [0.75, 1.0, 1.0]


def test_what_other_parts_do_to_the_rate_stays(run):
    """A scale of 0.1 that another part set is 0.1 again once the spike is over."""
    run.lr_scale = 0.1
    part = guard(factor=0.5, recovery=2.0)
    assert [scale for scale, _ in log(part, run, 1.0, 100.0, 1.0, 1.0)] == pytest.approx([0.1, 0.05, 0.1, 0.1])


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_what_is_no_number_is_a_spike_and_spoils_no_mean(run, loss):
    """NaN and infinity are answered like a jump, and the mean stays finite."""
    part = guard()
    assert log(part, run, 1.0, loss)[-1] == (0.5, True)
    assert math.isfinite(part.mean)


def test_a_skipped_step_is_passed_by(run):
    """A row without a loss changes nothing."""
    part = guard()
    log(part, run, 1.0, None)
    part.on_log(run=run, values={"skipped": "overflow"})
    assert part.state_dict() == {"mean": 1.0, "scale": 1.0}


def test_the_guard_goes_on_from_its_state(run):
    """A restored part does with the next losses what the first one does."""
    first, second = guard(), guard()
    log(first, run, 1.0, 9.0, 1.2)
    second.load_state_dict(first.state_dict())
    scale = run.lr_scale
    expected = log(first, run, 1.1, 9.0, 1.0)
    run.lr_scale = scale
    assert log(second, run, 1.1, 9.0, 1.0) == expected
    assert second.state_dict() == first.state_dict()


# --- attention_pooling ------------------------------------------------------------------------------------------------


def packed(*lengths):
    """A batch of sequences of these lengths, each with one target at its first token."""
    zeros = [np.zeros(length, np.int32) for length in lengths]
    one = np.zeros(1, np.int64)
    return Batch.of([Sample(ids, ids, one, one) for ids in zeros], range(len(lengths)))


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_pooling_is_a_softmax_over_each_sequence(scale):
    """Features equal softmax(h·q)·h of each sequence alone, for scores of any size, with the same gradients."""
    torch.manual_seed(0)
    batch = packed(3, 1, 5)
    part = component("head", "attention_pooling")().build(4, 2).double()
    torch.nn.init.normal_(part.query, std=scale)
    hidden = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)
    features = part.features(hidden, batch)
    expected = torch.stack([(h @ part.query).softmax(0) @ h for h in hidden.split((3, 1, 5))])
    torch.testing.assert_close(features, expected, rtol=1e-12, atol=1e-12)
    ours = torch.autograd.grad(features.square().sum(), (hidden, part.query))
    theirs = torch.autograd.grad(expected.square().sum(), (hidden, part.query))
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12 * scale)
    assert part.project(features).shape == (3, 2)


def test_a_new_query_takes_the_mean():
    """Initialised from the seed, the query is 0 and features are the plain mean of each sequence."""
    part = component("head", "attention_pooling")(initializer_range=0.5).build(4, 3)
    with torch.no_grad():
        for name, parameter in part.named_parameters():
            part.initialize(name, parameter, torch.Generator().manual_seed(0))
    hidden = torch.randn(5, 4)
    expected = torch.stack([hidden[:2].mean(0), hidden[2:].mean(0)])
    torch.testing.assert_close(part.features(hidden, packed(2, 3)), expected)
    assert not part.classifier.bias.any()
    expected_weight = torch.empty(3, 4).normal_(std=0.5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(part.classifier.weight, expected_weight)


def test_each_target_gets_the_pooled_state_of_its_sequence():
    """One row a target, whatever the number of targets in a sequence."""
    part = component("head", "attention_pooling")().build(4, 2)
    batch = packed(2, 3)
    batch.target_positions = torch.tensor([0, 1, 4])
    hidden = torch.randn(5, 4)
    first, second = hidden[:2].mean(0), hidden[2:].mean(0)
    torch.testing.assert_close(part.features(hidden, batch), torch.stack([first, first, second]))


# --- top2_accuracy ----------------------------------------------------------------------------------------------------


@pytest.fixture
def top2():
    """The one-file metric, imported by its path."""
    spec = importlib.util.spec_from_file_location("top2_accuracy", HERE / "top2_accuracy.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.metric()["top2_accuracy"]()


def test_top2_accuracy_is_scikit_learns(top2):
    """Over uneven batches it equals top_k_accuracy_score of the rows that count."""
    generator = torch.Generator().manual_seed(0)
    logits, targets = torch.randn(50, 4, generator=generator), torch.randint(0, 4, (50,), generator=generator)
    weights = (torch.rand(50, generator=generator) < 0.8).float()
    part = top2.build(Outputs(size=4))
    for batch in zip(logits.split(7), targets.split(7), weights.split(7), strict=True):
        part.update(*batch)
    kept = weights > 0
    expected = top_k_accuracy_score(targets[kept].numpy(), logits[kept].numpy(), k=2, labels=range(4))
    assert part.compute() == {"top2_accuracy": pytest.approx(expected, rel=1e-6)}
    assert top2.names() == {"top2_accuracy": "max"}


def test_a_metric_takes_15_lines():
    """The file has at most 15 lines that aren't blank."""
    lines = (HERE / "top2_accuracy.py").read_text(encoding="utf-8").splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 15
