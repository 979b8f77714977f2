"""Jobs 3a, 3b, 5 and 6 on small samples of their kind of data, with a small BERT in place of the downloaded one."""

from __future__ import annotations

import csv
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rtx_core import Pipeline

JOBS = Path(__file__).parents[1] / "jobs"
BASE = """\
[task]
type = "masked_lm"
max_length = 32
[data]
type = "jsonl"
[data.train]
files = ["base.jsonl"]
[tokenizer]
type = "wordpiece"
vocab_size = 200
[architecture]
type = "bert"
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 32
max_position_embeddings = 512
[optimizer]
lr = 1e-3
[training]
duration = "1 step"
batch_size = 4
threads = 1
"""
WORDS = [
    "the",
    "court",
    "held",
    "that",
    "a",
    "contract",
    "of",
    "sale",
    "is",
    "void",
    "where",
    "price",
    "and",
    "title",
    "are",
    "not",
    "agreed",
]


def sentences(count, seed, words=WORDS):
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(words, draw.integers(4, 20))) for _ in range(count)]


@pytest.fixture
def place(rtx, tmp_path, monkeypatch):
    """A working directory with the three jobs, and a small BERT where the downloaded ones would be."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in sentences(20, 0)))
    (tmp_path / "base.toml").write_text(BASE)
    assert rtx("run", "base.toml", "--quiet").status == 0
    for name in ("bert-base-uncased", "all-MiniLM-L6-v2"):
        shutil.copytree("runs/base/model", tmp_path / "models" / name)
    for name in ("3a-legal-mlm", "3b-legal-classes", "5-modernbert", "6-price"):
        shutil.copy(JOBS / f"{name}.toml", tmp_path)
    return tmp_path


def record(folder):
    return json.loads((folder / "run.json").read_text())


def test_jobs_3a_and_3b_pre_train_and_fine_tune(rtx, place):
    """Documents are packed and learnt by tokens a step; their model is where the classes start."""
    for folder, count in (("corpus/law/old", 12), ("corpus/law", 12), ("heldout", 4)):
        (place / folder).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            text = "\n\n".join(sentences(6, number))
            (place / folder / f"{number}.txt").write_text(text)
    small = ("training.duration=6 steps", "training.batch_tokens=600", "training.eval_every=3 steps")
    small = (*small, "scheduler.warmup=2 steps", "training.threads=1")
    sets = [option for text in small for option in ("--set", text)]
    assert rtx("check", "3a-legal-mlm.toml").status == 0
    done = rtx("run", "3a-legal-mlm.toml", *sets)
    assert done.status == 0, done.err
    rows = [json.loads(line) for line in (place / "runs/legal-mlm/metrics.jsonl").read_text().splitlines()]
    losses = [row["eval/loss"] for row in rows if "eval/loss" in row]
    assert len(losses) == 2
    assert losses[1] < losses[0]

    for name, count in (("train.csv", 24), ("dev.csv", 8)):
        with (place / name).open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["text", "label"])
            writer.writerows([text, "sale" if "sale" in text else "other"] for text in sentences(count, 7))
    assert rtx("check", "3b-legal-classes.toml").status == 0
    done = rtx("run", "3b-legal-classes.toml", "--set", "training.threads=1")
    assert done.status == 0, done.err
    assert "run:legal-mlm" in done.err
    assert record(place / "runs/3b-legal-classes")["status"] == "finished"


def test_job_5_pre_trains_from_a_stream(rtx, place):
    """Without what needs several GPUs or another package: packed shards, a schedule in three phases, small sizes."""
    for folder, count in (("web", 3), ("dev", 1)):
        (place / folder).mkdir()
        for number in range(count):
            pq.write_table(pa.table({"content": sentences(60, number)}), place / folder / f"{number}.parquet")
    shutil.copytree("runs/base/model", place / "tokenizer")
    absent = (
        "training.compile",
        "callbacks.wandb",
        "callbacks.checkpoint.background",
        "callbacks.amp.dtype",
    )
    small = ("training.duration=8 steps", "training.batch_size=4", "training.micro_batch_size=2", "training.threads=1")
    small += (
        "strategy.type=single",
        "training.eval_every=4 steps",
        "callbacks.checkpoint.keep_every=4 steps",
        "task.max_length=64",
    )
    sizes = ("num_hidden_layers=2", "hidden_size=16", "intermediate_size=24", "num_attention_heads=2")
    changed = (*(f"{name}=unset" for name in absent), *small, *(f"architecture.{size}" for size in sizes))
    sets = [option for text in changed for option in ("--set", text)]
    assert rtx("check", "5-modernbert.toml", *sets).status == 0
    done = rtx("run", "5-modernbert.toml", *sets)
    assert done.status == 0, done.err
    rows = [json.loads(line) for line in (place / "runs/modernbert-base/metrics.jsonl").read_text().splitlines()]
    rates = [row["lr"] for row in rows if "lr" in row]
    assert rates[1:6] == [8e-4] * 5  # after one step of warm-up, before the fall of the last tenth
    assert [row["step"] for row in rows if "eval/loss" in row] == [4, 8]


def prices(count, seed):
    titles, descriptions = sentences(count, seed), sentences(count, seed + 1)
    return {
        "title": titles,
        "description": descriptions,
        "price": [20.0 + 5.0 * title.count("price") for title in titles],
    }


SMALL = ("sweep=unset", "training.duration=2 epochs", "training.threads=1")


def test_job_6_predicts_prices_in_their_own_unit(rtx, place):
    """From Parquet; without its sweep, which is another command's. Answers are prices, not standardised numbers."""
    for name, seed in (("train", 1), ("dev", 5)):
        pq.write_table(pa.table(prices(40, seed)), place / f"{name}.parquet")
    sets = [option for text in SMALL for option in ("--set", text)]
    assert rtx("check", "6-price.toml", *sets[:2]).status == 0
    done = rtx("run", "6-price.toml", *sets)
    assert done.status == 0, done.err
    assert record(place / "runs/6-price")["best"]["monitor"] == "eval/spearman"
    answered = rtx("predict", "runs/6-price", "dev.parquet")
    rows = [json.loads(line) for line in answered.out.splitlines()]
    assert [row["title"] for row in rows] == prices(40, 5)["title"]
    assert all(10 < row["prediction"] < 60 for row in rows)


class Frame:
    """As much of a data frame as rtx looks at: that of polars."""

    def __init__(self, columns):
        self.columns = columns

    def iter_rows(self, *, named):
        assert named
        return (dict(zip(self.columns, row, strict=True)) for row in zip(*self.columns.values(), strict=True))


def test_job_6_from_a_frame(place):
    """The same job with records that Python hands over: the same model to the bit as from the files."""
    for name, seed in (("train", 1), ("dev", 5)):
        pq.write_table(pa.table(prices(40, seed)), place / f"{name}.parquet")
    from_files = Pipeline.load("6-price.toml", sets=SMALL).run(output=place / "files", quiet=True)
    frames = {"train": Frame(prices(40, 1)), "eval": Frame(prices(40, 5))}
    from_frame = Pipeline.load("6-price.toml", sets=SMALL, data=frames).run(output=place / "frame", quiet=True)
    weights = [(run.model / "model.safetensors").read_bytes() for run in (from_files, from_frame)]
    assert weights[0] == weights[1]
    assert math.isfinite(record(place / "frame")["best"]["value"])
