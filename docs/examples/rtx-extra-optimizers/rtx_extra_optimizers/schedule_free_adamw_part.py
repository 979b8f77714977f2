"""The update of schedule-free AdamW, with the letters of algorithm 1 of arXiv:2405.15682.

z is what gradient steps move, x its weighted average, y = (1 − β1) z + β1 x where gradients are computed. The model
holds y in training and x in evaluation; beside it only z is kept, from which the other follows.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


class ScheduleFreeAdamWPart(torch.optim.Optimizer):
    """Of each parameter it keeps z, the average square of gradients, the count of updates and the sum of weights."""

    def __init__(self, params: Any, *, beta1: float, beta2: float, eps: float) -> None:
        """``params`` are groups with ``lr`` and ``weight_decay``."""
        super().__init__(params, {"beta1": beta1, "beta2": beta2, "eps": eps, "averaged": False})

    def train(self) -> None:
        """Put y into the model; nothing happens where it is there."""
        self._show(averaged=False)

    def eval(self) -> None:
        """Put the average x into the model; nothing happens where it is there."""
        self._show(averaged=True)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update of every parameter that has a gradient.

        :raises RuntimeError: the model holds the average: its gradients are of the wrong place.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if group["averaged"]:
                raise RuntimeError("the model holds averaged weights; call train() before the forward pass")
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)
        return loss

    def _move(self, y: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        state, beta1, beta2 = self.state[y], group["beta1"], group["beta2"]
        if not state:
            state.update(z=y.clone(), exp_avg_sq=torch.zeros_like(y), updates=0, weight_sum=0.0)
        state["updates"] += 1
        rate = group["lr"] * math.sqrt(1 - beta2 ** state["updates"])
        state["weight_sum"] += rate**2
        share = rate**2 / state["weight_sum"] if rate else 0.0  # at the start of a warm-up nothing moves
        z, square = state["z"], state["exp_avg_sq"]
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        direction = (gradient / square.sqrt().add_(group["eps"])).add_(y, alpha=group["weight_decay"])
        # x ← (1 − c) x + c z and y = (1 − β1) z + β1 x, solved for y without x.
        y.lerp_(z, share).add_(direction, alpha=rate * (beta1 * (1 - share) - 1))
        z.add_(direction, alpha=-rate)

    @torch.no_grad()
    def _show(self, *, averaged: bool) -> None:
        for group in self.param_groups:
            if group["averaged"] is averaged:
                continue
            group["averaged"] = averaged
            towards_z = 1 - 1 / group["beta1"] if averaged else 1 - group["beta1"]
            for parameter in group["params"]:
                if parameter in self.state:
                    parameter.lerp_(self.state[parameter]["z"], towards_z)
