"""A small valid pipeline with its data in place, and functions that load it changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rtx_core.config import load
from rtx_core.errors import PipelineError
from rtx_core.registry import Registry

BASE = """\
[task]
type = "sequence_classification"
text = "text"
label = "label"

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
preset = "tiny"

[optimizer]
lr = 5e-4

[training]
duration = "3 epochs"
batch_size = 8
"""


@pytest.fixture(scope="session")
def registry():
    """What is installed, and the components of parts.py."""
    return Registry.discover(plugins=[Path(__file__).with_name("parts.py")])


@pytest.fixture
def base():
    """The text of a valid pipeline."""
    return BASE


@pytest.fixture
def folder(tmp_path):
    """The folder of the pipeline, with its data."""
    record = json.dumps({"text": "a b", "label": "x"}) + "\n"
    for name in ("train.jsonl", "eval.jsonl", "other.jsonl"):
        (tmp_path / name).write_text(record, encoding="utf-8")
    return tmp_path


@pytest.fixture
def loaded(folder, registry):
    """Load a text as pipeline.toml."""

    def load_text(text, *sets):
        (folder / "pipeline.toml").write_bytes(text.encode())
        return load("pipeline.toml", sets=sets, registry=registry, working_directory=folder)

    return load_text


@pytest.fixture
def problems(loaded):
    """The problems of a text, none if it is valid."""

    def problems_of(text, *sets):
        try:
            loaded(text, *sets)
        except PipelineError as error:
            return list(error.problems)
        return []

    return problems_of


@pytest.fixture
def lines(problems):
    """The problems of a text as lines."""

    def lines_of(text, *sets):
        return [str(problem) for problem in problems(text, *sets)]

    return lines_of


@pytest.fixture
def pretrained(folder):
    """A folder ``models/NAME`` with a small BERT's config.json, a vocabulary, and a file for weights that is empty."""

    def make(name="models/small", **config):
        path = folder / name
        path.mkdir(parents=True)
        (path / "vocab.txt").write_text("[PAD]\n", encoding="utf-8")
        (path / "model.safetensors").touch()
        sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
        config = {"model_type": "bert"} | sizes | config
        (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return path

    return make
