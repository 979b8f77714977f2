"""``plugins list`` and ``plugins show``."""

from __future__ import annotations

import importlib
import importlib.metadata
import json

import attrs
import pytest

from rtx_core import Callback, GroupRule, InputPath, Interval, Length, Optimizer, Source
from rtx_core.components import KINDS
from rtx_plugins.commands.curve import curve, drawn
from rtx_plugins.commands.describe import describe, in_words
from rtx_plugins.schedulers.warmup_stable_decay import WarmupStableDecay


def test_list_has_a_line_for_each_entry_point(rtx):
    """Kind, name, distribution and the docstring's first line, for everything that is installed."""
    done = rtx("plugins", "list")
    assert (done.status, done.err) == (0, "")
    heading, *lines = done.out.splitlines()
    assert heading.split() == ["kind", "name", "from", "what", "it", "is"]
    points = importlib.metadata.entry_points(group="rtx.v1")
    assert {tuple(line.split()[:2]) for line in lines} == {tuple(point.name.split(".", 1)) for point in points}
    (adamw,) = [line for line in lines if line.split()[1] == "adamw"]
    assert "rtx-transformers" in adamw
    assert "Adam with decoupled weight decay" in adamw


def test_list_of_a_kind_for_a_program(rtx):
    """``list KIND --json`` has that kind alone."""
    offers = json.loads(rtx("plugins", "list", "data", "--json").out)
    assert {offer["name"] for offer in offers} >= {"csv", "jsonl", "text"}
    assert {offer["kind"] for offer in offers} == {"data"}


def test_list_shows_what_a_name_means(rtx, mine):
    """A part that another replaces is left out, and shown with ``--all``."""
    usual = json.loads(rtx("plugins", "list", "optimizer", "--json", "--plugin", mine).out)
    assert [offer["distribution"] for offer in usual if offer["name"] == "adamw"] == ["extra.py"]
    everything = json.loads(rtx("plugins", "list", "optimizer", "--json", "--all", "--plugin", mine).out)
    states = {offer["distribution"]: offer["state"] for offer in everything if offer["name"] == "adamw"}
    assert states == {"extra.py": "", "rtx-transformers": "shadowed by extra.py"}


def test_list_survives_a_broken_plugin(rtx, installed):
    """Case 30: a plugin whose import fails is listed; only ``--all`` imports it and says what is wrong."""
    installed("loss.bad")
    (offer,) = [o for o in json.loads(rtx("plugins", "list", "loss", "--json").out) if o["name"] == "bad"]
    assert (offer["distribution"], offer["version"], offer["problem"]) == ("acme-rtx", "1.2", "")
    (offer,) = [o for o in json.loads(rtx("plugins", "list", "loss", "--json", "--all").out) if o["name"] == "bad"]
    for part in ("loss.bad of acme-rtx 1.2", "acme_rtx_missing", "ModuleNotFoundError"):
        assert part in offer["problem"]
    assert rtx("--help").status == 0


def test_list_has_entry_points_of_no_kind_as_broken(rtx, installed):
    """They come last, with what is wrong; a list of one kind leaves them out."""
    installed("nokind.x", "lonely")
    for options in ((), ("--all",)):
        offers = json.loads(rtx("plugins", "list", "--json", *options).out)
        told = [(o["kind"], o["name"], o["problem"].partition("; ")[0]) for o in offers if o["state"] == "broken"]
        assert told == [
            ("nokind", "x", 'entry point "nokind.x" of acme-rtx 1.2: nokind is no kind'),
            ("lonely", "", 'entry point "lonely" of acme-rtx 1.2: its name is not KIND.NAME'),
        ]
    assert "nokind is no kind" in rtx("plugins", "list").out
    assert "acme-rtx" not in rtx("plugins", "list", "loss").out


def test_list_names_other_versions_of_the_api(rtx, installed):
    """A plugin for ``rtx.v2`` is no part of this rtx; ``--all`` says what it needs."""
    installed("loss.newer", group="rtx.v2")
    assert "newer" not in rtx("plugins", "list").out
    (line,) = [line for line in rtx("plugins", "list", "--all").out.splitlines() if " newer " in line]
    assert "needs rtx.v2" in line


def test_show_has_every_field_with_its_docstring(rtx):
    """Name, type, range, default and docstring, fields of the kind included; and where the part comes from."""
    done = rtx("plugins", "show", "adamw")
    assert done.status == 0
    assert done.out.startswith("optimizer.adamw of rtx-transformers ")
    assert "\nlr: number > 0.0, required\n    Peak learning rate" in done.out
    assert "\nbetas: [number, number] >= 0.0 and < 1.0, default [0.9, 0.999]\n" in done.out
    assert "\nlayer_lr_decay: number > 0.0 and <= 1.0, may be left out\n" in done.out


def plain(text):
    """Without line breaks and marks of code."""
    return " ".join(text.replace("`", "").split())


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_everything_that_is_installed_can_be_shown(rtx, kind):
    """Of each part: what its module says it is, each field with its type, and of a schedule a curve or why none."""
    points = importlib.metadata.entry_points(group="rtx.v1")
    for point in [point for point in points if point.name.startswith(f"{kind}.")]:
        done = rtx("plugins", "show", f"{point.dist.name}:{point.name}")
        assert (done.status, done.err) == (0, "")
        assert plain(importlib.import_module(point.value).__doc__) in plain(done.out)
        component = getattr(point.load(), kind)()[point.name.partition(".")[2]]
        assert [f.name for f in attrs.fields(component) if f.init and f"\n{f.name}: " not in done.out] == []
        has_curve = "factor of the peak rate over 100 steps" in done.out or "no curve" in done.out
        assert has_curve == (kind == "scheduler")


