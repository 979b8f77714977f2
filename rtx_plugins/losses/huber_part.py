"""The computation behind ``huber``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional

from rtx_plugins.losses.elementwise_part import ElementwisePart

if TYPE_CHECKING:
    import torch


class HuberPart(ElementwisePart):
    """(x − y)² / 2 up to a distance of δ, δ · (|x − y| − δ/2) beyond it.

    :param delta: δ.
    """

    def __init__(self, delta: float) -> None:
        super().__init__()
        self.delta = delta

    def costs(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Of each entry ``[N, K]``."""
        return functional.huber_loss(logits, targets, reduction="none", delta=self.delta)
