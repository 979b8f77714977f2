"""Where the time of a few steps goes, by torch's profiler: a trace that Perfetto or a Chrome browser shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from rtx_core import Callback, InputError, Length, hookimpl
from rtx_core.lengths import not_zero

if TYPE_CHECKING:
    import torch

    from rtx_core import Run


class ProfilerPart:
    """Profiles one window of steps in the first process; a resumed run has a window of its own."""

    def __init__(self, settings: Profiler) -> None:
        self.settings = settings
        self._profile: torch.profiler.profile | None = None
        self._first = 0
        """The first step of the trace."""

    def on_build(self, run: Run) -> None:
        """Refuse a window that the run doesn't reach.

        :raises InputError: with both numbers.
        """
        needed = sum(self._window(run))
        if needed > run.horizon.total:
            raise InputError(
                f"callbacks.{run.speaker}: wait, warmup and active are {needed} steps, but the run has "
                f"{run.horizon.total}; make them shorter"
            )

    def on_run_start(self, run: Run) -> None:
        """Begin to count steps."""
        if run.rank != 0:
            return
        import torch

        wait, warmup, active = self._window(run)
        self._first = run.step + wait + warmup + 1
        activity = torch.profiler.ProfilerActivity
        self._profile = torch.profiler.profile(
            activities=[activity.CPU, *([activity.CUDA] if run.device.type == "cuda" else [])],
            schedule=torch.profiler.schedule(wait=wait, warmup=warmup, active=active, repeat=1),
            on_trace_ready=lambda profile: self._write(run, profile),
            record_shapes=self.settings.shapes,
            profile_memory=self.settings.memory,
            with_stack=self.settings.stacks,
            # There is one cycle, so none is cleared; without this torch says so in a warning.
            acc_events=True,
        )
        self._profile.start()

    def on_step_end(self, run: Run) -> None:
        """Go on to the next step; after the window nothing is left that costs time."""
        if self._profile is None:
            return
        self._profile.step()
        if run.step >= self._first + self._window(run)[2] - 1:
            self._profile.stop()
            self._profile = None

    def on_run_end(self, run: Run) -> None:
        """Write what there is of a window that the run left."""
        if self._profile is None:
            return
        profile, self._profile = self._profile, None
        profile.stop()
        if run.step < self._first:
            run.console.warn(f"{run.speaker}: the run ended after step {run.step}, before the trace's {self._first}")

    def _window(self, run: Run) -> tuple[int, int, int]:
        lengths = (self.settings.wait, self.settings.warmup, self.settings.active)
        wait, warmup, active = (run.horizon.steps(length) for length in lengths)
        return wait, warmup, active

    def _write(self, run: Run, profile: torch.profiler.profile) -> None:
        if run.step < self._first:  # stopped between warm-up and the first step: there is nothing to see
            return
        from rtx_core.header import shown

        file = run.folder / "profiler" / f"steps-{self._first}-{run.step}.json.gz"
        file.parent.mkdir(exist_ok=True)
        profile.export_chrome_trace(str(file))
        run.console.say(
            f"{run.speaker}: steps {self._first} to {run.step} are in {shown(file)}; open it at "
            "ui.perfetto.dev or chrome://tracing"
        )


@attrs.frozen(kw_only=True)
class Profiler(Callback):
    """Writes a trace of a few steps into the run's folder, as ``profiler/steps-7-9.json.gz``. Only those steps, and the
    warm-up before them, take longer; what they compute stays the same.
    """

    once: ClassVar[bool] = True

    wait: Length = attrs.field(factory=lambda: Length.parse("5 steps"))
    """Steps before it begins: the first ones of a run are unlike the rest."""
    warmup: Length = attrs.field(factory=lambda: Length.parse("1 step"), validator=not_zero)
    """Steps in which the profiler runs but keeps nothing, since its own start takes time."""
    active: Length = attrs.field(factory=lambda: Length.parse("3 steps"), validator=not_zero)
    """Steps in the trace."""
    shapes: bool = False
    """Whether the trace has the shapes of what each operation was given."""
    memory: bool = False
    """Whether it has what was allocated and freed."""
    stacks: bool = False
    """Whether it has the line of Python that each operation came from; the slowest of the three."""

    def build(self) -> ProfilerPart:
        """The part that holds torch's profiler."""
        return ProfilerPart(self)


@hookimpl
def callback() -> dict[str, type[Callback]]:
    """Offer it as ``profiler``."""
    return {"profiler": Profiler}
