"""Job 1: three kinds of support ticket in one CSV, 4 % of them in the rare one."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

JOB = Path(__file__).parents[1] / "jobs/1-tickets.toml"
WORDS = {
    "billing": ("invoice", "refund", "charged twice"),
    "login": ("password", "locked out", "reset link"),
    "security": ("phishing", "leak", "breach"),
}
COUNTS = {"billing": 240, "login": 240, "security": 20}
BASE = """\
[task]
type = "sequence_classification"
text = "body"
label = "category"
[data]
type = "csv"
[data.train]
files = ["tickets.csv"]
[tokenizer]
type = "wordpiece"
vocab_size = 200
[architecture]
type = "bert"
hidden_size = 32
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 32
max_position_embeddings = 256
[optimizer]
lr = 1e-3
[training]
duration = "1 step"
batch_size = 8
threads = 1
"""
SMALL = ("optimizer.lr=1e-2", "training.threads=1")


def sets(*texts):
    """As options."""
    return [option for text in texts for option in ("--set", text)]


@pytest.fixture
def place(rtx, tmp_path, monkeypatch, hub_cache):
    """A working directory with the job and its data, and in the cache of the hub a small BERT of the name it wants."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"id": f"{i:03}", "body": f"{WORDS[kind][i % 3]}, {WORDS[kind][i % 2]}\nticket {i}", "category": kind}
        for kind, count in COUNTS.items()
        for i in range(count)
    ]
    with (tmp_path / "tickets.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    shutil.copy(JOB, tmp_path / "tickets.toml")
    (tmp_path / "base.toml").write_text(BASE)
    assert rtx("run", "base.toml", "--quiet").status == 0
    hub_cache("google-bert/bert-base-uncased", tmp_path / "runs/base/model")
    return tmp_path


def test_the_job_passes_check_and_runs_as_it_stands(rtx, place):
    """With the weights in the cache nothing is wrong with it, and it trains to its end."""
    done = rtx("check", "tickets.toml")
    assert (done.status, done.out, done.err) == (0, "tickets.toml: ok\n", "")
    assert rtx("run", "tickets.toml", "--quiet").status == 0
    record = json.loads((place / "runs/tickets/run.json").read_text())
    assert record["status"] in ("finished", "stopped_early")
    assert list(record["commits"]) == ["hub:google-bert/bert-base-uncased"]


def test_the_job_finds_the_rare_kind(rtx, place):
    """It trains with weights that make every kind count alike, and the kept model tells all three apart."""
    assert rtx("run", "tickets.toml", *sets(*SMALL), "--quiet").status == 0
    record = json.loads((place / "runs/tickets/run.json").read_text())
    assert record["outputs"]["labels"] == ["billing", "login", "security"]
    # A tenth of each kind is held out twice.
    assert record["outputs"]["counts"] == [192, 192, 16]
    assert record["best"]["monitor"] == "eval/f1_macro"
    assert record["test"]["test/f1_macro"] > 0.9
    matrix = record["test"]["test/confusion_matrix"]
    assert [sum(row) for row in matrix] == [24, 24, 2]
    assert matrix[2][2] == 2
    done = rtx("evaluate", "run:tickets", "--data", "tickets.csv", "--json")
    assert json.loads(done.out)["values"]["data/f1_macro"] > 0.9


def test_balanced_weights_are_those_of_the_counts(rtx, place):
    """The run with ``"balanced"`` has the same bits as one with n / (K · count) written out."""
    counts = {"billing": 192, "login": 192, "security": 16}
    written = ", ".join(f"{kind} = {400 / (3 * count)!r}" for kind, count in counts.items())
    rows = {}
    for name, weights in (("balanced", '"balanced"'), ("written", f"{{ {written} }}")):
        options = sets(*SMALL, f"loss.class_weights={weights}", f"run.name={name}", "training.duration=3 steps")
        assert rtx("run", "tickets.toml", *options, "--quiet").status == 0
        lines = (place / f"runs/{name}/metrics.jsonl").read_text().splitlines()
        rows[name] = [
            {key: value for key, value in json.loads(line).items() if key != "tokens_per_second"} for line in lines
        ]
    assert rows["balanced"] == rows["written"]


def test_a_kind_that_never_occurs_is_refused_by_its_name(rtx, place):
    """Before the first step, in one line."""
    names = 'task.labels=["billing", "login", "security", "other"]'
    weights = "architecture.load={ allow_new = ['classifier.*'] }"
    done = rtx("run", "tickets.toml", *sets(*SMALL, names, weights), "--quiet")
    assert done.status == 2
    assert 'loss.class_weights: "balanced" has no weight for the label "other", which never occurs in the' in done.err
