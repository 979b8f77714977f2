"""What every component that we ship promises: a new one is tested by standing in pyproject.toml."""

import ast
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

from rtx_core import Horizon, InputError, Length
from rtx_core.components import KINDS, TargetKind
from rtx_core.schedule import build_schedule, momentum
from rtx_plugins.commands.describe import describe
from rtx_plugins.schedulers.constant import Constant
from rtx_plugins.schedulers.linear import Linear
from rtx_plugins.schedulers.sequence import Part

DISTRIBUTION = "rtx-transformers"

EXAMPLES = {
    "lr": 0.05,
    "warmup": Length.parse("2 steps"),
    "base_ratio": 0.25,
    "match": ("*.bias",),
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


INSTALLED = {f"{point.dist.name}:{point.name}": point for point in importlib.metadata.entry_points(group="rtx.v1")}
"""Everybody's entry points."""


def of_any_distribution(installed):
    """The class behind an entry point of whichever distribution."""
    point = INSTALLED[installed]
    kind, _, name = point.name.partition(".")
    return getattr(point.load(), kind)()[name]


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


@pytest.mark.parametrize("installed", sorted(INSTALLED))
def test_every_part_can_be_shown(installed):
    """What ``plugins show`` prints has each field that a table may set, with a type in words and its docstring."""
    cls = of_any_distribution(installed)
    shown = {field.name: field for field in describe(cls)}
    assert list(shown) == [field.name for field in attrs.fields(cls) if field.init]
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


@pytest.mark.parametrize("installed", sorted(INSTALLED))
def test_every_field_has_its_docstring(installed):
    """Whoever published it: under each field, in the class that declares it, stands what it means."""
    documented = set()
    for cls in of_any_distribution(installed).__mro__:
        if attrs.has(cls):
            documented |= field_docstrings(cls)
    assert {field.name for field in attrs.fields(of_any_distribution(installed))} - documented == set()


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


@pytest.mark.parametrize("point", of_kind("loss") + of_kind("metric") + of_kind("task"))
def test_what_targets_it_takes_is_said(point):
    """Our losses, metrics and tasks say so, and ``check`` refuses those that don't fit each other."""
    cls = component(point)
    kinds = (cls.target_kind,) if point.startswith("task.") else cls.target_kinds
    assert kinds
    assert set(kinds) <= set(get_args(TargetKind))
