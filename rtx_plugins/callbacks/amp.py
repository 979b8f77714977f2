"""Automatic mixed precision: matrix products in bfloat16, sums and weights in float32, by ``torch.autocast``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from rtx_core import Callback, hookimpl

if TYPE_CHECKING:
    from collections.abc import Generator

    import torch

    from rtx_core import Run

Precision = Literal["auto", "bf16", "float32"]


@attrs.define
class AmpPart:
    """Wraps the forward pass; decided once the device is known."""

    asked: Precision
    active: bool = False

    def on_run_start(self, run: Run) -> None:
        """Look at the device; say so where bfloat16 was asked for and isn't used."""
        possible = _computes_bf16(run.device)
        self.active = possible and self.asked != "float32"
        if self.asked == "bf16" and not possible:
            run.console.warn(f"amp: {run.device.type} doesn't compute in bfloat16 here; the run stays in float32")

    @hookimpl(wrapper=True)
    def compute_loss(self, run: Run) -> Generator[None, torch.Tensor, torch.Tensor]:
        """The loss, with autocast around it where active."""
        if not self.active:
            return (yield)
        import torch

        with torch.autocast(run.device.type, dtype=torch.bfloat16):
            return (yield)


def _computes_bf16(device: torch.device) -> bool:
    import torch

    if device.type != "cuda":
        return False
    with torch.cuda.device(device):
        # Older GPUs emulate it, slower than float32.
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))


@attrs.frozen(kw_only=True)
class Amp(Callback):
    """Runs the forward pass in mixed precision where the device is made for it."""

    dtype: Precision = "auto"
    """``auto``: bfloat16 on a GPU that computes in it, else float32 (always on a CPU); ``bf16``: the same, and says so
    where it stays in float32; ``float32``: never mixed."""

    def build(self) -> AmpPart:
        """The part that knows the device."""
        return AmpPart(self.dtype)


@hookimpl
def callback() -> dict[str, type[Callback]]:
    """Offer it as ``amp``."""
    return {"amp": Amp}
