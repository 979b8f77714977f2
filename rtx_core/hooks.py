"""Every hook, as a table of contents. Plugins implement the first class's in a module, parts the second's as methods.

``rtx_core.hookimpl`` marks a module's functions; on a part a method with a hook's name is an implementation, and
``@hookimpl(wrapper=True)`` or an order is only needed for those two. Leave out arguments that you don't need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pluggy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from rtx_core import components
    from rtx_core.run import Run
    from rtx_core.samples import Batch

PROJECT = "rtx"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class KindHooks(Protocol):
    """Asked of the module that an entry point ``kind.name`` points to; each returns its components by name."""

    @hookspec
    def architecture(self) -> dict[str, type[components.Architecture]]:
        """Bodies of models."""
        ...

    @hookspec
    def head(self) -> dict[str, type[components.Head]]:
        """Heads that any architecture can wear."""
        ...

    @hookspec
    def optimizer(self) -> dict[str, type[components.Optimizer]]:
        """Optimizers."""
        ...

    @hookspec
    def scheduler(self) -> dict[str, type[components.Scheduler]]:
        """Courses of the learning rate."""
        ...

    @hookspec
    def loss(self) -> dict[str, type[components.Loss]]:
        """Losses."""
        ...

    @hookspec
    def metric(self) -> dict[str, type[components.Metric]]:
        """Figures of an evaluation."""
        ...

    @hookspec
    def callback(self) -> dict[str, type[components.Callback]]:
        """Parts that implement hooks of the loop."""
        ...

    @hookspec
    def task(self) -> dict[str, type[components.Task]]:
        """What is learnt."""
        ...

    @hookspec
    def data(self) -> dict[str, type[components.Data]]:
        """Sources of records."""
        ...

    @hookspec
    def tokenizer(self) -> dict[str, type[components.Tokenizer]]:
        """Tokenizers, trained or loaded."""
        ...

    @hookspec
    def strategy(self) -> dict[str, type[components.Strategy]]:
        """Ways to spread a step over processes."""
        ...

    @hookspec
    def command(self) -> dict[str, type[components.Command]]:
        """Subcommands."""
        ...


class LoopHooks(Protocol):
    """Called by the loop, in this order, on every part that has a method of the name.

    File order is call order; the first table is the outermost wrapper. Where one answer is wanted (``firstresult``) the
    strategy's is the default, and an implementation must answer: None is an error.
    """

    @hookspec
    def on_build(self, run: Run) -> None:
        """Everything is built, at step 0, and nothing was written: the time to refuse. A checkpoint is loaded later."""
        ...

    @hookspec
    def on_run_start(self, run: Run) -> None:
        """Before step 0, or after a checkpoint was loaded: that of a resume, or of :meth:`Run.request_rewind`."""
        ...

    @hookspec(firstresult=True)
    def compute_loss(self, run: Run, batch: Batch) -> torch.Tensor:
        """Each micro-batch: the summed loss, scalar float32. Autocast wraps it."""
        ...

    @hookspec(firstresult=True)
    def backward(self, run: Run, loss: torch.Tensor) -> bool:
        """Each micro-batch: add gradients; the loss is already divided by the step's weight. Answers True."""
        ...

    @hookspec(firstresult=True)
    def finish_gradients(self, run: Run) -> bool:
        """After the last micro-batch: sum over processes, unscale. False: not finite, and the step is skipped."""
        ...

    @hookspec
    def on_gradients(self, run: Run) -> None:
        """The final gradients: clip, add noise, count."""
        ...

    @hookspec(firstresult=True)
    def apply_gradients(self, run: Run) -> bool:
        """The update. False when it was skipped."""
        ...

    @hookspec
    def on_step_end(self, run: Run) -> None:
        """After each step, skipped or not; the time for requests."""
        ...

    @hookspec
    def on_log(self, run: Run, values: Mapping[str, float | str | None]) -> None:
        """A row of this step's values was asked for; they are on the host."""
        ...

    @hookspec
    def on_eval_start(self, run: Run, name: str) -> None:
        """Before an evaluation set is read; ``name`` is ``eval``, ``eval/NAME`` or ``test``."""
        ...

    @hookspec
    def on_eval_end(self, run: Run, name: str, values: Mapping[str, Any]) -> None:
        """After it; ``values`` by full name, as ``eval/loss``."""
        ...

    @hookspec
    def on_checkpoint(self, run: Run, folder: Path) -> None:
        """A checkpoint was committed in this folder."""
        ...

    @hookspec
    def on_exception(self, run: Run, error: BaseException) -> None:
        """The run fails; ``error`` is raised again afterwards."""
        ...

    @hookspec
    def on_run_end(self, run: Run) -> None:
        """Always last, failed or not."""
        ...
