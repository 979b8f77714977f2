"""Every value used, as text that gives the same pipeline again."""

from __future__ import annotations

import pytest
import tomli

from rtx_core.config import load, load_parts, resolved_toml

EVERYTHING = """\
[metrics.accuracy]
enabled = false
[metrics.micro]
type = "f1"
average = "micro"
[callbacks.typed]
length = "0.1 epochs"
every = "20 minutes"
path = "some/*.txt"
source = "."
pair = [1, 1e-7]
table = { "a b" = 1 }
text = ["a", "b"]
rules = [{ match = ["x"] }, { match = ["y"], factor = 2 }]
inner = { type = "chain", parts = ["linear", { type = "rtx-transformers:cosine", warmup = "3%" }] }
[callbacks.progress]
enabled = false
[callbacks.stop]
type = "early_stopping"
patience = 2
[search]
trials = 3
parameters = { "optimizer.lr" = { low = 1e-5 } }
[[optimizer.groups]]
match = ["*.bias"]
lr = 1
"""


@pytest.fixture
def reloaded(registry, tmp_path):
    """Load a pipeline's resolved.toml from another folder."""

    def again(pipeline):
        folder = tmp_path / "elsewhere"
        folder.mkdir(exist_ok=True)
        (folder / "resolved.toml").write_text(resolved_toml(pipeline), "utf-8")
        return load("resolved.toml", registry=registry, working_directory=folder)

    return again


@pytest.mark.parametrize("more", ["", EVERYTHING])
def test_resolved_gives_the_same_pipeline(loaded, reloaded, base, more):
    """Reading resolved.toml gives equal parts, in the same order, from another folder too, and resolves to itself."""
    first = loaded(base + more)
    second = reloaded(first)
    for name in (
        "run",
        "task",
        "data",
        "tokenizer",
        "architecture",
        "head",
        "loss",
        "optimizer",
        "scheduler",
        "training",
    ):
        assert getattr(first, name) == getattr(second, name)
    assert list(first.callbacks.items()) == list(second.callbacks.items())
    assert list(first.metrics.items()) == list(second.metrics.items())
    assert first.commands == second.commands
    assert first.resolved == second.resolved
    assert resolved_toml(first) == resolved_toml(second)


def test_resolved_holds_every_value(loaded, folder, base):
    """Types, defaults and presets are written, lengths and sources as text, paths absolute; None is left out."""
    resolved = loaded(base + EVERYTHING).resolved
    assert resolved["format"] == 1
    assert resolved["run"] == {"name": "pipeline", "seed": 0, "device": "auto"}
    assert resolved["data"]["train"]["files"] == [str(folder / "train.jsonl")]
    assert resolved["data"]["eval"]["type"] == "jsonl"
    assert resolved["data"]["test"] is None
    assert resolved["architecture"]["hidden_size"] == 128
    assert resolved["scheduler"] == {"type": "linear", "warmup": "6%"}
    assert resolved["training"]["eval_every"] == "1 epoch"
    assert resolved["callbacks"]["typed"]["length"] == "0.1 epochs"
    assert resolved["callbacks"]["typed"]["source"] == str(folder)
    assert resolved["callbacks"]["typed"]["inner"]["parts"][1]["type"] == "rtx-transformers:cosine"
    assert resolved["callbacks"]["progress"] == {"type": "progress", "enabled": False}
    assert resolved["metrics"]["accuracy"] == {"type": "accuracy", "enabled": False}
    assert list(resolved["callbacks"])[-3:] == ["typed", "progress", "stop"]
    assert "head" not in resolved


def test_what_is_left_out_is_a_comment(loaded, base):
    """TOML has no None: the key is named in a comment, and is no key of the file."""
    text = resolved_toml(loaded(base))
    assert "# micro_batch_size = (left out)\n" in text
    assert "micro_batch_size" not in tomli.loads(text)["training"]


def test_several_evaluation_sets_are_resolved(loaded, reloaded, base):
    """Named sets stay named, and none at all is a comment."""
    several = loaded(base.replace("[data.eval]", "[data.eval.a]"))
    assert list(reloaded(several).data.eval) == ["a"]
    none = loaded(base.replace('[data.eval]\nfiles = ["eval.jsonl"]\n', ""))
    assert none.resolved["data"]["eval"] is None
    assert reloaded(none).data.eval == {}


def test_the_model_can_be_had_without_its_data(loaded, registry, folder, base, pretrained):
    """Task, architecture and head come from resolved.toml when data and first weights are gone."""
    weights = pretrained()
    pipeline = loaded(base.replace('type = "bert"\npreset = "tiny"', 'from_pretrained = "models/small"'))
    (folder / "resolved.toml").write_text(resolved_toml(pipeline), "utf-8")
    (folder / "train.jsonl").unlink()
    (weights / "config.json").unlink()
    parts = load_parts(folder / "resolved.toml", registry=registry)
    assert parts.task_name == "sequence_classification"
    assert (parts.task, parts.head) == (pipeline.task, pipeline.head)
    assert parts.architecture.hidden_size == pipeline.architecture.hidden_size == 16
