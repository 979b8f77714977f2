"""What every component that we ship promises: a new one is tested by standing in pyproject.toml."""

import ast
import copy
import importlib
import importlib.metadata
import inspect
import math
import subprocess
import sys
import textwrap

import attrs
import numpy as np
import pytest
import torch

from rtx_core import Horizon, Length, Outputs, ParameterGroup
from rtx_core.components import KINDS
from rtx_plugins.commands.describe import describe

DISTRIBUTION = "rtx-transformers"

EXAMPLES = {
    "lr": 0.05,
    "warmup": Length.parse("2 steps"),
}
"""A value for each required field of the kinds that are built here."""

MODULES = {
    point.name: point.value
    for point in importlib.metadata.entry_points(group="rtx.v1")
    if point.dist is not None and point.dist.name == DISTRIBUTION
}
"""Our entry points, ``kind.name`` to module."""


def of_kind(kind):
    return [point for point in sorted(MODULES) if point.startswith(f"{kind}.")]


def component(point):
    """The class behind an entry point."""
    kind, _, name = point.partition(".")
    return getattr(importlib.import_module(MODULES[point]), kind)()[name]


def settings(point):
    """A component with an example for each required field and defaults for the others."""
    cls = component(point)
    required = [field.name for field in attrs.fields(cls) if field.default is attrs.NOTHING]
    return cls(**{name: EXAMPLES[name] for name in required})


def field_docstrings(cls):
    """The names in a class body that a docstring follows."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    return {
        statement.target.id
        for statement, after in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
        and isinstance(after.value.value, str)
    }


# --- every kind -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", sorted(MODULES))
def test_every_part_can_be_shown(point):
    """What ``plugins show`` prints has each field that a table may set, with a type in words and its docstring."""
    shown = {field.name: field for field in describe(component(point))}
    assert list(shown) == [field.name for field in attrs.fields(component(point)) if field.init]
    assert all(field.type and field.doc for field in shown.values())


@pytest.mark.parametrize("point", sorted(MODULES))
def test_an_entry_point_offers_a_component_of_its_kind(point):
    """The module's hook returns the name, and its class is a frozen attrs class of the kind."""
    cls = component(point)
    assert issubclass(cls, KINDS[point.partition(".")[0]])
    assert attrs.has(cls)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        object.__new__(cls).anything = 1


@pytest.mark.parametrize("point", sorted(MODULES))
def test_a_component_says_what_it_is(point):
    """Its class has a docstring of its own, and so has its module."""
    cls = component(point)
    assert "__doc__" in vars(cls)
    assert cls.__doc__
    assert importlib.import_module(MODULES[point]).__doc__


@pytest.mark.parametrize("point", sorted(MODULES))
def test_every_field_has_its_docstring(point):
    """Under each field, in the class that declares it, stands what it means: ``plugins show`` prints it."""
    documented = set()
    for cls in component(point).__mro__:
        if attrs.has(cls):
            documented |= field_docstrings(cls)
    undocumented = {field.name for field in attrs.fields(component(point))} - documented
    assert undocumented == set()


def test_no_component_module_imports_torch():
    """A pipeline is checked without torch: in a fresh process that can't import it, every module can be imported."""
    program = """
import importlib, sys
sys.modules["torch"] = None  # from now on its import is an error
for module in sys.argv[1:]:
    try:
        importlib.import_module(module)
    except ImportError as error:
        print(module, error)
"""
    modules = sorted(set(MODULES.values()))
    done = subprocess.run([sys.executable, "-c", program, *modules], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --- schedulers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("total", [1, 7, 100])
@pytest.mark.parametrize("point", of_kind("scheduler"))
def test_a_schedule_stays_within_bounds_and_holds_at_its_end(point, total):
    """Every factor is a finite number in [0, 1], the first is the peak, and none changes past the end."""
    steps = Horizon(total=total, run_total=total, steps_per_epoch=7, samples_per_epoch=70, tokens_per_epoch=700)
    schedule = settings(point).build(steps)
    factors = [schedule.factor(i) for i in range(3 * total)]
    assert all(math.isfinite(factor) and 0.0 <= factor <= 1.0 for factor in factors)
    assert factors[0] == 1.0
    assert set(factors[total:]) == {schedule.factor(total)}
    assert schedule.factor(1000 * total) == schedule.factor(total)


# --- optimizers -------------------------------------------------------------------------------------------------------


def quadratic(point, weights):
    """An optimizer over a matrix and a bias, and a function that makes one update towards the least squares."""
    optimizer = settings(point).build(
        [
            ParameterGroup(parameters={"w": weights[0]}, lr=0.05, weight_decay=0.0, layer=None, role="matrix"),
            ParameterGroup(parameters={"b": weights[1]}, lr=0.05, weight_decay=0.0, layer=None, role="bias"),
        ]
    )
    generator = torch.Generator().manual_seed(1)
    inputs, outputs = torch.randn(32, 4, generator=generator), torch.randn(32, 3, generator=generator)
    best = torch.linalg.lstsq(torch.cat([inputs, torch.ones(32, 1)], 1), outputs)
    floor = (torch.cat([inputs, torch.ones(32, 1)], 1) @ best.solution - outputs).square().mean().item()

    def update():
        loss = (inputs @ weights[0] + weights[1] - outputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item() - floor

    return optimizer, update


def start():
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(4, 3, generator=generator)), torch.nn.Parameter(torch.zeros(3))]


