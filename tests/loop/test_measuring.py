"""What measures a run changes nothing of it: cuda_monitor, throughput and profiler, each in a run."""

import gzip
import json
import re

import pytest

RECORDS = [{"text": "abcdef"[i % 6], "label": str(i % 2)} for i in range(8)]
SETS = ["training.duration=6 steps", "training.batch_size=4", "training.micro_batch_size=2"]
WINDOW = '[callbacks.profiler]\nwait = "1 step"\nwarmup = "1 step"\nactive = "2 steps"\n'
MEASURING = "[callbacks.throughput]\n[callbacks.cuda_monitor]\n" + WINDOW


def last_checkpoint(outcome):
    folder = outcome.folder / "checkpoints" / f"step-{outcome.checkpoints[-1]:08d}"
    state = json.loads((folder / "state.json").read_text())
    del state["plan"]
    return state, {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def trace_of(outcome, name):
    with gzip.open(outcome.folder / "profiler" / name) as file:
        return json.load(file)["traceEvents"]


@pytest.fixture
def quick(monkeypatch):
    """Small matrices: what is measured doesn't matter here."""
    from rtx_plugins.callbacks import throughput

    monkeypatch.setattr(throughput, "_SIZE", 64)
    monkeypatch.setattr(throughput, "_SECONDS", 0.01)


def test_a_run_that_is_measured_is_the_same_run(train, quick):
    """Weights, states and what checkpoints keep are equal to the bit; rows have mfu from the second on, and on a CPU
    nothing of a GPU but one line.
    """
    plain, measured = train(RECORDS, sets=SETS), train(RECORDS, sets=SETS, extra=MEASURING)
    assert last_checkpoint(measured) == last_checkpoint(plain)
    added = [sorted(row.keys() - bare.keys()) for row, bare in zip(measured.rows, plain.rows, strict=True)]
    assert added == [[], *[["throughput/mfu", "throughput/tflops"]] * 5]
    assert all(row["throughput/mfu"] > 0 for row in measured.rows[1:])
    said = " ".join(measured.said.split())
    assert said.count("cuda_monitor") == 1
    assert "warning: callbacks.cuda_monitor is inactive: there is no GPU of CUDA to watch, the run is on cpu" in said


def test_the_trace_has_the_steps_of_its_window(train):
    """After 1 step, and 1 of warm-up, steps 3 and 4 are in a file that is named for them, and it is said where."""
    outcome = train(RECORDS, sets=SETS, extra=WINDOW)
    events = trace_of(outcome, "steps-3-4.json.gz")
    steps = {event["name"] for event in events if re.fullmatch(r"ProfilerStep#\d+", event.get("name", ""))}
    assert len(steps) == 2
    assert any("addmm" in event.get("name", "") for event in events)
    assert [path.name for path in (outcome.folder / "profiler").iterdir()] == ["steps-3-4.json.gz"]
    assert "steps-3-4.json.gz; open it at ui.perfetto.dev" in "".join(outcome.said.split("\n"))


def test_a_window_that_the_run_left_is_written_as_far_as_it_goes(train):
    """Stopped after step 3, the trace has that step alone; stopped before the window, that is said."""
    cut = train(RECORDS, sets=SETS, extra=WINDOW, steps=3)
    assert [path.name for path in (cut.folder / "profiler").iterdir()] == ["steps-3-3.json.gz"]
    early = train(RECORDS, sets=SETS, extra=WINDOW, steps=2)
    assert not (early.folder / "profiler").exists()
    assert "profiler: the run ended after step 2, before the trace's 3" in " ".join(early.said.split())
