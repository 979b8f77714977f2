"""Runs whose training data are streamed: the same bits after a resume, in flat memory, and lengths in steps alone."""

import json
import os
import re
import subprocess
import sys

import pytest

from rtx_core import config
from rtx_core.errors import PipelineError
from rtx_core.registry import Registry

PIPELINE = """\
[run]
name = "streamed"
[task]
type = "masked_lm"
max_length = 16
[data]
type = "text"
[data.train]
files = ["shards/*.txt"]
streaming = true
shuffle_window = 30
[data.eval]
files = ["eval.txt"]
[tokenizer]
type = "wordpiece"
vocab_size = 60
[architecture]
type = "bert"
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 16
max_position_embeddings = 16
[optimizer]
lr = 1e-2
[training]
duration = "24 steps"
batch_size = 10
eval_every = "10 steps"
threads = 1
[callbacks.checkpoint]
every = "7 steps"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a pipeline, four shards of 20 to 35 lines, 110 in all, and an evaluation set."""
    monkeypatch.setenv("RTX_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shards").mkdir()
    for shard in range(4):
        lines = [f"{word} number {i}\n" for i in range(4 + shard) for word in ("red", "blue", "one", "two", "three")]
        (tmp_path / "shards" / f"{shard}.txt").write_text("".join(lines))
    (tmp_path / "eval.txt").write_text("red number one\nblue number two\n")
    (tmp_path / "streamed.toml").write_text(PIPELINE)
    return tmp_path


def model(run):
    return (run / "model" / "model.safetensors").read_bytes()


def rows(run):
    """What the run measured, without its speed."""
    found = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [{name: value for name, value in row.items() if name != "tokens_per_second"} for row in found]


@pytest.mark.parametrize("sets", [(), ("--set", "training.packing=best_fit"), ("--set", "training.workers=1")])
def test_a_resumed_run_is_the_uninterrupted_one(sets, folder, rtx):
    """Stopped in the middle of a block of the second epoch, it goes on to the same losses and the same model."""
    assert rtx("run", "streamed.toml", "--quiet", "--output", "whole", *sets).status == 0
    assert rtx("run", "streamed.toml", "--quiet", "--output", "begun", "--steps", "13", *sets).status == 0
    assert rtx("run", "streamed.toml", "--quiet", "--output", "begun", "--resume", *sets).status == 0
    # The trial has evaluated after its last step as well.
    assert [row for row in rows(folder / "begun") if row["step"] != 13 or "eval/loss" not in row] == rows(
        folder / "whole"
    )
    assert model(folder / "begun") == model(folder / "whole")


def test_the_log_has_whole_epochs(folder, rtx):
    """110 lines in steps of 10: the epoch of a step is known, how much of it is done isn't."""
    done = rtx("run", "streamed.toml", "--output", "run")
    assert done.status == 0
    found = [row["epoch"] for row in rows(folder / "run") if "train/loss" in row]
    assert found == [0] * 11 + [1] * 11 + [2] * 2
    assert "training streamed, 2 eval" in done.err
    assert "24 steps of 10 sequences\n" in done.err


def test_nothing_of_the_training_data_is_in_the_cache(folder, rtx):
    """Only the evaluation set's samples, and the tokenizer, are."""
    assert rtx("run", "streamed.toml", "--quiet").status == 0
    kinds = sorted(path.name.partition("-")[0] for path in (folder / "cache").iterdir())
    assert [kind for kind in kinds if kind != "fingerprint"] == ["samples", "tokenizer"]


def test_other_shards_are_no_resume(folder, rtx):
    """Their names and sizes tell."""
    assert rtx("run", "streamed.toml", "--quiet", "--output", "run", "--steps", "5").status == 0
    with (folder / "shards" / "3.txt").open("a") as shard:
        shard.write("one more\n")
    done = rtx("run", "streamed.toml", "--quiet", "--output", "run", "--resume")
    assert done.status == 2
    assert "train" in done.err


def test_a_window_is_part_of_the_plan(folder, rtx):
    """With another one the order would be another; resolved.toml has both keys."""
    assert rtx("run", "streamed.toml", "--quiet", "--output", "run", "--steps", "5").status == 0
    resolved = (folder / "run" / "resolved.toml").read_text()
    assert re.search(r"streaming = true\nshuffle_window = 30\n", resolved)
    done = rtx("run", "streamed.toml", "--output", "run", "--resume", "--set", "data.train.shuffle_window=31")
    assert (done.status, "shuffle_window" in done.err) == (2, True)