def test_show_takes_a_kind_and_a_package(rtx, mine):
    """``optimizer.adamw`` is the one that would be used, ``rtx-transformers:optimizer.adamw`` that of the package."""
    used = rtx("plugins", "show", "optimizer.adamw", "--plugin", mine).out
    assert "extra.py" in used
    assert "taken instead of that of rtx-transformers" in used
    assert "nesterov: true or false, default false\n    Look ahead." in used
    pinned = rtx("plugins", "show", "rtx-transformers:optimizer.adamw", "--plugin", mine).out
    assert "nesterov" not in pinned


def test_show_names_the_paper(rtx):
    """The module's docstring stands above the class's; a program gets both."""
    assert "Loshchilov & Hutter 2019, arXiv:1711.05101" in rtx("plugins", "show", "adamw").out
    assert "arXiv:1708.07120" in rtx("plugins", "show", "one_cycle").out
    assert "arXiv:1708.07120" in json.loads(rtx("plugins", "show", "one_cycle", "--json").out)["module_doc"]


def test_show_draws_a_schedule(rtx):
    """``scheduler.linear`` falls in 50 columns of two steps: 8, 6, …, 0 lines of blocks, from 1 down to 0."""
    *_, heading, top, second, third, fourth, fifth, sixth, seventh, bottom, axis = rtx(
        "plugins", "show", "scheduler.linear"
    ).out.splitlines()
    assert heading == "factor of the peak rate over 100 steps, with the defaults:"
    assert (top[:3], bottom[:3]) == ("1 ┤", "0 ┤")
    assert axis.split() == ["0", "50", "100"]
    lines = [line[3:] for line in (top, second, third, fourth, fifth, sixth, seventh, bottom)]
    # Column c shows 1 − 2c / 100, so line k from the bottom has a block where that is more than (k − 1) / 8.
    shown = [sum(round(64 * (1 - 2 * c / 100)) > 8 * (k - 1) for c in range(50)) for k in range(8, 0, -1)]
    assert [len(line) for line in lines] == shown


@pytest.mark.parametrize(
    ("name", "reason"),
    [("step", "no curve: step_size must be written"), ("cyclic", "no curve: base_ratio must be written")],
)
def test_show_says_why_there_is_no_curve(rtx, name, reason):
    """Where a setting has no default there is nothing to draw."""
    assert rtx("plugins", "show", name).out.splitlines()[-1] == reason


def test_a_scheduler_that_100_steps_are_too_short_for_has_no_curve():
    """The reason is what a run would be told."""

    @attrs.frozen(kw_only=True)
    class Long(WarmupStableDecay):
        decay: Length = attrs.field(factory=lambda: Length.parse("101 steps"))

    (line,) = curve(Long)
    assert line.startswith("no curve over 100 steps: scheduler.decay: 101 steps, but there are only 100")


def test_a_drawing_is_as_high_as_the_greatest_of_a_columns_values():
    """Six values in three columns of two lines: one half fills the lower one, five eighths a quarter of the upper."""
    assert drawn([0.0, 0.0, 0.1, 0.5, 0.625, 1 / 16], width=3, height=2) == ["  ▂", " ██"]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("adamww", 'did you mean "adamw"?'),
        ("optimizer.adamww", 'did you mean "adamw"?'),
        ("optimiser.adamw", 'no kind "optimiser"'),
        ("acme:optimizer.adamw", 'no optimizer.adamw in "acme"'),
        ("linear", "write head.linear or scheduler.linear"),
    ],
)
def test_show_of_what_is_not_there_is_one_line(rtx, name, part):
    """Exit status 2 and the way on."""
    done = rtx("plugins", "show", name)
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert part in line


# --- in words ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (int, "integer"),
        (bool, "true or false"),
        (float | None, "number"),
        (tuple[str, ...] | None, "list of text"),
        (str | tuple[str, str], "text or [text, text]"),
        (dict[str, float], "table of number"),
        (Length, 'length, as "3 epochs"'),
        (Interval, 'length, as "3 epochs" or "20 minutes"'),
        (Source, 'folder, "run:NAME" or "hub:ORG/NAME"'),
        (tuple[InputPath, ...], "list of path"),
        (tuple[GroupRule, ...], "list of table of match, lr, weight_decay"),
        (Optimizer, "optimizer (its name, or a table with a type)"),
    ],
    ids=str,
)
def test_types_are_said_in_the_words_of_toml(kind, words):
    """Nobody has to know Python to read what a key takes."""
    assert in_words(kind) == words


def test_a_field_without_docstring_or_with_one_from_a_base_class():
    """A field that a class writes anew keeps its base's docstring unless it has one of its own."""

    @attrs.frozen(kw_only=True)
    class Base(Callback):
        first: int = 1
        """Of the base."""
        second: str | None = None
        """Of the base too."""

    @attrs.frozen(kw_only=True)
    class Derived(Base):
        first: int = 2
        third: Length = attrs.field(factory=lambda: Length.parse("1 epoch"))

    fields = {field.name: (field.default, field.doc) for field in describe(Derived)}
    assert fields == {"first": ("2", "Of the base."), "second": (None, "Of the base too."), "third": ('"1 epoch"', "")}
