"""Values are taken strictly, every rule is checked on its own, and what is wrong is said in plain words."""

from __future__ import annotations

import math
from fractions import Fraction

import attrs
import pytest

from rtx_core import Interval, Length, Source
from rtx_core.config.rules import plain_words
from rtx_core.errors import PluginError


@pytest.fixture
def typed(loaded, base):
    """The callback of parts.py that has a field of every type, with one assignment."""

    def load_one(assignment, *sets):
        return loaded(f"{base}[callbacks.typed]\n{assignment}\n", *sets).callbacks["typed"]

    return load_one


@pytest.fixture
def wrong(lines, base):
    """The messages for one wrong assignment in a callback, without their places."""

    def messages(assignment, table="typed"):
        found = lines(f"{base}[callbacks.{table}]\n{assignment}\n")
        return [line.split(f"callbacks.{table}", 1)[1].lstrip(".") for line in found]

    return messages


# --- types ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignment", "field", "value"),
    [
        ("flag = true", "flag", True),
        ("count = 2", "count", 2),
        ("rate = 2", "rate", 2.0),
        ("rate = 1e-3", "rate", 1e-3),
        ('word = ""', "word", ""),
        ('mode = "slow"', "mode", "slow"),
        ("maybe = 3", "maybe", 3),
        ("many = []", "many", ()),
        ("many = [1, 2]", "many", (1, 2)),
        ("pair = [1, 2.5]", "pair", (1.0, 2.5)),
        ("table = { a = 1 }", "table", {"a": 1.0}),
        ('length = "0.5 epochs"', "length", Length(Fraction(1, 2), "epochs")),
        ('every = "20 minutes"', "every", Interval(Fraction(20), "minutes")),
        ('either = "auto"', "either", "auto"),
        ("either = 3", "either", 3),
        ('text = "a"', "text", "a"),
        ('text = ["a", "b"]', "text", ("a", "b")),
        ("anything = { a = [1, 'b'] }", "anything", {"a": (1, "b")}),
        ('inner = "constant"', "inner", "Constant"),
        ('inner = "rtx-transformers:constant"', "inner", "Constant"),
        ("unbounded = inf", "unbounded", math.inf),
    ],
)
def test_a_value_of_the_right_type_is_taken(typed, assignment, field, value):
    """Each type takes its TOML values; an integer is a valid float, and it becomes one."""
    found = getattr(typed(assignment), field)
    if field == "inner":
        found = type(found).__name__
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ('flag = "false"', 'flag: expected true or false, got "false"; write false'),
        ("flag = 1", "flag: expected true or false, got 1"),
        ("count = true", "count: expected an integer, got true"),
        ("count = 2.7", "count: expected an integer, got 2.7"),
        ("count = 2.0", "count: expected an integer, got 2.0; write 2"),
        ('count = "2"', 'count: expected an integer, got "2"; write 2'),
        ('rate = "5e-5"', 'rate: expected a number, got "5e-5"; write 5e-5'),
        ("rate = true", "rate: expected a number, got true"),
        ("rate = nan", "rate: expected a finite number, got nan"),
        ("rate = -inf", "rate: expected a finite number, got -inf"),
        (f"rate = 1{'0' * 400}", "rate: is too large for a number"),
        ("count = 9_223_372_036_854_775_808", "count: is too large for an integer of 64 bits"),
        ("rate = 1979-05-27", "rate: expected a number, got a date or time"),
        ("word = 3", 'word: expected text, got 3; write "3"'),
        ("word = true", 'word: expected text, got true; write "true"'),
        ("word = ['a']", "word: expected text, got a list"),
        ('mode = "slwo"', 'mode: expected "fast" or "slow", got "slwo"; did you mean "slow"?'),
        ("mode = 1", 'mode: expected "fast" or "slow", got 1'),
        ('maybe = "1"', 'maybe: expected an integer, got "1"; write 1'),
        ("many = 1", "many: expected a list of integers, got 1"),
        ("many = [1, 2.5]", "many[1]: expected an integer, got 2.5"),
        ("pair = [1.0]", "pair: expected two numbers, got a list of 1"),
        ("pair = [nan, 1.0]", "pair[0]: expected a finite number, got nan"),
        ("table = [1]", "table: expected a table, got a list"),
        ('table = { a = 1, "b c" = "x" }', 'table."b c": expected a number, got "x"'),
        ("table = { a = inf }", "table.a: expected a finite number, got inf"),
        ("length = 3", 'length: a length needs a unit: "3 epochs" or "3 steps"?'),
        ("length = true", 'length: expected a length like "500 steps", got true'),
        ('length = "3"', 'length: a length needs a unit: "3 epochs" or "3 steps"?'),
        (
            'length = "3 weeks"',
            'length: unknown unit "weeks" in "3 weeks"; units are steps, epochs, tokens, samples, %',
        ),
        ('length = "20 minutes"', 'length: unknown unit "minutes" in "20 minutes"; units are'),
        ("path = 3", "path: expected a path, got 3"),
        ('path = ""', "path: expected a path, got an empty text"),
        ('source = "org/name"', "source: no folder "),
        ('source = "run:"', 'source: expected a folder, "run:NAME" or "hub:ORG/NAME", got "run:"'),
        ('source = "run:none"', 'source: run "none" has kept no model here: there is no folder '),
        ('source = "hub:org/name@"', 'source: expected "hub:ORG/NAME" or "hub:ORG/NAME@REVISION", got "hub:org/name@"'),
        ("rule = 3", "rule: expected a table, got 3"),
        ("rule = {}", "rule.match: missing; it is required"),
        ('rules = [{ match = ["a"], facter = 1 }]', 'rules[0].facter: unknown key; did you mean "factor"?'),
        ("either = 1.5", 'either: expected an integer or "auto", got 1.5'),
        ('either = "none"', 'either: expected an integer or "auto", got "none"'),
        ('text = ["a"]', "text: expected text or two texts, got a list of 1"),
        ("text = []", "text: expected text or two texts, got an empty list"),
        ("pair = []", "pair: expected two numbers, got an empty list"),
        ("text = 3", 'text: expected text or two texts, got 3; write "3"'),
        ("inner = 3", "inner: expected the name or the table of one scheduler, got 3"),
        ('inner = "constnat"', 'inner: no scheduler "constnat" is installed; did you mean "constant"?'),
        ('inner = "acme:constant"', 'inner: no scheduler.constant in "acme"'),
        ("inner = { min_ratio = 0.1 }", "inner.type: missing; it names the scheduler: chain, constant, cosine"),
        ("inner = { type = 3 }", 'inner.type: expected text, got 3; write "3"'),
        (
            'inner = { type = "cosine", cycels = 2 }',
            'inner.cycels: unknown key; did you mean "cycles"? (scheduler.cosine',
        ),
        ('inners = ["constant", { type = "chain", parts = ["none"] }]', 'inners[1].parts[0]: no scheduler "none"'),
    ],
)
def test_a_value_of_another_type_is_refused(wrong, assignment, message):
    """Nothing is coerced; the message names the key, what was expected, and what to write where that is plain."""
    (found,) = wrong(assignment)
    assert found.startswith(message)


