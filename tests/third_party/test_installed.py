"""An outside package, installed by pip and taken away again, and a plugin file: what runs then, and who is told."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from sklearn.metrics import top_k_accuracy_score

from rtx_core import Record, checkpoint, inference, state
from rtx_core.cli import main
from rtx_core.registry import Registry

HERE = Path(__file__).parent
TOP2 = HERE / "top2_accuracy.py"

PIPELINE = """\
[run]
name = "colours"
[task]
type = "sequence_classification"
[data]
type = "jsonl"
[data.train]
files = ["train.jsonl"]
[data.eval]
files = ["eval.jsonl"]
[tokenizer]
type = "wordpiece"
vocab_size = 100
[architecture]
type = "bert"
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 16
max_position_embeddings = 16
"""

PLAIN = """
[optimizer]
type = "adamw"
lr = 1e-2
[training]
duration = "2 epochs"
batch_size = 20
threads = 1
"""

OUTSIDE = """
[head]
type = "attention_pooling"
[optimizer]
type = "prodigy"
[scheduler]
type = "rex"
warmup = "10%"
[training]
duration = "20 epochs"
batch_size = 20
threads = 1
[callbacks.spike_guard]
threshold = 1.01
momentum = 0.0
factor = 0.5
recovery = 4.0
"""

TOP_TWO = """
[metrics.top2_accuracy]
[optimizer]
lr = 1e-12
[training]
duration = "10 epochs"
batch_size = 20
threads = 1
monitor = "eval/top2_accuracy"
[callbacks.early_stopping]
patience = 2
"""

LABELS = {"red": "warm", "blue": "cold", "grey": "none", "green": "both"}


def write_jobs(folder):
    """Three pipelines on the same 100 rows, of which 20 are evaluated; the first word tells the label."""
    for name, text in {"plain": PLAIN, "outside": OUTSIDE, "top2": TOP_TWO}.items():
        (folder / f"{name}.toml").write_text(PIPELINE + text)
    rows = [{"text": f"{word} thing {i}", "label": label} for i in range(25) for word, label in LABELS.items()]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "eval.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:20]))


def record(folder):
    """What run.json says."""
    return json.loads((folder / "run.json").read_text())


def steps(folder):
    """The rows of metrics.jsonl that steps wrote, in order."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "train/loss" in row]


# --- a package --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def acme(pip_install):
    """The folder that pip installed acme-rtx into, and nothing else."""
    return pip_install(HERE / "acme-rtx")


@pytest.fixture(scope="session")
def jobs(tmp_path_factory):
    """The working directory of the commands below."""
    folder = tmp_path_factory.mktemp("jobs")
    write_jobs(folder)
    return folder


@pytest.fixture(scope="session")
def installed(acme, jobs, in_one_process):
    """Commands with acme-rtx installed; runs are in ``with`` and ``outside``."""
    commands = {
        "check": ["check", "plain.toml"],
        "plan": ["plan", "plain.toml"],
        "plan --json": ["plan", "plain.toml", "--json"],
        "run": ["run", "plain.toml", "--output", "with"],
        "outside": ["run", "outside.toml", "--output", "outside"],
        "predict": ["predict", "outside", "--text", "red thing 3", "--text", "grey thing 4"],
    }
    return in_one_process(commands, folder=jobs, path=acme)


@pytest.fixture(scope="session")
def removed(installed, jobs, in_one_process):
    """Commands after acme-rtx was removed; the run is in ``without``."""
    assert installed
    commands = {
        "plan --json": ["plan", "plain.toml", "--json"],
        "run": ["run", "plain.toml", "--output", "without"],
        "resume": ["run", "plain.toml", "--output", "with", "--resume", "--quiet"],
        "outside": ["check", "outside.toml"],
        "predict": ["predict", "outside", "--text", "red thing 3"],
    }
    return in_one_process(commands, folder=jobs)


def optimizer_in(plan):
    """The optimizer's row in a plan."""
    (part,) = [part for part in json.loads(plan.out)["parts"] if part["table"] == "optimizer"]
    return part["part"], part["from"], part["replaces"]


def test_an_installed_package_supplies_the_part_and_everyone_says_so(installed, jobs):
    """``check``, ``plan``, the run's header and run.json name acme-rtx 1.2.0 as the source of ``optimizer.adamw``."""
    assert {name: done.status for name, done in installed.items()} == dict.fromkeys(installed, 0)
    line = "optimizer.adamw is supplied by acme-rtx 1.2.0 instead of rtx-transformers"
    assert installed["check"].err == f"note: {line}\n"
    assert [words for words in map(str.split, installed["plan"].out.splitlines()) if "acme-rtx" in words]
    assert optimizer_in(installed["plan --json"]) == ("optimizer.adamw", "acme-rtx 1.2.0", "rtx-transformers")
    assert [" ".join(said.split()) for said in installed["run"].err.splitlines() if "acme" in said] == [
        f"replaced {line}"
    ]
    components = record(jobs / "with")["components"]
    assert components["optimizer"] == {
        "component": "optimizer.adamw",
        "distribution": "acme-rtx",
        "version": "1.2.0",
        "replaces": "rtx-transformers",
    }
    assert {part["distribution"] for name, part in components.items() if name != "optimizer"} == {"rtx-transformers"}


