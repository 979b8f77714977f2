"""Mixed precision in the forward pass: autocast, and a scaled loss for float16 (Micikevicius et al. 2018,
arXiv:1710.03740).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import attrs

from rtx_core import Callback, InputError, hookimpl

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    import torch

    from rtx_core import Run

Precision = Literal["auto", "bf16", "fp16", "float32"]


class AutocastPart:
    """Wraps the forward pass; matrix products in it are computed in 16 bits."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    @hookimpl(wrapper=True)
    def compute_loss(self, run: Run) -> Generator[None, torch.Tensor, torch.Tensor]:
        """The loss, with autocast around it."""
        import torch

        with torch.autocast(run.device.type, dtype=self.dtype):
            return (yield)


class ScaledPart(AutocastPart):
    """Also multiplies the loss, so that small gradients don't become 0 in float16, and divides the gradients again.

    Where that was too much for float16 and a gradient is infinite, the step is skipped and the scale halves; after 2000
    steps without that it doubles.
    """

    skipped_steps: int = 0
    """Steps whose gradients were not finite."""
    _scaler: torch.amp.GradScaler | None = None

    def on_build(self, run: Run) -> None:
        """Take torch's scaler for the device.

        :raises InputError: the loss is one whose gradients can't be scaled.
        """
        import torch

        if run.pipeline.loss.whole_step:
            raise InputError(
                'callbacks.amp.dtype: "fp16" can\'t be used with a loss over the whole step, whose gradients go '
                'through a cache; take "bf16"'
            )
        self._scaler = torch.amp.GradScaler(run.device.type)

    def on_run_start(self) -> None:
        """Read the scale once: each reading waits for the device."""
        self._scale = self._live.get_scale()

    def backward(self, loss: torch.Tensor) -> bool:
        """Add the gradients of the scaled loss."""
        self._live.scale(loss).backward()  # type: ignore[no-untyped-call]
        return True

    # Innermost whatever the order in the file: everybody else who looks at finished gradients sees them unscaled.
    @hookimpl(wrapper=True, trylast=True)
    def finish_gradients(self, run: Run) -> Generator[None, bool, bool]:
        """Divide the summed gradients by the scale; False where one of them is not finite."""
        finite = yield
        before = self._scale
        self._live.unscale_(run.optimizer)
        self._live.update()
        self._scale = self._live.get_scale()
        overflowed = self._scale < before
        self.skipped_steps += overflowed
        run.log({"scale": before, "skipped_steps": self.skipped_steps})
        return finite and not overflowed

    def state_dict(self) -> dict[str, Any]:
        """The scale, how long it has held, and the count."""
        return {"scaler": self._live.state_dict(), "skipped_steps": self.skipped_steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._live.load_state_dict(dict(state["scaler"]))
        self.skipped_steps = state["skipped_steps"]

    @property
    def _live(self) -> torch.amp.GradScaler:
        if self._scaler is None:
            raise ValueError("the scaler is made in on_build")
        return self._scaler


@attrs.frozen(kw_only=True)
class Amp(Callback):
    """Runs the forward pass of training in mixed precision where the device is made for it; weights, gradients, updates
    and evaluations stay in float32.
    """

    once: ClassVar[bool] = True

    dtype: Precision = "auto"
    """``auto``: bfloat16 on a GPU that computes in it, else float32 (always on a CPU); ``bf16``: the same, and says so
    where it stays in float32; ``fp16``: float16 with a scaled loss, on a GPU or a CPU; ``float32``: never mixed."""

    def inactive_on(self, device: torch.device) -> str | None:
        """Where nothing is mixed."""
        match self.dtype:
            case "float32":
                return ""
            case "fp16":
                return None if device.type in ("cpu", "cuda") else f"float16 needs a GPU of CUDA or a CPU, not {device}"
        if _computes_bf16(device):
            return None
        return "" if self.dtype == "auto" else f"{device} doesn't compute in bfloat16 here; the run stays in float32"

    def build(self) -> AutocastPart:
        """The part for a device on which it is active."""
        import torch

        return ScaledPart(torch.float16) if self.dtype == "fp16" else AutocastPart(torch.bfloat16)


def _computes_bf16(device: torch.device) -> bool:
    import torch

    if device.type != "cuda":
        return False
    with torch.cuda.device(device):
        # Older GPUs emulate it, slower than float32.
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))


@hookimpl
def callback() -> dict[str, type[Callback]]:
    """Offer it as ``amp``."""
    return {"amp": Amp}