def test_a_path_is_absolute_and_stays_a_glob(typed, folder):
    """A path is joined to its file's folder, whatever characters it has."""
    assert typed('path = "a/../b/*.txt"').path == folder / "a/../b/*.txt"
    assert typed('path = "/abs"').path == folder.__class__("/abs")


def test_sources_are_read(typed, folder):
    """A folder is absolute; a run is looked for in the working directory."""
    (folder / "weights").mkdir()
    (folder / "runs" / "first" / "model").mkdir(parents=True)
    assert typed('source = "weights"').source == Source("folder", str(folder / "weights"))
    assert typed('source = "run:first"').source == Source("run", "first")


def test_components_nest(typed):
    """A field that is typed as a kind takes names and tables, at any depth."""
    chain = typed('inner = { type = "chain", parts = ["linear", { type = "cosine", cycles = 2 }] }').inner
    assert [type(part).__name__ for part in chain.parts] == ["Linear", "Cosine"]
    assert chain.parts[1].cycles == 2


@pytest.mark.parametrize(
    ("option", "field", "value"),
    [
        ("word=5", "word", "5"),
        ('word="5"', "word", '"5"'),
        ("word=a b", "word", "a b"),
        ("mode=slow", "mode", "slow"),
        ("length=10%", "length", Length(Fraction(10), "%")),
        ("either=auto", "either", "auto"),
        ("either=4", "either", 4),
        ("text=a b", "text", "a b"),
        ('text=["a", "b"]', "text", ("a", "b")),
        ("many=[1]", "many", (1,)),
        ("anything=3", "anything", 3),
        ("rule={ match = ['x'] }", "rule", ("x",)),
        ("rule.match=['x']", "rule", ("x",)),
        ("inner=constant", "inner", "Constant"),
        ('inner={ type = "constant" }', "inner", "Constant"),
    ],
)
def test_the_field_decides_how_set_is_read(typed, option, field, value):
    """For text and lengths ``--set`` takes the text as it stands, for anything else it is a TOML value."""
    found = getattr(typed("", f"callbacks.typed.{option}"), field)
    found = found.match if field == "rule" else type(found).__name__ if field == "inner" else found
    assert found == value


