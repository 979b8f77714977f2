"""What happens when a step's loss or gradient is NaN or infinite: the run ends, skips the step, or goes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import attrs

from rtx_core import Callback, InputError, RunError, hookimpl

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from rtx_core import Run

_SHOWN = 10
"""Samples that a message names."""


@attrs.define(eq=False)
class NanGuardPart:
    """Looks at each step once its gradients are complete, which waits for the device."""

    settings: NanGuard
    in_a_row: int = 0
    """Skipped steps up to this one."""
    _failure: str | None = None

    def on_build(self, run: Run) -> None:
        """Refuse what can't be done.

        :raises InputError: samples can't be left out of the loss.
        """
        if self.settings.action == "rewind" and run.pipeline.loss.whole_step:
            raise InputError(
                'callbacks.nan_guard.action: "rewind" leaves out samples, which a loss over pairs of them can\'t; take '
                '"skip" or "stop"'
            )

    def on_run_start(self, run: Run) -> None:
        """Have something to go back to from the first step on."""
        if self.settings.action == "rewind" and run.step == 0 and run.rewinds == 0:
            run.request_checkpoint()

    @hookimpl(wrapper=True)
    def finish_gradients(self, run: Run) -> Generator[None, bool, bool]:
        """False where the loss is not finite, or a gradient for which nobody else has answered yet."""
        finite = yield
        loss, gradients = _finite(run)
        if loss and (gradients or not finite):
            self.in_a_row = 0
            return finite
        run.skip_reason = "overflow" if loss else "nan_loss"
        what = "a gradient is not finite" if loss else f"the loss is {float(run.loss):g}"  # type: ignore[arg-type]
        self._act(run, f"nan_guard: {what} in step {run.step + 1}", _offending(run))
        return False

    def _act(self, run: Run, what: str, samples: list[int]) -> None:
        limit, action = self.settings.limit, self.settings.action
        named = f"{what} (samples {_shortened(samples)})"
        self.in_a_row += 1
        if action == "rewind" and run.rewinds < limit:
            run.console.warn(f"{named}; going back, without them from now on")
            run.request_rewind(leave_out=samples)
        elif action == "skip" and self.in_a_row < limit:
            run.console.warn(f"{named}; the step is skipped")
        else:
            after = {"stop": "", "skip": f", the {limit}. in a row", "rewind": f", after {limit} times back"}[action]
            self._failure = (
                f"{named}{after}; no update was made in it. Look at these samples, lower optimizer.lr or lengthen "
                "scheduler.warmup; --resume goes on with the step after it"
            )
            # The step's row, and the weights that are still good, come first.
            run.request_log()
            run.request_checkpoint()

    def on_checkpoint(self) -> None:
        """End the run, once all is saved.

        :raises RunError: with the step and the samples.
        """
        if self._failure is not None:
            raise RunError(self._failure)

    def state_dict(self) -> dict[str, Any]:
        """The count; what is left out is the run's."""
        return {"in_a_row": self.in_a_row}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.in_a_row = state["in_a_row"]


def _finite(run: Run) -> tuple[bool, bool]:
    """Whether the step's loss is finite, and all of its gradient, over all processes: one wait for the device."""
    import torch

    loss = torch.zeros((), device=run.device) if run.loss is None else run.loss
    gradients = [p.grad for group in run.optimizer.param_groups for p in group["params"] if p.grad is not None]
    # The largest absolute value of each; NaN is larger than all. Without any (all parameters frozen) the loss tells.
    largest = torch._foreach_norm(gradients or [loss], float("inf"))  # noqa: SLF001 - torch's own clipping is built on it
    seen = torch.stack([loss.isfinite(), torch.stack(largest).isfinite().all()]).tolist()
    bad_losses, bad_gradients = run.strategy.sum(*(float(not finite) for finite in seen))
    return not bad_losses, not bad_gradients


def _offending(run: Run) -> list[int]:
    """The samples of the micro-batches whose loss is not finite; all of the step's where that can't be told."""
    bad = [piece for piece in run.pieces if piece.loss is not None and not piece.loss.isfinite()]
    return sorted({i for piece in bad or run.pieces for i in piece.sample_ids.tolist()})


def _shortened(samples: list[int]) -> str:
    more = f" and {len(samples) - _SHOWN:,} more" if len(samples) > _SHOWN else ""
    return ", ".join(map(str, samples[:_SHOWN])) + more


@attrs.frozen(kw_only=True)
class NanGuard(Callback):
    """Makes no update from a loss or a gradient that is NaN or infinite. It looks at every step, which lets a GPU wait
    once a step.
    """

    once: ClassVar[bool] = True

    action: Literal["stop", "skip", "rewind"] = "stop"
    """``stop``: the run fails, with a checkpoint of the weights before the step and the step's samples in the message;
    ``skip``: go on with the next step; ``rewind``: back to the last checkpoint, and on from there without the targets
    of the samples that were in the micro-batch."""
    limit: int = attrs.field(default=10, validator=attrs.validators.ge(1))
    """So many skipped steps in a row end the run as ``stop`` does; so often a run is set back, and the next ends it."""

    def build(self) -> NanGuardPart:
        """The part that counts."""
        return NanGuardPart(self)


@hookimpl
def callback() -> dict[str, type[Callback]]:
    """Offer it as ``nan_guard``."""
    return {"nan_guard": NanGuard}
