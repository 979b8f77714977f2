"""The jobs that people have: what each reports as long as some parts and keys are not here yet.

A line is deleted here when the part or key that it names arrives.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rtx_core.config import load
from rtx_core.errors import PipelineError
from rtx_core.registry import Registry

JOBS = Path(__file__).parents[2] / "jobs"
FILES = (
    *("tickets.csv", "train.txt", "valid.txt", "test.txt", "corpus/a/b.txt", "heldout/a.txt", "train.csv", "dev.csv"),
    *("nli.jsonl", "clicks.jsonl", "queries.jsonl", "corpus.jsonl", "qrels.tsv", "train.parquet", "dev.parquet"),
    *("web/a.parquet", "dev/a.parquet", "tokenizer/vocab.txt"),
)
MODELS = ("models/bert-base-cased", "models/bert-base-uncased", "models/all-MiniLM-L6-v2", "runs/legal-mlm/model")
BERT = {
    "model_type": "bert",
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}

MISSING = {
    "1-tickets": {},
    "2-entities": {},
    "3a-legal-mlm": {},
    "3b-legal-classes": {},
    "4-search": {},
    "5-modernbert": {
        "strategy.type": 'no strategy "ddp" is installed',
        "training.compile": "unknown key",
        "callbacks.checkpoint.background": "unknown key",
        "callbacks.wandb": 'no callback "wandb" is installed',
    },
    "6-price": {
        "sweep": "unknown table",
    },
}


@pytest.fixture
def place(tmp_path, hub_cache):
    """A folder with every file that a job names, the job, and the model of the hub in the cache."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text,label\na,b\n", "utf-8")
    for name in MODELS:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text(json.dumps(BERT), "utf-8")
        (tmp_path / name / "vocab.txt").write_text("[PAD]\n", "utf-8")
        (tmp_path / name / "model.safetensors").touch()
    hub_cache("google-bert/bert-base-uncased", tmp_path / "models/bert-base-uncased")

    def put(job):
        shutil.copy(JOBS / f"{job}.toml", tmp_path)
        return tmp_path

    return put


def test_every_job_is_here():
    """Each job of the folder has its list."""
    assert {path.stem for path in JOBS.glob("*.toml")} == set(MISSING)


@pytest.mark.parametrize("job", MISSING)
def test_a_job_reports_what_is_not_here_yet(place, job):
    """Each problem is a part or a key that comes later, by name and at a line of its own, and nothing else."""
    folder, found = place(job), ()
    try:
        load(f"{job}.toml", registry=Registry.discover(), working_directory=folder)
    except PipelineError as error:
        found = error.problems
    assert {problem.path for problem in found} == set(MISSING[job])
    assert all(problem.message.startswith(MISSING[job][problem.path]) for problem in found)
    assert all(problem.place.line and problem.source_line for problem in found)
