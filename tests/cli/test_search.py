"""Job 4, sentence embeddings from two sources, as it is written, on a small sample of its kind of data."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

JOB = Path(__file__).parents[1] / "jobs" / "4-search.toml"
WORDS = ("river", "mountain", "bread", "engine", "violin", "planet", "doctor", "window", "garden", "copper")


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A working directory with the job, a small BERT in place of MiniLM, and a sample of each file."""
    transformers = pytest.importorskip("transformers", reason="the test extra is not installed")
    monkeypatch.chdir(tmp_path)
    shutil.copy(JOB, tmp_path)
    draw = np.random.default_rng(0)

    def text(count):
        return " ".join(draw.choice(WORDS, count).tolist())

    nli = [{"query": text(3), "passage": text(9), "hard_negative": [text(8), text(7)][: n % 3]} for n in range(40)]
    write_lines(tmp_path / "nli.jsonl", nli)
    write_lines(tmp_path / "clicks.jsonl", [{"query": text(2), "passage": text(12)} for _ in range(90)])
    corpus = [{"_id": f"d{n}", "title": text(1), "text": text(10)} for n in range(30)]
    write_lines(tmp_path / "corpus.jsonl", corpus)
    write_lines(tmp_path / "queries.jsonl", [{"_id": f"q{n}", "text": text(3)} for n in range(12)])
    lines = [f"q{n}\td{n + i}\t{2 - i}" for n in range(11) for i in range(2)]
    (tmp_path / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    folder = tmp_path / "models" / "all-MiniLM-L6-v2"
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "query", "passage", ":", *WORDS]
    torch.manual_seed(0)
    sizes = {"hidden_size": 384, "num_hidden_layers": 1, "num_attention_heads": 12, "intermediate_size": 64}
    transformers.BertModel(transformers.BertConfig(vocab_size=len(vocabulary), **sizes)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    return tmp_path


def test_the_job_is_checked_planned_and_run(rtx, job):
    """``check`` and ``plan`` pass; the run keeps the best by nDCG@10; ``predict`` embeds a text with its prompt."""
    assert rtx("check", "4-search.toml").status == 0
    plan = rtx("plan", "4-search.toml", "--json")
    assert plan.status == 0
    planned = json.loads(plan.out)
    assert planned["data"]["training"]["cut"] == 0.0
    assert planned["steps"]["total"] == 1
    done = rtx("run", "4-search.toml", "--set", "training.eval_at_start=true")
    assert (done.status, "Traceback" in done.err) == (0, False)
    run = job / "runs" / "4-search"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    start, end = (row for row in rows if "eval/ndcg@10" in row)
    assert {"eval/recall@10", "eval/mrr@10", "eval/ndcg@10"} <= start.keys() & end.keys()
    assert 0.0 < end["eval/recall@10"] <= 1.0
    assert json.loads((run / "run.json").read_text())["best"]["monitor"] == "eval/ndcg@10"
    assert "eval: 1 queries have no relevant document" in (run / "log.txt").read_text() + done.err + done.out
    answered = rtx("predict", "run:4-search", "--text", "river bread")
    assert answered.status == 0, answered.err
    embedding = torch.tensor(json.loads(answered.out)["embedding"], dtype=torch.float64)
    assert len(embedding) == 384
    assert embedding.norm().item() == pytest.approx(1.0, abs=1e-6)
    # The first record has no negatives: a table has a column for them all the same.
    assert rtx("predict", "run:4-search", "nli.jsonl", "--output", "nli.parquet").status == 0
    negatives = pq.read_table(job / "nli.parquet").column("embedding.negative").to_pylist()
    assert [len(rows or ()) for rows in negatives] == [n % 3 for n in range(40)]


def test_plan_counts_what_the_lengths_by_role_cut(rtx, job):
    """Of a table of lengths too: every passage here has more than 6 tokens."""
    plan = rtx("plan", "4-search.toml", "--json", "--set", "task.max_length={ anchor = 64, positive = 6 }")
    assert {name: figures["cut"] for name, figures in json.loads(plan.out)["data"].items()} == {
        "training": 1.0,
        "eval": pytest.approx(30 / 41),  # the documents, and not the queries
    }


def test_a_file_of_the_evaluation_that_is_missing_is_named(rtx, job):
    """By ``check``, at the line of its key."""
    (job / "qrels.tsv").unlink()
    done = rtx("check", "4-search.toml")
    assert done.status == 2
    assert "4-search.toml:20:12: data.eval.relevant: no such file" in done.err


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("loss.sizes=[512]", "loss.sizes: 512 is more than the 384 numbers of an embedding"),
        ("task.max_length={ anchor = 64, positive = 1024 }", "task.max_length: 1024 tokens are more than the archi"),
        ("task.max_length={ anchor = 64 }", "task.max_length.positive: missing; it is required"),
        ("task.max_length=1", "task.max_length: must be >= 2, got 1"),
        ('task.prompts={ ancor = "a" }', 'task.prompts.ancor: unknown key; did you mean "anchor"?'),
        ("task.hard_negative=x", "task.hard_negative: unknown key"),
        ("head.type=linear", "head.type: linear gives logits"),
        ("metrics.accuracy.enabled=true", "metrics.accuracy: takes targets that are one class each"),
        ("training.monitor=eval/ndcg@5", 'training.monitor: no evaluation produces "eval/ndcg@5"; there are eval/l'),
    ],
)
def test_what_does_not_fit_is_refused(rtx, job, setting, message):
    """One line, exit status 2, before the first step."""
    done = rtx("run", "4-search.toml", "--set", setting)
    assert done.status == 2
    assert message in done.err
    assert not (job / "runs" / "4-search" / "checkpoints").exists() or not list(
        (job / "runs" / "4-search" / "checkpoints").glob("step-*")
    )