def test_a_plan_says_what_is_known(folder, rtx):
    """Steps, but neither epochs nor tokens; the evaluation set as ever."""
    report = json.loads(rtx("plan", "streamed.toml", "--json").out)
    assert list(report["data"]) == ["eval"]
    assert (report["steps"]["total"], report["steps"]["per_epoch"], report["steps"]["tokens"]) == (24, None, None)
    assert "24" in rtx("plan", "streamed.toml").out


def test_samples_are_steps_too(folder, rtx):
    """Every step takes as many as the batch has."""
    report = rtx("plan", "streamed.toml", "--json", "--set", "training.duration=95 samples")
    assert json.loads(report.out)["steps"]["total"] == 10


REFUSED = [
    ("training.duration=2 epochs", 'training.duration: "2 epochs" can\'t be known while [data.train] is streamed'),
    ("training.duration=1e6 tokens", 'training.duration: "1000000 tokens" can\'t be known'),
    ("training.eval_every=unset", 'training.eval_every: "1 epoch" can\'t be known'),
    ("callbacks.checkpoint.every=unset", 'callbacks.checkpoint.every: "1 epoch" can\'t be known'),
    ("scheduler.warmup=1 epoch", 'scheduler.warmup: "1 epoch" can\'t be known'),
    ("training.group_by_length=4", "training.group_by_length: looks at all samples of an epoch"),
    ("training.micro_batch_size=auto", "training.micro_batch_size: looks at all samples of an epoch"),
    ("data.train.limit=5", "data.train.limit: the shards of a stream come in another order each epoch"),
    ("data.split={ test = 0.1 }", "data.split: takes part of all records"),
    ("data.train.streaming=false", "data.train.shuffle_window: only what is streamed is shuffled in windows"),
    ("data.train.shuffle_window=0", "data.train.shuffle_window: must be >= 1"),
    ("data.train.streaming=1", "data.train.streaming: expected"),
    ("data.eval.streaming=true", "data.eval.streaming: unknown key"),
]


@pytest.mark.parametrize(("setting", "message"), REFUSED, ids=[setting for setting, _ in REFUSED])
def test_what_a_stream_cannot_know_is_refused(setting, message, folder):
    """Before anything is read, at the key, in one line."""
    with pytest.raises(PipelineError) as refused:
        config.load("streamed.toml", sets=[setting], registry=Registry.discover())
    (problem,) = refused.value.problems
    assert message in str(problem)


def test_without_an_evaluation_its_interval_does_not_matter(folder, rtx):
    """The default of an epoch is no mistake where nothing is evaluated."""
    sets = [part for one in ("data.eval=unset", "training.eval_every=unset") for part in ("--set", one)]
    assert rtx("run", "streamed.toml", "--quiet", "--steps", "3", *sets).status == 0


MEMORY = """
import json, sys, attrs, psutil
from rtx_core import Callback, hookimpl

@attrs.frozen(kw_only=True)
class Watch(Callback):
    def on_step_end(self, run):
        if run.step in (100, 200, 300):
            memory = psutil.Process().memory_info()
            print(memory.rss - memory.shared, file=sys.stderr)

@hookimpl
def callback():
    return {"watch": Watch}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs the figures of /proc")
def test_memory_stays_flat(folder):
    """Three blocks or a hundred, the process is as large."""
    for shard in range(4):
        lines = (f"line {i} of a long shard {'with words ' * 10}\n" for i in range(20_000))
        (folder / "shards" / f"{shard}.txt").write_text("".join(lines))
    (folder / "watch.py").write_text(MEMORY)
    text = PIPELINE.replace("shuffle_window = 30", "shuffle_window = 300").replace("24 steps", "300 steps")
    (folder / "streamed.toml").write_text(text.replace('"10 steps"', '"300 steps"') + "[callbacks.watch]\n")
    command = [sys.executable, "-m", "rtx_core", "run", "streamed.toml", "--quiet", "--plugin", "watch.py"]
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    first, *later = map(int, done.stderr.split())
    assert max(later) < first + 10e6
