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
from pathlib import Path
from typing import get_args

import attrs
import numpy as np
import pytest
import torch

from rtx_core import Horizon, InputError, Length, Outputs, TextRole
from rtx_core.components import KINDS, SpanRole, TargetKind
from rtx_core.schedule import build_schedule, momentum
from rtx_plugins.commands.describe import describe
from rtx_plugins.schedulers.constant import Constant
from rtx_plugins.schedulers.linear import Linear
from rtx_plugins.schedulers.sequence import Part
from rtx_plugins.tasks.span_rows import rows_of_text

DISTRIBUTION = "rtx-transformers"

EXAMPLES = {
    "lr": 0.05,
    "warmup": Length.parse("2 steps"),
    "base_ratio": 0.25,
    "milestones": (Length.parse("2 steps"), Length.parse("50%")),
    "parts": (Part(scheduler=Constant(), length=Length.parse("50%")), Part(scheduler=Linear())),
    "step_size": Length.parse("25%"),
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


ENDS = {
    "constant": 1.0,
    "cosine": 0.0,
    "cyclic": 0.625,  # three quarters of a cycle: half-way between the base, .25, and the peak
    "inverse_sqrt": math.sqrt(10_000 / 15_000),
    "linear": 0.0,
    "multi_step": 0.1**2,
    "one_cycle": 1 / 25 / 1e4,
    "polynomial": 0.0,
    "sequence": 0.0,
    "step": 0.1**4,
    "warmup": 1.0,
    "warmup_stable_decay": 0.0,
}
"""The last factor of each scheduler as docs/schedulers.md has it, with examples and defaults over 5,000 steps."""

SHORTEST = {"cyclic": 4000, "multi_step": 2, "one_cycle": 4, "sequence": 2, "warmup": 2}
"""Steps that a scheduler needs with examples and defaults, where it is more than one."""


def schedule_over(point, total):
    """The schedule over so many steps, warm-up in front where the example has one."""
    lengths = {"steps_per_epoch": 7, "samples_per_epoch": 70, "tokens_per_epoch": 700}
    return build_schedule(settings(point), Horizon(total=total, run_total=total, **lengths))


@pytest.mark.parametrize("total", [1, 2, 7, 100, 5000])
@pytest.mark.parametrize("point", of_kind("scheduler"))
def test_a_schedule_stays_within_bounds_and_holds_at_its_end(point, total):
    """Every factor is a finite number in [0, 1] and none changes past the end; too few steps are refused by number."""
    if total < SHORTEST.get(point.removeprefix("scheduler."), 1):
        with pytest.raises(InputError, match=rf"\b{total}\b"):
            schedule_over(point, total)
        return
    schedule = schedule_over(point, total)
    factors = [schedule.factor(i) for i in range(3 * total)]
    assert all(math.isfinite(factor) and 0.0 <= factor <= 1.0 for factor in factors)
    assert set(factors[total:]) == {schedule.factor(total)}
    assert schedule.factor(1000 * total) == schedule.factor(total)
    momenta = {momentum(schedule, i) for i in range(3 * total)}
    assert momenta == {None} or all(0.0 <= value < 1.0 for value in momenta)
    assert {momentum(schedule, i) for i in range(total, 3 * total)} == {momentum(schedule, 1000 * total)}


@pytest.mark.parametrize("point", of_kind("scheduler"))
def test_a_schedule_reaches_its_peak_and_its_end(point):
    """Over 5,000 steps the greatest factor is 1, and the last is the one that the documentation gives."""
    schedule = schedule_over(point, 5000)
    assert max(schedule.factor(i) for i in range(5000)) == pytest.approx(1.0, abs=1e-6)
    assert schedule.factor(5000) == pytest.approx(ENDS[point.removeprefix("scheduler.")], rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("point", of_kind("scheduler"))
def test_a_schedule_has_its_formula_in_the_documentation(point):
    """``docs/schedulers.md`` has a line for each in its table, with four cells."""
    page = (Path(__file__).parents[2] / "docs" / "schedulers.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith(f"| `{point.removeprefix('scheduler.')}` |")]
    assert line.count(" |") == 4


@pytest.mark.parametrize("point", of_kind("scheduler"))
def test_a_schedule_is_a_pure_function(point):
    """Asked in another order, and again, it gives the same; so a run can go on from any update."""
    order = np.random.default_rng(0).permutation(5000).tolist()
    schedule = schedule_over(point, 5000)
    straight = [(schedule.factor(i), momentum(schedule, i)) for i in range(5000)]
    other = schedule_over(point, 5000)
    shuffled = {i: (other.factor(i), momentum(other, i)) for i in order}
    assert [shuffled[i] for i in range(5000)] == straight
    assert [(schedule.factor(i), momentum(schedule, i)) for i in order] == [straight[i] for i in order]


# --- targets ----------------------------------------------------------------------------------------------------------

CLASSES = torch.tensor([0, 3, -100, 1, 1, -100, 2])
"""Seven rows of 4 classes, of which two are ignored."""


def targets_of(point, classes):
    """Targets of the first kind that a loss or metric takes, made of classes; an ignored one is NaN among numbers.

    Of embeddings every two rows are a pair; an ignored one belongs to nobody. Of spans every row is a sequence of one
    token for a loss, and every two rows a text and what answers it for a metric.
    """
    kind, *_ = component(point).target_kinds
    if kind == "class":
        return classes
    rows = torch.arange(len(classes))
    if kind == "embedding":
        roles = (rows % 2).masked_fill(classes == -100, TextRole.NEGATIVE)
        return torch.stack([roles, rows, torch.zeros_like(rows)], dim=1)
    if kind == "span":
        marks = torch.ones_like(rows).masked_fill(classes < 0, -1)
        if point.startswith("loss."):
            return torch.stack([rows * 0, marks, marks, rows * 0, rows * 0 + 1], dim=1)
        answers = torch.tensor([SpanRole.REFERENCE, 0, 0, 0, 1])
        return torch.from_numpy(rows_of_text("bc")).where((rows % 2 == 0).unsqueeze(1), answers)
    values = torch.nn.functional.one_hot(classes.clamp_min(0), 4).float()
    if kind == "values":
        values = values * 3.5 - torch.arange(len(classes)).unsqueeze(1) / 7.0
    return values.masked_fill((classes < 0).unsqueeze(1), torch.nan)


def outputs_of(point):
    """Four outputs, of spans the two that they have."""
    return Outputs(size=2 if component(point).target_kinds == ("span",) else 4)


@pytest.mark.parametrize("point", of_kind("loss") + of_kind("metric") + of_kind("task"))
def test_what_targets_it_takes_is_said(point):
    """Our losses, metrics and tasks say so, and ``check`` refuses those that don't fit each other."""
    cls = component(point)
    kinds = (cls.target_kind,) if point.startswith("task.") else cls.target_kinds
    assert kinds
    assert set(kinds) <= set(get_args(TargetKind))


# --- losses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(7,), (1, 6), (3, 4), (1,) * 7])
@pytest.mark.parametrize("point", [point for point in of_kind("loss") if not component(point).whole_step])
def test_a_loss_does_not_mind_the_cut(point, sizes):
    """Weights, sums and gradients of the pieces add to those of the whole, ignored targets included."""
    outputs = outputs_of(point)
    part = settings(point).build(outputs)
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, outputs.size, generator=generator, dtype=torch.float64)
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
    outputs = outputs_of(point)
    part = settings(point).build(outputs)
    targets = targets_of(point, torch.full((3,), -100))
    assert part.weight(targets) == 0.0
    assert part.of_logits(torch.randn(3, outputs.size), targets).item() == 0.0


# --- metrics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", of_kind("metric"))
def test_a_metric_adds_up(point):
    """Batches, and sums of two processes, give the value of the whole; a reset forgets; names are as declared."""
    metric = settings(point)
    generator = torch.Generator().manual_seed(0)
    targets = targets_of(point, torch.randint(-1, 4, (40,), generator=generator))
    rows = torch.randn(40, 4, generator=generator), targets, torch.ones(40), torch.arange(40) // 2
    outputs = Outputs(size=4, labels=("B-a", "I-a", "B-b", "O"), scheme="IOB2")
    whole, first, second = (metric.build(outputs) for _ in range(3))
    whole.update_by_sample(*rows)
    first.update_by_sample(*rows)
    first.reset()
    for number, batch in enumerate(zip(*(tensor.split(6) for tensor in rows), strict=True)):
        (first, second)[number % 2].update_by_sample(*batch)
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
