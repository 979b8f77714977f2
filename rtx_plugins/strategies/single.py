"""One process on one device: every sum is the identity."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import InputError, Strategy, hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from rtx_core import Batch, Run
    from rtx_core.components import StrategyPart


@attrs.frozen(kw_only=True)
class Single(Strategy):
    """One process on one device."""

    def build(self, device: str) -> StrategyPart:
        """The part on the named device; ``auto`` takes CUDA, then MPS, then the CPU."""
        return SinglePart(torch_device(device, "run.device"))


class SinglePart:
    """The loop's defaults in one process."""

    rank = 0
    world_size = 1

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.module: torch.nn.Module

    def wrap(self, module: torch.nn.Module) -> torch.nn.Module:
        """The module itself."""
        self.module = module
        return module

    def sum(self, *values: float) -> tuple[float, ...]:
        """The values themselves."""
        return values

    def sum_tensors(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The tensors themselves."""
        return dict(tensors)

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        """The rows themselves."""
        return rows

    def barrier(self) -> None:
        """Nobody to wait for."""

    @hookimpl(trylast=True)
    def compute_loss(self, batch: Batch) -> torch.Tensor:
        """The summed loss of a batch."""
        loss: torch.Tensor = self.module(batch)
        return loss

    @hookimpl(trylast=True)
    def backward(self, loss: torch.Tensor) -> bool:
        """Add the gradients of the loss."""
        loss.backward()  # type: ignore[no-untyped-call]
        return True

    @hookimpl(trylast=True)
    def finish_gradients(self) -> bool:
        """Gradients are complete; whether they are finite is not looked at, which would cost a sync on a GPU."""
        return True

    @hookimpl(trylast=True)
    def apply_gradients(self, run: Run) -> bool:
        """One step of the optimizer."""
        run.optimizer.step()
        return True


def torch_device(name: str, place: str) -> torch.device:
    """The device of this name; ``auto`` takes CUDA, then MPS, then the CPU.

    :param place: where the name was written, for the error.
    :raises InputError: there is none here.
    """
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    kind, colon, number = name.partition(":")
    counts = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    is_there = number.isdecimal() and int(number) < counts.get(kind, 0) if colon else counts.get(kind, 0) > 0
    if not is_there:
        raise InputError(f'{place}: "{name}" is not available here; "auto" takes what there is')
    return torch.device(name)


@hookimpl
def strategy() -> dict[str, type[Strategy]]:
    """Offer the strategy."""
    return {"single": Single}
