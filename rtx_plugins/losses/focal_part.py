"""The computation behind ``focal``. N targets, K classes or labels.

(1 − p)^γ is exp(γ · log(1 − p)), with that logarithm from the logits: the power's own gradient is infinite where p
rounds to 1 and γ < 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from rtx_core import InputError
from rtx_plugins.losses.class_part import ClassPart
from rtx_plugins.losses.elementwise_part import ElementwisePart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtx_core import Run


class _OfClasses(ClassPart):
    """Σ w[y] · −(1 − p[y])^γ · log p[y], p the softmax."""

    def __init__(self, class_weights: Sequence[float] | None, gamma: float) -> None:
        super().__init__(class_weights)
        self.gamma = gamma

    def of_logits(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The sum over logits ``[N, K]`` and targets ``[N]``."""
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        logs = logits.log_softmax(-1)
        right = targets.clamp_min(0).unsqueeze(-1)  # [N, 1]
        log_rest = logs.scatter(-1, right, -torch.inf).logsumexp(-1)  # [N], log(1 − p[y])
        costs = (self.gamma * log_rest).exp() * -logs.gather(-1, right).squeeze(-1)
        return (self.shares(targets, logits.dtype) * costs).sum()


class _OfLabels(ElementwisePart):
    """−α · (1 − p)^γ · log p, p the probability of what the label is; 1 − α in place of α where it isn't there."""

    def __init__(self, alpha: float | None, gamma: float) -> None:
        super().__init__()
        self.alpha, self.gamma = alpha, gamma

    def costs(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Of each entry ``[N, K]``."""
        signed = logits * (2.0 * targets - 1.0)
        costs = (self.gamma * functional.logsigmoid(-signed)).exp() * -functional.logsigmoid(signed)
        if self.alpha is None:
            return costs
        return costs * (self.alpha * targets + (1.0 - self.alpha) * (1.0 - targets))


class FocalPart(nn.Module):
    """Goes by the targets: whole numbers are classes, ``[N]``, others are labels, ``[N, K]``."""

    def __init__(self, class_weights: Sequence[float] | None, alpha: float | None, gamma: float) -> None:
        super().__init__()
        self.of_classes = _OfClasses(class_weights, gamma)
        self.of_labels = _OfLabels(alpha, gamma)

    def on_build(self, run: Run) -> None:
        """Refuse a factor that the task's targets have no use for.

        :raises InputError: ``alpha`` with classes, ``class_weights`` with labels.
        """
        kind = run.pipeline.task.target_kind
        if kind == "class" and self.of_labels.alpha is not None:
            raise InputError("loss.alpha: this task has classes, not labels that are there or not; take class_weights")
        if kind == "labels" and self.of_classes.class_weights is not None:
            raise InputError("loss.class_weights: this task has labels that are there or not, not classes; take alpha")

    def weight(self, targets: torch.Tensor) -> float:
        """Σ w[y] over classes, the number of entries over labels; ignored ones left out."""
        return self._of(targets).weight(targets)

    def of_logits(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The sum over logits ``[N, K]`` and targets, in float32 or wider."""
        return self._of(targets).of_logits(logits, targets)

    def _of(self, targets: torch.Tensor) -> _OfClasses | _OfLabels:
        return self.of_labels if targets.is_floating_point() else self.of_classes