def test_the_installed_part_is_the_one_that_trains(installed, jobs):
    """The checkpoint's optimizer has acme's setting (one tensor after the other), which ours has not."""
    assert installed["run"].status == 0
    saved = checkpoint.newest(jobs / "with" / "checkpoints", print)
    settings = state.decode(saved.document("state")["optimizer"], saved.tensors("optimizer"))["param_groups"]
    assert {(group["foreach"], group["fused"]) for group in settings} == {(False, False)}


def test_without_the_package_ours_is_back(removed, jobs):
    """The same file, not a line of it changed: ``plan``, header and run.json know rtx-transformers alone."""
    assert (removed["plan --json"].status, removed["run"].status) == (0, 0)
    part, source, replaces = optimizer_in(removed["plan --json"])
    assert (part, source.split()[0], replaces) == ("optimizer.adamw", "rtx-transformers", None)
    assert "acme" not in removed["run"].err
    assert {part["distribution"] for part in record(jobs / "without")["components"].values()} == {"rtx-transformers"}
    assert (jobs / "without" / "pipeline.toml").read_bytes() == (jobs / "with" / "pipeline.toml").read_bytes()
    # Both compute Adam: the same losses within the rounding of a dozen float32 updates.
    ours, theirs = ([row["train/loss"] for row in steps(jobs / name)] for name in ("without", "with"))
    assert ours == pytest.approx(theirs, rel=1e-4)


def test_a_run_does_not_go_on_with_another_packages_part(removed):
    """``--resume`` without acme-rtx is refused in one line that names both packages."""
    done = removed["resume"]
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert "optimizer was optimizer.adamw of acme-rtx, now it is optimizer.adamw of rtx-transformers" in line


def test_all_parts_of_the_package_work_in_one_run(installed, jobs):
    """Head, optimizer, schedule and callback of acme-rtx train a model that knows its four labels."""
    assert installed["outside"].status == 0
    components = record(jobs / "outside")["components"]
    outside = {name: part["component"] for name, part in components.items() if part["distribution"] == "acme-rtx"}
    assert outside == {
        "head": "head.attention_pooling",
        "optimizer": "optimizer.prodigy",
        "scheduler": "scheduler.rex",
        "callbacks.spike_guard": "callback.spike_guard",
    }
    assert record(jobs / "outside")["best"]["value"] < 0.5 * math.log(4)


def test_the_packages_schedule_and_callback_set_every_rate(installed, jobs):
    """Each step's rate is REX's factor after 10 steps of warm-up, times what the guard made of the losses before."""
    assert installed["outside"].status == 0
    scale, mean, expected, spikes = 1.0, math.inf, [], 0
    for i, row in enumerate(steps(jobs / "outside")):
        z = (i - 10) / 90
        expected.append(scale * (i / 10 if i < 10 else (1 - z) / (1 - z / 2)))
        limit = 1.01 * mean
        spike = row["train/loss"] > limit
        scale = min(1.0, scale * (0.5 if spike else 4.0))
        mean = limit if spike else row["train/loss"]  # momentum 0: the last loss, a spike counting as the limit
        spikes += spike
    assert [row["lr"] for row in steps(jobs / "outside")] == pytest.approx(expected, rel=1e-9)
    assert 0 < spikes < len(expected) == 100


def test_the_packages_optimizer_and_head_are_saved(installed, jobs):
    """The checkpoint has Prodigy's estimate as a float that has grown, and the kept model the query that was learnt."""
    assert installed["outside"].status == 0
    saved = checkpoint.newest(jobs / "outside" / "checkpoints", print)
    optimizer = state.decode(saved.document("state")["optimizer"], saved.tensors("optimizer"))
    estimates = {group["d"] for group in optimizer["param_groups"]}
    assert len(estimates) == 1
    assert estimates.pop() > 1e-5  # it starts at 1e-6
    assert saved.tensors("model")["head.query"].abs().max() > 0


def test_predict_uses_the_packages_head_and_asks_for_it(installed, removed):
    """With acme-rtx the labels are right; without it one line names the head that is missing."""
    answers = [json.loads(line)["prediction"] for line in installed["predict"].out.splitlines()]
    assert answers == ["warm", "none"]
    assert (removed["predict"].status, removed["predict"].out) == (2, "")
    (line,) = removed["predict"].err.splitlines()
    assert "attention_pooling" in line


