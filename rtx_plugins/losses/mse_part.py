"""The computation behind ``mse``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional

from rtx_plugins.losses.elementwise_part import ElementwisePart

if TYPE_CHECKING:
    import torch


class MsePart(ElementwisePart):
    """(x − y)²."""

    def costs(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Of each entry ``[N, K]``."""
        return functional.mse_loss(logits, targets, reduction="none")