# --- rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignment", "messages"),
    [
        ("low = -1", ["low: must be >= 0.0, got -1.0"]),
        ("odd = -2", ["odd: must be >= 0, got -2", "odd: must be one of [1, 3], got -2"]),
        ('code = "a"', ['code: must have the form [A-Z]+, got "a"']),
        ("names = []", ["names: needs at least 1 of them, got 0"]),
        ("shares = [2, 0.5, 3]", ["shares[0]: must be <= 1.0, got 2.0", "shares[2]: must be <= 1.0, got 3.0"]),
        ("weights = { a = 2 }", ["weights.a: must be <= 1.0, got 2.0"]),
        ("limit = 0", ["limit: must be > 0.0, got 0.0"]),
        ("low = 0.5\nhigh = 0.2", ["high: must not be below low, which is 0.5"]),
        ('low = "x"\nhigh = -5.0', ['low: expected a number, got "x"']),
        ('code = "BAD"\nodd = 3', ["code: is not allowed with this odd", "odd: is not allowed with this code"]),
        ('code = "BAD"', ["code: is not allowed with this odd", "odd: is not allowed with this code"]),
        ('low = -1\nodd = "x"\nother = 1', None),
    ],
)
def test_every_rule_is_checked_on_its_own(wrong, assignment, messages):
    """All broken rules of all fields are reported, each at its element; those across fields once these are valid."""
    found = wrong(assignment, table="ruled")
    if messages is None:
        assert [line.partition(":")[0] for line in found] == ["low", "odd", "other"]
    else:
        assert sorted(found) == sorted(messages)


def test_rules_do_not_hide_type_errors_elsewhere(wrong):
    """A broken rule, a wrong type, an unknown key and a missing key in one table are four problems."""
    found = wrong('rules = [{ factor = 11.0 }, { match = 3, factor = "x", more = 1 }]')
    assert [line.partition(":")[0] for line in found] == [
        "rules[0].match",
        "rules[0].factor",
        "rules[1].match",
        "rules[1].factor",
        "rules[1].more",
    ]


def test_case_28(problems, base):
    """Seven values of a wrong type or outside their range are seven errors, each with its line, in one report."""
    text = (
        base.replace('duration = "3 epochs"', "duration = 3")
        .replace("batch_size = 8", "batch_size = true")
        .replace("lr = 5e-4", 'lr = "5e-5"\nbetas = [0.9, 1.0]')
    )
    text += '[callbacks.amp]\nenabled = "false"\n'
    text += '[[optimizer.groups]]\nmatch = ["*.bias"]\nlr = nan\n[[optimizer.groups]]\nmatch = ["*"]\nlr = -1\n'
    found = problems(text)
    assert [(problem.place.line, problem.place.column, problem.path, problem.message) for problem in found] == [
        (22, 6, "optimizer.lr", 'expected a number, got "5e-5"; write 5e-5'),
        (23, 15, "optimizer.betas[1]", "must be < 1.0, got 1.0"),
        (26, 12, "training.duration", 'a length needs a unit: "3 epochs" or "3 steps"?'),
        (27, 14, "training.batch_size", "expected an integer, got true"),
        (29, 11, "callbacks.amp.enabled", 'expected true or false, got "false"; write false'),
        (32, 6, "optimizer.groups[0].lr", "expected a finite number, got nan"),
        (35, 6, "optimizer.groups[1].lr", "must be >= 0.0, got -1.0"),
    ]


def test_case_28_an_integer_rate_is_a_number(loaded, base):
    """``lr = 1`` is 1.0."""
    rate = loaded(base.replace("lr = 5e-4", "lr = 1")).optimizer.lr
    assert rate == 1.0
    assert type(rate) is float


@pytest.mark.parametrize("rule", [attrs.validators.lt(3), attrs.validators.ge(3), attrs.validators.le(3)])
def test_attrs_messages_become_plain_words(rule):
    """The wording of attrs' own rules is recognised in the version that is installed."""

    @attrs.define
    class Holder:
        size: float = attrs.field(validator=rule)

    value = 3 if rule.compare_op == "<" else 2 if rule.compare_op == ">=" else 4
    with pytest.raises(ValueError, match="size") as caught:
        Holder(value)
    assert plain_words(str(caught.value.args[0]), value) == f"must be {rule.compare_op} 3, got {value}"


# --- what a plugin does wrong -----------------------------------------------------------------------------------------


def test_a_field_whose_type_is_not_there_names_the_plugin(loaded, base):
    """A type that only the checker imports is the plugin's mistake: one line with class and field."""
    with pytest.raises(PluginError, match=r"Unresolved: the type of its field batch can't be resolved"):
        loaded(base + "[callbacks.unresolved]\n")


def test_a_field_whose_type_toml_cannot_give_names_the_plugin(loaded, base):
    """A type without a meaning in TOML is the plugin's mistake too."""
    with pytest.raises(PluginError, match=r"Unknown: the type of its field values, .*is none that a TOML value"):
        loaded(base + "[callbacks.unknown]\n")