def test_a_pipeline_that_names_missing_parts_is_told_each(removed):
    """Four parts of a package that isn't there are four lines with their places."""
    done = removed["outside"]
    assert (done.status, done.out) == (2, "")
    names = ("attention_pooling", "prodigy", "rex", "spike_guard")
    assert [name for line in done.err.splitlines() for name in names if f'"{name}"' in line] == list(names)
    assert all(line.startswith("outside.toml:") for line in done.err.splitlines())


# --- a file -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def rtx(capfd, tmp_path, monkeypatch):
    """Call the command line in a working directory with the pipelines."""
    monkeypatch.chdir(tmp_path)
    write_jobs(tmp_path)

    def call(*arguments):
        capfd.readouterr()
        status = main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return SimpleNamespace(status=status, out=out, err=err)

    return call


def test_a_metric_in_a_file_is_the_monitor_of_early_stopping(rtx, tmp_path):
    """A run that learns nothing stops 2 evaluations after the first, whose value is scikit-learn's."""
    assert rtx("run", "top2.toml", "--plugin", TOP2, "--quiet").status == 0
    folder = tmp_path / "runs" / "colours"
    written = record(folder)
    assert written["status"] == "stopped_early"
    assert "eval/top2_accuracy has not improved for 2 evaluations" in written["why"]
    assert len(steps(folder)) == 15  # 100 rows in steps of 20, an evaluation after each 5
    rows = [json.loads(line) for line in (tmp_path / "eval.jsonl").read_text().splitlines()]
    trained = inference.load(folder, Registry.discover([TOP2]))
    logits = torch.cat(trained.logits([Record(row, "eval", 1) for row in rows])).numpy()
    targets = [trained.outputs.labels.index(row["label"]) for row in rows]
    expected = top_k_accuracy_score(targets, logits, k=2, labels=range(4))
    assert written["best"] == {"monitor": "eval/top2_accuracy", "value": pytest.approx(expected, rel=1e-6), "step": 5}


def test_the_file_is_kept_with_the_run(rtx, tmp_path):
    """run.json has its sha256 and names it as the metric's source; ``plugins/`` has its text."""
    assert rtx("run", "top2.toml", "--plugin", TOP2, "--quiet").status == 0
    folder = tmp_path / "runs" / "colours"
    digest = hashlib.sha256(TOP2.read_bytes()).hexdigest()
    assert record(folder)["plugins"] == [{"file": "top2_accuracy.py", "sha256": digest}]
    assert record(folder)["components"]["metrics.top2_accuracy"]["distribution"] == "top2_accuracy.py"
    assert (folder / "plugins" / "top2_accuracy.py").read_bytes() == TOP2.read_bytes()


def test_without_the_file_nothing_goes_on_until_it_is_trusted(rtx, tmp_path):
    """``run --resume`` and ``predict`` say in one line what to give; with ``--trust-run-plugins`` they do it."""
    run = ("run", "top2.toml", "--output", "half", "--quiet")
    assert rtx(*run, "--plugin", TOP2, "--steps", "3").status == 0
    before = (tmp_path / "half" / "metrics.jsonl").read_bytes()
    for command in ((*run, "--resume"), ("predict", "half", "--text", "red thing")):
        done = rtx(*command)
        assert (done.status, done.out) == (2, "")
        (line,) = done.err.splitlines()
        assert "--plugin top2_accuracy.py" in line
        assert "--trust-run-plugins" in line
    assert (tmp_path / "half" / "metrics.jsonl").read_bytes() == before
    assert rtx(*run, "--resume", "--trust-run-plugins").status == 0
    assert [row["step"] for row in steps(tmp_path / "half")] == list(range(1, len(steps(tmp_path / "half")) + 1))
    assert len(steps(tmp_path / "half")) > 3
    done = rtx("predict", "half", "--text", "red thing", "--trust-run-plugins")
    assert (done.status, done.err) == (0, "")
    assert json.loads(done.out)["prediction"] in LABELS.values()


def test_another_file_of_that_name_is_not_the_same(rtx, tmp_path):
    """A changed metric can't go on with the run; what was run stays in the run's folder."""
    assert rtx("run", "top2.toml", "--plugin", TOP2, "--steps", "3", "--output", "half", "--quiet").status == 0
    other = tmp_path / "top2_accuracy.py"
    other.write_bytes(TOP2.read_bytes() + b"# changed\n")
    for trust in ((), ("--trust-run-plugins",)):
        done = rtx("run", "top2.toml", "--plugin", other, "--output", "half", "--resume", *trust)
        assert done.status == 2
        (line,) = done.err.splitlines()
        assert "top2_accuracy.py has another content" in line
    assert (tmp_path / "half" / "plugins" / "top2_accuracy.py").read_bytes() == TOP2.read_bytes()
