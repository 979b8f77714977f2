"""``minimal-rtx``: a part of each of the twelve kinds takes the place of one of ours, by being installed."""

import json
import math
from pathlib import Path

import pytest

from rtx_core.components import KINDS

PIPELINE = """\
[task]
type = "sequence_classification"
[data]
type = "jsonl"
[data.train]
files = ["train.jsonl"]
[data.eval]
files = ["train.jsonl"]
[tokenizer]
type = "wordpiece"
[architecture]
type = "bert"
[optimizer]
type = "adamw"
lr = 0.1
[scheduler]
type = "linear"
[training]
duration = "8 steps"
batch_size = 8
threads = 1
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working directory with a pipeline, on 16 rows whose first word tells the label."""
    folder = tmp_path_factory.mktemp("every-kind")
    (folder / "words.toml").write_text(PIPELINE)
    rows = [{"text": f"{word} thing {i}", "label": word} for i in range(8) for word in ("red", "blue")]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def done(pip_install, in_one_process, folder):
    """Commands with the package installed; the run is in ``with``."""
    commands = {
        "plan": ["plan", "words.toml", "--json"],
        "run": ["run", "words.toml", "--output", "with"],
        "evaluate": ["evaluate", "with", "--json"],
        "predict": ["predict", "with", "--text", "red thing", "--text", "new blue thing"],
        "doctor": ["doctor"],
        "resume": ["verify-resume", "words.toml", "--steps", "3", "--more", "3"],
    }
    return in_one_process(commands, folder=folder, path=pip_install(Path(__file__).parent / "minimal-rtx"))


def test_every_kind_is_replaced_and_everyone_says_so(done, folder):
    """run.json has a part of minimal-rtx instead of ours for each kind but ``command``; ``plan`` says the same."""
    assert {name: (each.status, each.err) for name, each in done.items() if each.status} == {}
    components = json.loads((folder / "with" / "run.json").read_text())["components"].values()
    outside = [part for part in components if part["distribution"] == "minimal-rtx"]
    assert {part["component"].partition(".")[0] for part in outside} == KINDS.keys() - {"command"}
    assert {(part["version"], part["replaces"]) for part in outside} == {("0.1", "rtx-transformers")}
    # What is left of ours are the callbacks that write files.
    ours = {part["component"] for part in components if part["distribution"] == "rtx-transformers"}
    assert ours == {f"callback.{name}" for name in ("amp", "checkpoint", "metrics", "progress")}
    assert {part["part"] for part in json.loads(done["plan"].out)["parts"] if part["replaces"]} == {
        part["component"] for part in outside
    }


def test_each_of_them_does_its_work(done):
    """The parts note when they are called; the command speaks for itself."""
    (line,) = [line for line in done["run"].err.splitlines() if line.startswith("worked: ")]
    assert set(line.split()[1:]) == KINDS.keys() - {"command"}
    assert done["doctor"].out == "hello from minimal-rtx\n"


def test_the_run_is_that_of_the_outside_parts(done, folder):
    """The rate halves at each quarter; the loss starts near ln 2 and falls; the metric is the outside one alone."""
    assert done["run"].status == 0
    rows = [json.loads(line) for line in (folder / "with" / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if "train/loss" in row]
    assert [row["lr"] for row in steps] == [0.1, 0.1, 0.05, 0.05, 0.025, 0.025, 0.0125, 0.0125]
    assert steps[-1]["train/loss"] < 0.5 * math.log(2)
    assert "grad_norm" not in steps[0]  # the outside clip_grad_norm has none
    assert {key for row in rows for key in row if key.startswith("eval/")} == {"eval/loss", "eval/accuracy"}
    assert rows[-1]["eval/accuracy"] == 1.0


def test_what_it_keeps_answers_and_goes_on(done, folder):
    """``evaluate`` gives the run's own values, ``predict`` the labels, and a resume ends with the same bits."""
    assert [json.loads(line)["prediction"] for line in done["predict"].out.splitlines()] == ["red", "blue"]
    kept = json.loads((folder / "with" / "run.json").read_text())["best"]
    assert kept["value"] == json.loads(done["evaluate"].out)["values"]["eval/loss"]
    assert "to the bit" in done["resume"].err + done["resume"].out
