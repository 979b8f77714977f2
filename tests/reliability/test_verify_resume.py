"""``verify-resume`` finds out whether a pipeline's run survives a kill, and which part of it doesn't."""

import re
import subprocess
import sys
from collections import deque

import attrs
import pytest
import torch

from rtx_core.cli import main
from rtx_plugins.commands import verify_resume
from rtx_plugins.commands.part_attributes import attributes

PART = """\
import collections, itertools
import attrs
from rtx_core import Callback, hookimpl

class Part:
    def __init__(self):
        {start}

    def on_step_end(self, run):
        {step}

@attrs.frozen(kw_only=True)
class Drift(Callback):
    def build(self):
        return Part()

@hookimpl
def callback():
    return {{"drift": Drift}}
"""
LOGS = """
class LogsPart:
    sum = 0

    def on_step_end(self, run):
        self.sum += run.step
        run.log({"sum": self.sum})

@attrs.frozen(kw_only=True)
class Logs(Callback):
    def build(self):
        return LogsPart()
"""
SGD = """\
import attrs, torch
from rtx_core import Optimizer, hookimpl

class Warm(torch.optim.SGD):
    warmth = 0.0

    def step(self):
        self.warmth += 0.25
        for group in self.param_groups:
            group["lr"] *= self.warmth
        super().step()

@attrs.frozen(kw_only=True)
class Component(Optimizer):
    def build(self, groups):
        return Warm([group.options() for group in groups], lr=self.lr)

@hookimpl
def optimizer():
    return {"warm": Component}
"""


@pytest.fixture
def _quick_runs(nursery, home, tmp_path, monkeypatch):
    """The command's runs come from the nursery, which doesn't import torch for each."""
    monkeypatch.chdir(home)
    log = tmp_path / "log"

    def run(command, **_settings):
        arguments = [str(word) for word in command]
        assert arguments[:3] == [sys.executable, "-m", "rtx_core"]
        log.write_text("")
        answer = nursery.order(arguments=arguments[3:], folder=str(home), log=str(log))
        return subprocess.CompletedProcess(command, answer["status"], stdout=log.read_text())

    monkeypatch.setattr(verify_resume.subprocess, "run", run)


@pytest.fixture
def verify(_quick_runs, plugin_files, tmp_path, capsys):
    """Call the command in the pipeline's folder."""

    def call(*arguments, plugin=None):
        files = [*plugin_files]
        if plugin is not None:
            files.append(tmp_path / "extra.py")
            files[-1].write_text(plugin)
        words = [word for file in files for word in ("--plugin", str(file))]
        status = main(["verify-resume", "pipeline.toml", "--steps", "5", "--more", "4", *words, *arguments])
        said = capsys.readouterr()
        return status, said.out.splitlines(), said.err.splitlines()

    return call


DRIFT = ("--set", "callbacks.drift.enabled=true")


def test_a_run_that_keeps_its_promise_is_equal(verify):
    """Dropout, masking, accumulation, an outside optimizer, a callback with state: exit status 0, one line."""
    assert verify() == (0, ["pipeline.toml: 5 steps, kill and 4 more equal 9, to the bit"], [])


@pytest.mark.parametrize(
    ("start", "step", "lost"),
    [
        ("self.seen = 0", "self.seen += 1; run.lr_scale = 1 / self.seen", ["seen: 5 before the kill, 0"]),
        (
            "self.window = collections.deque(maxlen=3)",
            "self.window.append(run.step); run.lr_scale = 1 / sum(self.window)",
            ["window: [3, 4, 5] before the kill, []"],
        ),
        ("type(self).seen = 0", "type(self).seen += 1; run.lr_scale = 1 / self.seen", ["seen: 5 before the kill, 0"]),
        ("self.mean = 0.0", "self.mean += run.step; run.log({'mean': self.mean})", ["mean: 15.0 before the kill, 0.0"]),
    ],
    ids=["a counter", "a window", "of the class", "only logged"],
)
def test_what_a_callback_lost_is_named(verify, start, step, lost):
    """The part and the attribute come first, with both values; carrying them over proved it. What differs follows."""
    status, out, err = verify(*DRIFT, plugin=PART.format(start=start, step=step))
    assert (status, err) == (1, [])
    ends = "after the resume; carried over, it makes the runs equal, so it belongs in state_dict()"
    assert out[: len(lost)] == [f"callback.drift lost {line} {ends}" for line in lost]
    assert len(out) > len(lost)
    assert not any("lost" in line for line in out[len(lost) :])
    assert any(line.startswith(("metrics.jsonl: lr of step 7", "metrics.jsonl: drift/mean of step 6")) for line in out)


def test_what_is_of_the_machine_is_not_compared(verify):
    """``throughput`` has other values in every run, and no checkpoint has them."""
    status, out, err = verify("--set", "callbacks.throughput.enabled=true")
    assert (status, out, err) == (0, ["pipeline.toml: 5 steps, kill and 4 more equal 9, to the bit"], [])