@pytest.mark.parametrize("point", of_kind("optimizer"))
def test_an_optimizer_trains_a_small_problem(point):
    """Within 300 updates the excess over the least squares falls to a hundredth."""
    _, update = quadratic(point, start())
    excess = [update() for _ in range(300)]
    assert excess[-1] < 0.01 * excess[0]


@pytest.mark.parametrize("point", of_kind("optimizer"))
def test_an_optimizer_is_restored_exactly(point):
    """From its state_dict another goes on with the same bits."""
    weights = start()
    optimizer, update = quadratic(point, weights)
    for _ in range(5):
        update()
    resumed = [torch.nn.Parameter(weight.detach().clone()) for weight in weights]
    other, resumed_update = quadratic(point, resumed)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for _ in range(5):
        update()
        resumed_update()
    assert all(torch.equal(one, two) for one, two in zip(weights, resumed, strict=True))


# --- targets ----------------------------------------------------------------------------------------------------------

CLASSES = torch.tensor([0, 3, -100, 1, 1, -100, 2])
"""Seven rows of 4 classes, of which two are ignored."""


def targets_of(point, classes):
    """Targets of the first kind that a loss or metric takes, made of classes; an ignored one is NaN among numbers."""
    kind, *_ = component(point).target_kinds
    if kind == "class":
        return classes
    values = torch.nn.functional.one_hot(classes.clamp_min(0), 4).float()
    if kind == "values":
        values = values * 3.5 - torch.arange(len(classes)).unsqueeze(1) / 7.0
    return values.masked_fill((classes < 0).unsqueeze(1), torch.nan)


@pytest.mark.parametrize("point", of_kind("loss") + of_kind("metric") + of_kind("task"))
def test_what_targets_it_takes_is_said(point):
    """Our losses, metrics and tasks say so, and ``check`` refuses those that don't fit each other."""
    cls = component(point)
    kinds = (cls.target_kind,) if point.startswith("task.") else cls.target_kinds
    assert kinds
    assert set(kinds) <= {"class", "labels", "values"}


# --- losses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(7,), (1, 6), (3, 4), (1,) * 7])
@pytest.mark.parametrize("point", [point for point in of_kind("loss") if not component(point).whole_step])
def test_a_loss_does_not_mind_the_cut(point, sizes):
    """Weights, sums and gradients of the pieces add to those of the whole, ignored targets included."""
    part = settings(point).build(Outputs(size=4))
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, 4, generator=generator, dtype=torch.float64)
    targets = targets_of(point, CLASSES)
    whole, cut = (logits.clone().requires_grad_() for _ in range(2))
    expected = part.of_logits(whole, targets)
    expected.backward()
    pieces = list(zip(cut.split(sizes), targets.split(sizes), strict=True))
    total = torch.stack([part.of_logits(*piece) for piece in pieces]).sum()
    total.backward()
    assert sum(part.weight(piece) for _, piece in pieces) == part.weight(targets)
    torch.testing.assert_close(total, expected, rtol=1e-14, atol=0)
    torch.testing.assert_close(cut.grad, whole.grad, rtol=1e-14, atol=0)


@pytest.mark.parametrize("point", of_kind("loss"))
def test_a_loss_of_nothing_is_nothing(point):
    """Where every target is ignored the weight is 0 and the sum is a finite 0."""
    part = settings(point).build(Outputs(size=4))
    targets = targets_of(point, torch.full((3,), -100))
    assert part.weight(targets) == 0.0
    assert part.of_logits(torch.randn(3, 4), targets).item() == 0.0


# --- metrics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", of_kind("metric"))
def test_a_metric_adds_up(point):
    """Batches, and sums of two processes, give the value of the whole; a reset forgets; names are as declared."""
    metric = settings(point)
    generator = torch.Generator().manual_seed(0)
    targets = targets_of(point, torch.randint(-1, 4, (40,), generator=generator))
    rows = torch.randn(40, 4, generator=generator), targets, torch.ones(40)
    whole, first, second = (metric.build(Outputs(size=4, labels=("a", "b", "c", "d"))) for _ in range(3))
    whole.update(*rows)
    first.update(*rows)
    first.reset()
    for number, batch in enumerate(zip(*(tensor.split(7) for tensor in rows), strict=True)):
        (first, second)[number % 2].update(*batch)
    first.add(**second.sums)
    for name, tensors in second.rows.items():
        first.collect(**{name: torch.cat(tensors)})
    expected = whole.compute()
    added = first.compute()
    assert added.keys() == expected.keys() == metric.names().keys()
    for name, value in expected.items():
        np.testing.assert_allclose(added[name], value, rtol=1e-12)
        assert np.isfinite(value).all()


# --- callbacks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", of_kind("callback"))
def test_a_callback_with_state_can_be_restored(point):
    """What keeps state takes it back, and gives it out unchanged."""
    part, other = (settings(point).build() for _ in range(2))
    assert hasattr(part, "state_dict") == hasattr(part, "load_state_dict")
    if hasattr(part, "state_dict"):
        other.load_state_dict(copy.deepcopy(part.state_dict()))
        assert other.state_dict() == part.state_dict()
