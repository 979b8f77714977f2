"""What a person sees while a run trains: a bar on a terminal, plain lines in a pipe, evaluations as rows of a table."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from rtx_core import Callback, hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from rtx_core import Run

_LINES = 20
"""Lines of progress in a pipe, over the whole run: one every 5 %."""
_SECONDS_BETWEEN_DRAWINGS = 0.5
"""A drawing takes about 5 ms, so a bar costs 1 % of a core at most."""
_WIDTH = 10
"""Of a column of the table of evaluations, at least."""
_TRAINING = "training"


def figures(run: Run, values: Mapping[str, float | str | None], speed: float | None) -> list[str]:
    """A row of values as people read it: epoch, loss, rate, and a speed in tokens per second."""
    from rtx_core.header import number

    loss, rate = values.get("train/loss"), values.get("lr")
    said = [f"epoch {run.epoch:.2f}"]
    said += [f"loss {number(loss)}"] if isinstance(loss, float) else []
    said += [f"skipped: {values['skipped']}"] if values.get("skipped") else []
    said += [f"lr {rate:.2e}"] if isinstance(rate, float) else []
    said += [] if speed is None else [f"{speed:,.0f} tokens/s"]
    return said


@attrs.define
class _Mean:
    """Of what was logged since it was last taken."""

    _sum: float = 0.0
    _count: int = 0

    def add(self, value: object) -> None:
        if isinstance(value, float):
            self._sum += value
            self._count += 1

    def take(self) -> float | None:
        mean = self._sum / self._count if self._count else None
        self._sum, self._count = 0.0, 0
        return mean


@attrs.define
class _Clock:
    """How long the rest will take, by what this process has done so far; evaluations and checkpoints count."""

    _since: float = 0.0
    _first: int = 0

    def start(self, step: int) -> None:
        self._since, self._first = time.perf_counter(), step

    def remaining(self, run: Run) -> str:
        """Empty before the first steps and after the last."""
        from rtx_core.header import duration

        done, left = run.step - self._first, run.horizon.total - run.step
        if done <= 1 or left <= 0:
            return ""
        return duration((time.perf_counter() - self._since) / done * left)


class _Bar:
    """The bar below everything that is said."""

    def __init__(self, run: Run) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        # No thread that draws by itself: it would take the interpreter from the training at any moment.
        self._bar: Bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[values]}"),
            TimeRemainingColumn(),
            console=run.console.rich,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
        )
        self._task: TaskID = self._bar.add_task(_TRAINING, total=run.horizon.total, completed=run.step, values="")
        self._drawn = 0.0
        self._bar.start()

    def move(self, run: Run, speed: _Mean) -> None:
        now = time.perf_counter()
        if now - self._drawn < _SECONDS_BETWEEN_DRAWINGS:
            return
        self._drawn = now
        said = "  ".join(figures(run, run.last_values, speed.take()))
        self._bar.update(self._task, completed=run.step, values=said, refresh=True)

    def describe(self, what: str) -> None:
        self._bar.update(self._task, description=what.ljust(len(_TRAINING)), refresh=True)

    def close(self) -> None:
        self._bar.stop()


@attrs.define
class EvaluationTable:
    """Evaluations as aligned rows; the headings are said again only where they change."""

    train_loss: _Mean = attrs.field(factory=_Mean)
    _headings: list[str] = attrs.field(factory=list)

    def rows(self, run: Run, name: str, values: Mapping[str, Any]) -> list[str]:
        """The row of an evaluation, after its headings where they are not those of the row before.

        A value that is no number (a matrix) has no column. Of several sets each row says which it is.
        """
        from rtx_core.header import number

        numbers = {key: value for key, value in values.items() if value is None or isinstance(value, (int, float))}
        several = len(run.pipeline.data.eval) > 1
        names = [key.removeprefix(f"{name}/") for key in numbers] if several else list(numbers)
        headings = ["step", "epoch", "train loss", *names]
        widths = [max(_WIDTH, len(heading)) for heading in headings]
        cells = [f"{run.step:,}", f"{run.epoch:.2f}", number(self.train_loss.take()), *map(number, numbers.values())]
        best = run.monitor in numbers and run.improves(numbers[run.monitor])
        row = _joined(cells, widths) + (f"  {name}" if several else "") + ("  best" if best else "")
        said = [row] if headings == self._headings else [_joined(headings, widths), row]
        self._headings = headings
        return said


def _joined(cells: list[str], widths: list[int]) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))


@attrs.define(eq=False)
class ProgressPart:
    """Speaks in the first process alone, and keeps nothing that a checkpoint would need."""

    _bar: _Bar | None = None
    _table: EvaluationTable = attrs.field(factory=EvaluationTable)
    _clock: _Clock = attrs.field(factory=_Clock)
    _speed: _Mean = attrs.field(factory=_Mean)
    """Tokens per second, since it was last shown: that of a single step says little."""
    _speaks: bool = False
    _every: int = 1
    """Steps between two lines."""
    _next_line: int = 0

    def on_run_start(self, run: Run) -> None:
        """Find out who listens."""
        self._speaks = run.rank == 0
        self._every = max(1, run.horizon.total // _LINES)
        # The first step is said too: it shows that all is well. A resumed run says what it would have said.
        self._next_line = 1 if run.step == 0 else self._after(run.step)
        self._clock.start(run.step)
        if self._speaks and run.console.terminal and not run.console.rich.quiet:
            self._bar = _Bar(run)

    def on_step_end(self, run: Run) -> None:
        """Ask for the values of the steps that get a line, and move the bar when it is time to."""
        if run.step >= self._next_line:
            # The same steps with and without a terminal, so that metrics.jsonl never depends on who watches.
            run.request_log()
        if self._bar is not None:
            self._bar.move(run, self._speed)

    def on_log(self, run: Run, values: Mapping[str, float | str | None]) -> None:
        """Say a line when one is due."""
        self._table.train_loss.add(values.get("train/loss"))
        self._speed.add(values.get("tokens_per_second"))
        if run.step < self._next_line:
            return
        self._next_line = self._after(run.step)
        if self._speaks and self._bar is None:
            run.console.say("  ".join(self._line(run, values)))

    def _after(self, step: int) -> int:
        return (step // self._every + 1) * self._every

    def _line(self, run: Run, values: Mapping[str, float | str | None]) -> list[str]:
        said = [f"step {run.step:,}/{run.horizon.total:,}", *figures(run, values, self._speed.take())]
        remaining = self._clock.remaining(run)
        return [*said, f"{remaining} left"] if remaining else said

    def on_eval_start(self, name: str) -> None:
        """Say what takes the time."""
        if self._bar is not None:
            self._bar.describe(f"{name} …")

    def on_eval_end(self, run: Run, name: str, values: Mapping[str, Any]) -> None:
        """Add a row for the evaluation. The test set is read once, at the end, and belongs to the summary."""
        if self._bar is not None:
            self._bar.describe(_TRAINING)
        if self._speaks and name != "test":
            for row in self._table.rows(run, name, values):
                run.console.say(row)

    def on_exception(self) -> None:
        """Leave the terminal as it was."""
        self._close()

    def on_checkpoint(self, run: Run) -> None:
        """The last step's checkpoint is the end of the bar: what follows is the summary."""
        if run.step >= run.horizon.total or run.stop_reason is not None:
            self._close()

    def on_run_end(self) -> None:
        """Leave the terminal as it was."""
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


@attrs.frozen(kw_only=True)
class Progress(Callback):
    """Shows how far a run is. It has no settings: how often it speaks follows from the run's length and from time."""

    once: ClassVar[bool] = True

    def build(self) -> ProgressPart:
        """The part that speaks."""
        return ProgressPart()


@hookimpl
def callback() -> dict[str, type[Callback]]:
    """Offer it as ``progress``."""
    return {"progress": Progress}