def test_two_parts_that_lost_something_are_both_named(verify):
    """Carrying over one of them doesn't make the runs equal, both do."""
    one = ("self.seen = 0", "self.seen += 1; run.lr_scale = 1 / self.seen")
    plugin = PART.format(start=one[0], step=one[1])
    plugin = plugin.replace('{"drift": Drift}', '{"drift": Drift, "logs": Logs}') + LOGS
    status, out, err = verify(*DRIFT, "--set", "callbacks.logs.enabled=true", plugin=plugin)
    assert (status, err) == (1, [])
    assert [line.partition(":")[0] for line in out[:2]] == ["callback.drift lost seen", "callback.logs lost sum"]


def test_what_an_optimizer_lost_is_named(verify):
    """Its attributes are no part of ``torch.optim.Optimizer.state_dict``."""
    status, out, err = verify("--set", "optimizer.type=warm", "--set", "optimizer.lr=0.01", plugin=SGD)
    assert (status, err) == (1, [])
    assert out[0].startswith(
        "optimizer lost warmth: 1.25 before the kill, 0.0 after the resume; carried over, it makes"
    )
    assert out[1].startswith("model: ")


def test_what_nobody_can_carry_over_is_said(verify):
    """A generator's place is in no attribute: the differences stand, and where to look."""
    part = PART.format(start="self.numbers = itertools.count(1)", step="run.lr_scale = 1 / next(self.numbers)")
    status, out, err = verify(*DRIFT, plugin=part)
    assert (status, err) == (1, [])
    assert out[0].startswith("no attribute of a part tells why: look for what is outside of them")
    assert any(line.startswith("run: lr_scale is 0.111") for line in out)


def test_more_steps_than_the_run_has_are_refused(verify):
    """With the number that there is, early stopping included, and options that fit it."""
    status, out, err = verify("--more", "300")
    assert (status, out) == (2, [])
    assert len(err) == 1
    match = re.fullmatch(
        r"the run ends after step (\d+), before 5 steps and 300 more; write --steps (\d+) --more (\d+)", err[0]
    )
    assert match is not None
    end, steps, more = map(int, match.groups())
    assert min(steps, more) >= 1
    assert steps + more == end


@pytest.mark.parametrize("arguments", [("--steps", "0"), ("--more", "-1")])
def test_at_least_a_step_on_either_side(verify, arguments):
    """Nothing is started."""
    assert verify(*arguments) == (2, [], ["--steps and --more are at least 1"])


def test_a_mistake_in_the_file_is_one_line(verify):
    """It is found before the first run."""
    status, out, err = verify("--set", "optimizer.lrr=1.0")
    assert (status, out, len(err)) == (2, [], 1)
    assert "optimizer.lrr: unknown key" in err[0]


def test_a_run_that_fails_says_why(verify):
    """The comparison ends with what the run said."""
    status, _, err = verify(*DRIFT, plugin=PART.format(start="pass", step="raise ValueError('no luck')"))
    assert status == 1
    assert err[0].startswith("a run of the comparison failed: ")
    assert any("ValueError: no luck" in line for line in err)


@pytest.mark.nightly
def test_it_works_in_processes_of_its_own(home, plugin_files, monkeypatch):
    """As a person calls it: every run is a new ``python -m rtx_core``."""
    monkeypatch.setenv("PYTHONPATH", str(plugin_files[0].parents[1]))
    words = [word for file in plugin_files for word in ("--plugin", str(file))]
    command = [
        sys.executable,
        "-m",
        "rtx_core",
        "verify-resume",
        "pipeline.toml",
        "--steps",
        "3",
        "--more",
        "2",
        *words,
    ]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "pipeline.toml: 3 steps, kill and 2 more equal 5, to the bit\n"


# --- attributes -------------------------------------------------------------------------------------------------------


@attrs.define
class Inner:
    """Has slots."""

    values: list


class Module(torch.nn.Module):
    """Has what a checkpoint keeps, and what it doesn't."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.register_buffer("kept", torch.ones(2))
        self.register_buffer("lost", torch.ones(2), persistent=False)
        self.calls = 3
        self.child = torch.nn.Dropout(0.5)
        self.inner = Inner([1, {2}])
        self.inner.values.append(self.inner)
        self.open = sys.stdout


def test_attributes_are_those_that_nothing_saves():
    """Numbers, containers, transient buffers, those of children and helpers; not parameters, nor what can't be data."""
    found = attributes(Module())
    own = {name: found[name].told for name in found if not name.startswith("open.")}
    assert own.pop("lost").startswith("torch.float32 [2] ")
    assert own.pop("child.__constants__", "['p', 'inplace']") == "['p', 'inplace']"
    assert own == {
        "calls": "3",
        "child.p": "0.5",
        "child.inplace": "False",
        "inner.values": "[1, {2}, Inner]",
    }


def test_an_attribute_takes_a_value_of_its_kind():
    """A window stays a window of its length, a set a set, also in a frozen object."""

    @attrs.frozen
    class Frozen:
        window: deque
        names: frozenset

    part, other = Frozen(deque([1], maxlen=2), frozenset("a")), Frozen(deque([5, 6], maxlen=2), frozenset("bc"))
    found = attributes(other)
    for name, attribute in attributes(part).items():
        attribute.put(found[name].plain)
    assert part == other
    assert part.window.maxlen == 2
    assert type(part.names) is frozenset
