"""The words and counts of header and summary."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch import nn

from rtx_core import Length, Source
from rtx_core.header import duration, number, parameter_counts, plan_line, replacements, shown, summary, weights_line
from rtx_core.model import Model
from rtx_core.registry import Chosen
from rtx_core.weights import LoadReport


def chosen(name, replaces=None):
    """A part as the registry found it."""
    return Chosen(
        kind="optimizer",
        name=name,
        component=object,
        distribution="acme-rtx",
        version="1.2",
        module="acme",
        replaces=replaces,
    )


def test_each_part_that_replaces_ours_is_a_line():
    """Only those that are taken instead of ours, once each."""
    parts = {"a": chosen("adamw", "rtx-transformers"), "b": chosen("lion"), "c": chosen("adamw", "rtx-transformers")}
    assert replacements(parts) == ["optimizer.adamw is supplied by acme-rtx 1.2 instead of rtx-transformers"]


def test_parameters_are_counted_once_and_by_place():
    """A tied table counts for the encoder alone; what is called pooler is neither encoder nor head."""
    backbone, head = nn.Module(), nn.Module()
    backbone.table = nn.Embedding(10, 4)
    head.pooler = nn.Linear(4, 4)
    head.decoder = nn.Linear(4, 10)
    head.decoder.weight = backbone.table.weight
    counts = parameter_counts(Model(backbone, head, []))
    assert counts == {"encoder": 40, "pooler": 20, "head": 10}


def test_first_weights_are_told_by_where_they_are_from(tmp_path, monkeypatch):
    """The source as a person writes it; of many names the first three, and how many more."""
    monkeypatch.chdir(tmp_path)
    report = LoadReport(loaded=("a",) * 1200, new=(), unused=tuple("abcdefgh"))
    folder = Source("folder", str(tmp_path / "models/bert"))
    assert weights_line(folder, report) == "1,200 tensors from models/bert, 0 new, 8 unused (a, b, c and 5 more)"
    report = LoadReport(loaded=("a",), new=("c.bias",), unused=())
    assert weights_line(Source("run", "first"), report) == "1 tensor from run:first, 1 new (c.bias), 0 unused"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1:00 min"), (185, "3:05 min"), (7385, "2:03:05 h")]
)
def test_durations_are_read_at_a_glance(seconds, text):
    """Seconds, then minutes and seconds, then hours."""
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.12345, "0.1235"), (None, "–"), (float("nan"), "nan"), (12345.6, "1.235e+04"), (999, "999.0000")],
)
def test_numbers_have_the_digits_that_matter(value, text):
    """Four digits after the point; large ones in four digits altogether."""
    assert number(value) == text


def test_paths_below_the_working_directory_are_short(tmp_path, monkeypatch):
    """Relative where that is what a person would type, absolute elsewhere."""
    monkeypatch.chdir(tmp_path)
    assert shown(tmp_path / "runs/a") == "runs/a"
    assert shown(Path("/somewhere/else")) == "/somewhere/else"


@pytest.mark.parametrize(
    ("length", "text"),
    [
        ("4 steps", "4 steps of 8 sequences · 2 an epoch"),
        ("2 epochs", "2 epochs = 4 steps of 8 sequences · 2 an epoch"),
    ],
)
def test_the_plan_says_the_steps_once(length, text):
    """A duration in steps is not said to equal itself."""
    training = SimpleNamespace(duration=Length.parse(length), batch_size=8, batch_tokens=None, micro_batch_size=None)
    cutting = SimpleNamespace(micro_batch_size=8, processes=1)
    prepared = SimpleNamespace(horizon=SimpleNamespace(total=4, steps_per_epoch=2, streamed=False), cutting=cutting)
    assert plan_line(SimpleNamespace(training=training), prepared) == text


@pytest.mark.parametrize(
    ("best", "stopped", "columns", "expected"),
    [
        (
            (0.75, 20),
            None,
            ("text",),
            ["30 of 40 steps, 3 epochs", "eval/f1 0.7500 at step 20", "test/f1 0.7000", "(the best)", '--text "…"'],
        ),
        (
            (None, None),
            "early_stopping: enough",
            ("a", "b"),
            ["30 of 40 steps, 3 epochs · early_stopping: enough", "(the last)", "new.csv --output predicted.csv"],
        ),
    ],
)
def test_the_summary_says_what_came_of_the_run(tmp_path, best, stopped, columns, expected):
    """The best value where something was evaluated, why it stopped early, and a command that fits the task."""
    task = SimpleNamespace(columns=lambda *, targets: columns)
    run = SimpleNamespace(
        step=30,
        updates=30,
        epoch=3.0,
        horizon=SimpleNamespace(total=40),
        monitor="eval/f1",
        best_value=best[0],
        best_step=best[1],
        stop_reason=stopped,
        pipeline=SimpleNamespace(chosen={"task": SimpleNamespace(name="classification")}, task=task),
    )
    test = {"test/f1": 0.7, "test/confusion": [[1.0]]} if best[0] else {}
    text = summary(SimpleNamespace(run=run), tmp_path, test).plain
    assert all(part in text for part in expected), text
    assert ("best " in text) == (best[0] is not None)
    assert "confusion" not in text


@pytest.mark.parametrize(
    ("steps", "epoch", "resumed", "line"),
    [(4, 1.0, False, "4 steps, 1 epoch in "), (1, 0.5, True, "1 step, 0.5 epochs in "), (4, 1.0, True, "4 steps, 1 ")],
)
def test_the_time_of_a_resumed_run_is_its_last_sessions(tmp_path, steps, epoch, resumed, line):
    """One of a thing is singular; of a resumed run the time is said to be that of this session."""
    started = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    (tmp_path / "run.json").write_text(json.dumps({"started": started}))
    task = SimpleNamespace(columns=lambda *, targets: ("text",))
    run = SimpleNamespace(
        step=steps,
        updates=steps,
        epoch=epoch,
        horizon=SimpleNamespace(total=steps),
        best_value=None,
        stop_reason=None,
        pipeline=SimpleNamespace(chosen={"task": SimpleNamespace(name="classification")}, task=task),
    )
    first, *_ = summary(SimpleNamespace(run=run), tmp_path, {}, resumed=resumed).plain.splitlines()
    assert first.startswith(f"done   {line}")
    assert first.endswith(" in this session") == resumed
