"""The progress callback: lines in a pipe, a bar on a terminal, rows for evaluations, and what all that costs."""

from __future__ import annotations

import io
import time
from types import SimpleNamespace

import pytest

from rtx_core import Horizon
from rtx_core.console import Console
from rtx_core.run import Run
from rtx_plugins.callbacks.progress import Progress


class Terminal(io.StringIO):
    """A stream that claims to be one."""

    def isatty(self):
        return True


@pytest.fixture
def live():
    """A run of 100 steps, 10 an epoch, that speaks to a stream; and its progress part."""

    def make(stream, *, step=0, rank=0, sets=("",)):
        run = Run(
            pipeline=SimpleNamespace(data=SimpleNamespace(eval=dict.fromkeys(sets))),
            folder=None,
            model=None,
            optimizer=None,
            strategy=SimpleNamespace(rank=rank, world_size=2, device=None),
            console=Console(stream),
            horizon=Horizon(total=100, run_total=100, steps_per_epoch=10, samples_per_epoch=80, tokens_per_epoch=800),
            monitor=f"eval/{sets[0]}/loss".replace("//", "/"),
            monitor_direction="min",
            threads=1,
            step=step,
        )
        part = Progress().build()
        part.on_run_start(run)
        return run, part

    return make


def advance(run, part, *, every=1, loss=0.5):
    """One step as the loop does it; another part asks for a row at each ``every``th. Returns whether one was given."""
    run.step += 1
    part.on_step_end(run)
    if run.log_requested or run.step % every == 0:
        run.log_requested = False
        run.last_values = {"step": run.step, "train/loss": loss, "lr": 1e-3, "tokens_per_second": 1234.5}
        part.on_log(run, run.last_values)
        return True
    return False


def test_a_pipe_gets_a_line_every_twentieth_of_the_run(live):
    """The first step and every 5 %: step of all, epoch, loss, rate, speed, time left. No control characters."""
    stream = io.StringIO()
    run, part = live(stream)
    for _ in range(100):
        advance(run, part)
    part.on_run_end()
    said = stream.getvalue().splitlines()
    assert [line.split()[1] for line in said] == ["1/100", *(f"{step}/100" for step in range(5, 101, 5))]
    assert said[1].startswith("step 5/100  epoch 0.50  loss 0.5000  lr 1.00e-03  1,234 tokens/s  ")
    assert said[1].endswith(" left")
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_rows_are_asked_for_at_steps_that_depend_on_the_run_alone(live, stream):
    """Where nobody else logs, rows are asked for at 1, 5, 10, …, with a terminal or without, and after a resume."""
    run, part = live(stream())
    straight = [run.step for _ in range(100) if advance(run, part, every=1000)]
    part.on_run_end()
    assert straight == [1, *range(5, 101, 5)]
    run, part = live(stream(), step=37)
    resumed = [run.step for _ in range(63) if advance(run, part, every=1000)]
    part.on_run_end()
    assert resumed == [step for step in straight if step > 37]


def test_evaluations_are_rows_of_one_table(live):
    """Headings once, columns aligned, the mean loss of training since the row before, the best marked, NaN never."""
    stream = io.StringIO()
    run, part = live(stream)
    run.horizon = Horizon(total=10**6, run_total=10**6, steps_per_epoch=10, samples_per_epoch=80, tokens_per_epoch=800)
    part.on_run_start(run)
    for loss, values in [
        (1.0, {"eval/loss": 0.9, "eval/accuracy": 0.5}),
        (3.0, {"eval/loss": float("nan"), "eval/accuracy": 0.6, "eval/confusion": [[1.0]]}),
        (5.0, {"eval/loss": 0.8, "eval/accuracy": 1}),
    ]:
        advance(run, part, loss=loss)
        advance(run, part, loss=loss + 1.0)
        part.on_eval_start("eval")
        part.on_eval_end(run, "eval", values)
        if run.improves(values["eval/loss"]):
            run.best_value = values["eval/loss"]
    part.on_eval_end(run, "test", {"test/loss": 0.1})
    headings, *rows = [line for line in stream.getvalue().splitlines() if not line.startswith("step")]
    assert headings.split() == ["step", "epoch", "train", "loss", "eval/loss", "eval/accuracy"]
    assert [row.split() for row in rows] == [
        ["2", "0.20", "1.5000", "0.9000", "0.5000", "best"],
        ["4", "0.40", "3.5000", "nan", "0.6000"],
        ["6", "0.60", "5.5000", "0.8000", "1.0000", "best"],
    ]
    assert len({len(line.removesuffix("  best")) for line in [headings, *rows]}) == 1


def test_several_sets_say_which_they_are(live):
    """The headings are those of both sets, and each row ends with its set's name."""
    stream = io.StringIO()
    run, part = live(stream, sets=("clean", "noisy"))
    for step in (10, 20):
        run.step = step
        part.on_eval_end(run, "eval/clean", {"eval/clean/loss": 1.0 / step})
        part.on_eval_end(run, "eval/noisy", {"eval/noisy/loss": 2.0 / step})
    headings, *rows = stream.getvalue().splitlines()
    assert headings.split() == ["step", "epoch", "train", "loss", "loss"]
    assert [row.split()[4:] for row in rows] == [["eval/clean", "best"], ["eval/noisy"]] * 2


def test_a_skipped_step_says_why(live):
    """A step without a loss has its reason in the line."""
    stream = io.StringIO()
    run, part = live(stream)
    run.step = 1
    part.on_log(run, {"train/loss": None, "skipped": "overflow", "lr": 1e-3})
    assert "skipped: overflow" in stream.getvalue()


@pytest.mark.parametrize("last", ["on_run_end", "on_exception"])
def test_a_terminal_gets_a_bar_that_is_taken_away(live, last):
    """The bar shows the step; evaluations stand above it; at the end the cursor is visible again, failed or not."""
    stream = Terminal()
    run, part = live(stream)
    for _ in range(20):
        advance(run, part)
    part.on_eval_start("eval")
    part.on_eval_end(run, "eval", {"eval/loss": 0.5})
    getattr(part, last)()
    part.on_run_end()
    drawn = stream.getvalue()
    assert "1/100" in drawn
    assert "eval/loss" in drawn
    assert drawn.rindex("\x1b[?25h") > drawn.rindex("\x1b[?25l")
    assert "step 5/100" not in drawn


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_only_the_first_process_speaks(live, stream):
    """With two processes the second asks for the same rows and says nothing."""
    stream = stream()
    run, part = live(stream, rank=1)
    assert [run.step for _ in range(10) if advance(run, part, every=1000)] == [1, 5, 10]
    part.on_eval_end(run, "eval", {"eval/loss": 0.5})
    part.on_run_end()
    assert stream.getvalue() == ""


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_a_step_costs_little(live, stream):
    """Well below the 0.2 ms that the loop may cost: 20 µs of processor time a step on average, drawing included."""
    run, part = live(stream())
    run.horizon = Horizon(total=10**6, run_total=10**6, steps_per_epoch=10, samples_per_epoch=80, tokens_per_epoch=800)
    part.on_run_start(run)
    start = time.process_time()
    for _ in range(10_000):
        advance(run, part)
    used = time.process_time() - start
    part.on_run_end()
    assert used < 0.2
