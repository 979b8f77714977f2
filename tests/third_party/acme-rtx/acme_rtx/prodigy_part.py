"""The update of Prodigy. Letters as in algorithm 4 of arXiv:2306.06101: γ is lr, x0 the start, s and r the two sums."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


class ProdigyPart(torch.optim.Optimizer):
    """Keeps the floats ``d``, ``d_max`` and ``d_numerator`` in each of its groups, the same in all of them."""

    def __init__(self, params: Any, *, d0: float, **settings: Any) -> None:
        """``settings`` are those of :class:`acme_rtx.prodigy.Prodigy`."""
        floats = {"d": d0, "d_max": d0, "d_numerator": 0.0}
        super().__init__(params, {**settings, **floats, "d0": d0, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        pairs = [(p, group) for group in self.param_groups for p in group["params"] if p.grad is not None]
        rate = self.param_groups[0]["d"]
        if self._estimate([self._accumulate(p, group) for p, group in pairs]):
            for parameter, group in pairs:
                self._move(parameter, group, rate)
        return loss

    def _accumulate(self, parameter: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
        """Update m, v and s; what this parameter adds to the numerator r and to ‖s‖₁, ``[2]``."""
        gradient: torch.Tensor = parameter.grad  # type: ignore[assignment] # step() chose those that have one
        state, d = self.state[parameter], group["d"]
        if not state:
            state["start"] = parameter.clone()
            state |= {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq", "s")}
        beta1, beta2 = group["betas"]
        # Both sums are divided by d0, which their ratio doesn't notice and float32 does: d² is 1e-12 at first.
        share = group["lr"] * d * d / group["d0"]
        state["exp_avg"].mul_(beta1).add_(gradient, alpha=(1.0 - beta1) * d)
        state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=(1.0 - beta2) * d * d)
        state["s"].mul_(math.sqrt(beta2)).add_(gradient, alpha=(1.0 - math.sqrt(beta2)) * share)
        numerator = (1.0 - math.sqrt(beta2)) * share * (gradient * (state["start"] - parameter)).sum()
        return torch.stack((numerator, state["s"].abs().sum()))

    def _estimate(self, contributions: list[torch.Tensor]) -> bool:
        """Update d in every group; False where there is no gradient to learn from yet."""
        if not contributions:
            return False
        added, denominator = torch.stack(contributions).sum(0).tolist()  # the step's only wait for the device
        if denominator == 0.0:
            return False
        first = self.param_groups[0]
        numerator = math.sqrt(first["betas"][1]) * first["d_numerator"] + added
        estimate = first["d_coef"] * numerator / denominator
        d_max = max(first["d_max"], estimate)
        # The first growth is free: d0 is a guess that may be wrong by orders of magnitude.
        bounded = first["growth_rate"] is not None and first["d"] > first["d0"]
        d = min(d_max, first["d"] * first["growth_rate"]) if bounded else d_max
        for group in self.param_groups:
            group.update(d=d, d_max=d_max, d_numerator=numerator)
        return True

    def _move(self, parameter: torch.Tensor, group: dict[str, Any], d: float) -> None:
        """Take x to x − γ d (m / (√v + d ε) + weight_decay · x), with the d that m and v were made with."""
        state, rate = self.state[parameter], group["lr"] * d
        parameter.mul_(1.0 - rate * group["weight_decay"])
        parameter.addcdiv_(state["exp_avg"], state["exp_avg_sq"].sqrt().add_(d * group["eps"]), value=-rate)
