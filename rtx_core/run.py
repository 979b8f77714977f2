"""A run's live state: what hooks may read, and the requests they may make.

Requests are acted on once a step, in one order: ``on_step_end`` → rewind, or log → evaluate → checkpoint → stop.
Nothing is saved inside a hook, so every part's state in a checkpoint is of the same moment.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import attrs

from rtx_core.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    import torch

    from rtx_core.components import Callback, Direction, StrategyPart
    from rtx_core.config import Pipeline
    from rtx_core.console import Console
    from rtx_core.lengths import Horizon
    from rtx_core.samples import Batch


@attrs.define(kw_only=True, eq=False)
class Run:
    """One training run. Attributes without an underscore are for plugins; the last group is the core's to write."""

    pipeline: Pipeline
    """The checked settings."""
    folder: Path
    """The run's folder; hooks may write files of their own name there."""
    model: torch.nn.Module
    """Backbone and head, unwrapped."""
    optimizer: torch.optim.Optimizer
    strategy: StrategyPart
    console: Console
    """Where messages go: the terminal or plain lines, and ``log.txt``."""
    horizon: Horizon
    """The run's length; ``horizon.steps(length)`` converts."""
    monitor: str | None
    """What best and early stopping go by, as ``eval/accuracy``; None where nothing is evaluated."""
    monitor_direction: Direction
    threads: int
    """CPU threads of the computation."""
    parts: Mapping[str, Any] = attrs.field(factory=dict)
    """Every built part by its name in messages (``callback.early_stopping``); for who looks at a run from outside."""

    step: int = 0
    """Finished steps: batches drawn. Data, seeds, intervals and duration count these."""
    updates: int = 0
    """Updates made. The schedule and the optimizer count these; a skipped step adds none."""
    tokens: int = 0
    """Real tokens seen so far."""
    skip_reason: str | None = None
    """Why this step is skipped; a part that answers ``finish_gradients`` with False sets it ("nan_loss", …)."""
    loss: torch.Tensor | None = None
    """This step's loss, still on the device: from ``finish_gradients`` on, None before. Reading it waits for it."""
    pieces: Sequence[Batch] = ()
    """This step's micro-batches of this process, from ``finish_gradients`` on."""
    left_out: frozenset[int] = frozenset()
    """Samples whose targets are ignored from now on. Saved."""
    rewinds: int = 0
    """How often the run went back to a checkpoint. Saved."""
    last_values: dict[str, float | str | None] = attrs.field(factory=dict)
    """The values of the last log step; reading them costs no sync. Saved, but for the speed."""
    best_value: float | None = None
    """The monitor's best value so far."""
    best_step: int | None = None
    stop_reason: str | None = None
    """Why the run stops before its end; None while it goes on."""

    epochs_of_stream: Callable[[], float] | None = None
    """Epochs of streamed data that are done; None where they follow from the step."""
    log_requested: bool = False
    eval_requested: bool = False
    checkpoint_requested: bool = False
    rewind_requested: bool = False
    speaker: str | None = None
    """The part whose hook runs now, under whose name its values are logged."""
    _logged: dict[str, Any] = attrs.field(factory=dict)
    _lr_scale: float = 1.0

    @property
    def lr_scale(self) -> float:
        """A factor of the rate that hooks may set; rate = peak × schedule × scale. Saved.

        A validator of attrs would be cheaper to write, but slows down every attribute that a step sets.

        :raises PluginError: when it is set, so that a mistake is its author's and not the optimizer's a step later.
        """
        return self._lr_scale

    @lr_scale.setter
    def lr_scale(self, value: float) -> None:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value < 0:
            whose = f"{self.speaker}: " if self.speaker else ""
            raise PluginError(f"{whose}run.lr_scale: expected a finite number from 0, got {value!r}")
        self._lr_scale = value

    @property
    def epoch(self) -> float:
        """Epochs done so far, with a fraction; of a stream only whole ones are known."""
        if self.epochs_of_stream is not None:
            return self.epochs_of_stream()
        return self.step / self.horizon.steps_per_epoch

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.strategy.device

    @property
    def rank(self) -> int:
        """This process among the run's, from 0."""
        return self.strategy.rank

    @property
    def world_size(self) -> int:
        """How many processes the run has."""
        return self.strategy.world_size

    def log(self, values: Mapping[str, Any]) -> None:
        """Add numbers or scalar tensors to the next row, under the name of the part that calls (``ema/decay``).

        That is this step's if it gets one and it isn't written yet. ``grad_norm`` alone belongs to no part and stands
        as it is, whoever clips; it is dropped with its step. Tensors stay on their device until a log step copies all
        of them at once.

        :raises PluginError: a value is no single number.
        """
        for name, value in values.items():
            shared = name == "grad_norm" or self.speaker is None
            try:
                plain = _plain_unless_tensor(value)
            except (TypeError, ValueError):
                who = self.speaker or "run"
                raise PluginError(
                    f"{who}: run.log: {name}: expected a number or a tensor with one, got {_described(value)}"
                ) from None
            self._logged[name if shared else f"{self.speaker}/{name}"] = plain

    def stop(self, reason: str) -> None:
        """End the run after this step; it counts as finished."""
        self.stop_reason = reason

    def request_log(self) -> None:
        """Write a row of values for this step."""
        self.log_requested = True

    def request_eval(self) -> None:
        """Evaluate after this step."""
        self.eval_requested = True

    def request_checkpoint(self) -> None:
        """Save after this step."""
        self.checkpoint_requested = True

    def request_rewind(self, leave_out: Iterable[int]) -> None:
        """Go back to the newest checkpoint after this step, whose row is not written, and go on from there.

        As at a resume: ``on_run_end``, every part's state is that of the checkpoint, ``on_run_start``.

        :param leave_out: samples whose targets are ignored from then on.
        """
        self.left_out |= frozenset(leave_out)
        self.rewind_requested = True

    def improves(self, value: float | None) -> bool:
        """Whether a value of the monitor is better than the best so far; NaN and infinity never are."""
        if value is None or not math.isfinite(value):
            return False
        if self.best_value is None:
            return True
        return value > self.best_value if self.monitor_direction == "max" else value < self.best_value

    def begin_step(self) -> None:
        """Forget what is true of one step alone."""
        self.skip_reason = None
        self.loss, self.pieces = None, ()
        self._logged.pop("grad_norm", None)

    def take_logged(self) -> dict[str, Any]:
        """Hand out what was logged since the last call, and forget it."""
        values, self._logged = self._logged, {}
        return values

    def state_dict(self) -> dict[str, Any]:
        """The counters and decisions that a checkpoint keeps."""
        return {
            **{name: getattr(self, name) for name in _SAVED},
            "left_out": sorted(self.left_out),
            # What is of the clock and not of the run stays out: with it no two checkpoints would be equal.
            "last_values": {
                name: value
                for name, value in self.last_values.items()
                if not measured_of_machine(name, self.pipeline.callbacks)
            },
            "logged": {name: float(v) if hasattr(v, "detach") else v for name, v in self._logged.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the counters of a checkpoint.

        :raises PluginError: the state is of another shape.
        """
        if set(state) != {*_SAVED, "left_out", "last_values", "logged"}:
            raise PluginError(f"the checkpoint's run state has {sorted(state)}, which this version doesn't know")
        for name in (*_SAVED, "last_values"):
            setattr(self, name, state[name])
        self.left_out = frozenset(state["left_out"])
        self._logged = dict(state["logged"])


def measured_of_machine(name: str, callbacks: Mapping[str, Callback]) -> bool:
    """Whether a row's value of this name is of the clock or the machine, so that equal runs have others."""
    table, named, _ = name.partition("/")
    return name == "tokens_per_second" or bool(named and table in callbacks and callbacks[table].measures_machine)


def _plain_unless_tensor(value: Any) -> Any:
    """Numbers of numpy and the like as Python's, so that a row can be saved.

    :raises ValueError: a tensor of several; TypeError: no number.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if hasattr(value, "detach"):
        if value.numel() != 1:  # known without a look at the device
            raise ValueError
        return value
    return float(value)


def _described(value: Any) -> str:
    """What was given instead of a number."""
    return f"a tensor of shape {list(value.shape)}" if hasattr(value, "shape") else repr(value)


_SAVED = (
    *("step", "updates", "tokens", "lr_scale", "best_value", "best_step", "stop_reason", "rewinds"),
    # What a hook asked for after it was too late in this step; the next one answers it.
    *("log_requested", "eval_requested"),
)
