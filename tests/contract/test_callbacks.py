"""What every installed callback promises, whoever published it: a new one is tested by having an entry point."""

import importlib.metadata
import io
import json

import pytest
import torch

from rtx_core import PipelineError, checkpoint, config, state
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
device = "cpu"
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
    "rtx-transformers:profiler": 'wait = "0 steps"\nactive = "1 step"',
    "rtx-transformers:reduce_on_plateau": "patience = 1",
}
"""Settings with which ours have something to do, and to keep, within four steps."""

pytestmark = pytest.mark.parametrize("name", sorted(POINTS))


@pytest.fixture
def component(name, settings):
    """With defaults, and examples where there is none."""
    point = POINTS[name]
    return settings(point.load().callback()[point.name.partition(".")[2]])


@pytest.fixture
def load(name, tmp_path):
    """Check a small pipeline with the callback, and with what else stands behind it."""
    table = f"[callbacks.{POINTS[name].name.partition('.')[2]}]\n{TABLES.get(name, '')}\n"
    rows = [{"text": f"word {'abcd'[i % 4]} and {'ab'[i % 2]}", "label": "ab"[i % 2]} for i in range(6)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def checked(extra=""):
        (tmp_path / "pipeline.toml").write_text(PIPELINE + table + extra)
        return config.load(tmp_path / "pipeline.toml", registry=Registry.discover([]))

    return checked


@pytest.fixture
def said():
    """What runs have said."""
    return io.StringIO()


@pytest.fixture
def run(load, said, tmp_path):
    """Run that pipeline into a folder; the last checkpoint."""

    def go(folder, **options):
        with Console(said) as console:
            run_pipeline(load(), Registry.discover([]), RunOptions(output=tmp_path / folder, **options), console)
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


def test_on_a_cpu_it_works_or_says_that_it_is_inactive(name, load, run, said):
    """No callback needs a GPU to be in a file: it does its work, or one line before the model is built says why not."""
    table = POINTS[name].name.partition(".")[2]
    why = load().callbacks[table].inactive_on(torch.device("cpu"))
    run("straight")
    lines = said.getvalue().splitlines()
    inactive = [line for line in lines if line.startswith(f"warning: callbacks.{table} is inactive: ")]
    assert inactive == ([f"warning: callbacks.{table} is inactive: {why}"] if why else [])
    header = next(number for number, line in enumerate(lines) if line.startswith("model "))
    assert all(lines.index(line) < header for line in inactive)


def test_a_second_table_of_what_a_run_has_once_is_refused(name, load):
    """``check`` names both tables, where each would undo or repeat what the other does; others may be there twice."""
    table = POINTS[name].name.partition(".")[2]
    second = f'[callbacks.second]\ntype = "{table}"\n{TABLES.get(name, "")}\n'
    if POINTS[name].load().callback()[table].once:
        with pytest.raises(PipelineError, match=rf"callbacks\.second: \[callbacks\.{table}\] is of the same type"):
            load(second)
        load(second + "enabled = false\n")
    else:
        assert list(load(second).callbacks)[-2:] == [table, "second"]
