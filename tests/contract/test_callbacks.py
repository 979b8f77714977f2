"""What every installed callback promises, whoever published it: a new one is tested by having an entry point."""

import importlib.metadata
import io
import json

import pytest
import torch

from rtx_core import checkpoint, config, state
from rtx_core.console import Console
from rtx_core.registry import Registry
from rtx_core.runner import RunOptions, run_pipeline

POINTS = {
    f"{point.dist.name}:{point.name.partition('.')[2]}": point
    for point in importlib.metadata.entry_points(group="rtx.v1")
    if point.name.startswith("callback.")
}

PIPELINE = """
[run]
name = "callback"
[task]
type = "sequence_classification"
[data]
type = "jsonl"
[data.train]
files = ["rows.jsonl"]
[data.eval]
files = ["rows.jsonl"]
[tokenizer]
type = "wordpiece"
vocab_size = 40
[architecture]
type = "bert"
hidden_size = 8
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 16
max_position_embeddings = 16
[optimizer]
lr = 0.1
[training]
duration = "4 steps"
batch_size = 2
eval_every = "1 step"
"""

TABLES = {
    "rtx-transformers:amp": 'dtype = "fp16"',
    "rtx-transformers:freeze": 'match = ["*.bias"]\nuntil = "3 steps"',
    "rtx-transformers:reduce_on_plateau": "patience = 1",
}
"""Settings with which ours have something to keep within four steps."""

pytestmark = pytest.mark.parametrize("name", sorted(POINTS))


@pytest.fixture
def component(name, settings):
    """With defaults, and examples where there is none."""
    point = POINTS[name]
    return settings(point.load().callback()[point.name.partition(".")[2]])


@pytest.fixture
def run(name, tmp_path):
    """Run a small pipeline with the callback into a folder; the last checkpoint."""
    text = PIPELINE + f"[callbacks.{POINTS[name].name.partition('.')[2]}]\n{TABLES.get(name, '')}\n"
    (tmp_path / "pipeline.toml").write_text(text)
    rows = [{"text": f"word {'abcd'[i % 4]} and {'ab'[i % 2]}", "label": "ab"[i % 2]} for i in range(6)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def go(folder, **options):
        registry = Registry.discover([])
        pipeline = config.load(tmp_path / "pipeline.toml", registry=registry)
        with Console(io.StringIO()) as console:
            run_pipeline(pipeline, registry, RunOptions(output=tmp_path / folder, **options), console)
        return checkpoint.listing(tmp_path / folder / "checkpoints")[-1]

    return go


def test_what_it_saves_it_takes_back(component):
    """Its part has both of ``state_dict`` and ``load_state_dict``, or neither; another part takes the state."""
    part, other = component.build(), component.build()
    assert hasattr(part, "state_dict") == hasattr(part, "load_state_dict")
    if hasattr(part, "state_dict"):
        tree, tensors = state.encode("callback", part.state_dict())
        other.load_state_dict(state.decode(tree, tensors))
        assert state.encode("callback", other.state_dict()) == (tree, tensors)


def test_a_run_with_it_goes_on_as_if_it_had_not_stopped(component, run):
    """Four steps, and two, a stop and two more: the same states and the same weights, to the bit."""
    if not hasattr(component.build(), "state_dict"):
        pytest.skip("it keeps no state")
    straight = run("straight")
    run("stopped", steps=2)
    resumed = run("stopped", resume=True)
    assert (straight.step, resumed.step) == (4, 4)
    assert resumed.document("state")["parts"] == straight.document("state")["parts"]
    for file in ("model", "optimizer", "parts"):
        ours, theirs = (side.tensors(file) for side in (resumed, straight))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(tensor, theirs[key]) for key, tensor in ours.items())
