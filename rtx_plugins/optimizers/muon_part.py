"""Muon and AdamW as one ``torch.optim.Optimizer``, and Muon itself for a torch that has none (below 2.9)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from rtx_plugins.optimizers.common import described

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rtx_core import ParameterGroup


class MuonWithAdamW(torch.optim.Optimizer):
    """Each group is updated by one of the two, which share the groups and the state of this one."""

    def __init__(
        self,
        groups: Sequence[ParameterGroup],
        *,
        by_muon: Sequence[bool],
        muon: Mapping[str, Any],
        adamw: Mapping[str, Any],
    ) -> None:
        """``by_muon`` says of each group whose it is; ``muon`` and ``adamw`` are arguments of torch's classes."""
        self._by_muon = tuple(by_muon)
        options = [group.options() for group in groups]
        mine, others = ([o for o, own in zip(options, by_muon, strict=True) if own is muons] for muons in (True, False))
        # torch refuses an optimizer of nothing, which a model without hidden matrices would ask for.
        self._muon = _muon_class()(mine, **muon) if mine else None
        self._adamw = torch.optim.AdamW(others, **adamw) if others else None
        super().__init__(options, {})
        self._share()
        parts = [described(self._muon)] if self._muon else []
        parts += [described(self._adamw, fused=adamw["fused"], foreach=adamw["foreach"])] if self._adamw else []
        self.implementation = "; ".join(parts)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self._parts():
            part.step()
        return loss

    def __setstate__(self, state: dict[str, Any]) -> None:
        """What ``load_state_dict`` ends with: groups and state are other objects from here on."""
        super().__setstate__(state)
        self._share()

    def _share(self) -> None:
        for part, muons in ((self._muon, True), (self._adamw, False)):
            if part is not None:
                part.param_groups = [g for g, own in zip(self.param_groups, self._by_muon, strict=True) if own is muons]
                part.state = self.state

    def _parts(self) -> list[torch.optim.Optimizer]:
        return [part for part in (self._muon, self._adamw) if part is not None]


def _muon_class() -> type[torch.optim.Optimizer]:
    return getattr(torch.optim, "Muon", OwnMuon)


class OwnMuon(torch.optim.Optimizer):
    """What ``torch.optim.Muon`` is from 2.9 on, to the bit."""

    coefficients = (3.4445, -4.7750, 2.0315)
    """Of the quintic that is iterated: chosen by Jordan et al. to rise fast at 0."""
    eps = 1e-7
    """The least norm that a matrix is divided by."""

    def __init__(self, params: Any, *, momentum: float, nesterov: bool, ns_steps: int, adjust_lr_fn: str) -> None:
        """``params`` are groups of matrices with ``lr`` and ``weight_decay``; the settings are torch's."""
        settings = {"momentum": momentum, "nesterov": nesterov, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn}
        super().__init__(params, settings)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override] # noqa: ARG002 - the outer one calls it
        """One update of every matrix that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)

    def _move(self, parameter: torch.Tensor, gradient: torch.Tensor, group: Mapping[str, Any]) -> None:
        state = self.state[parameter]
        average = state.setdefault("momentum_buffer", torch.zeros_like(gradient))
        average.lerp_(gradient, 1 - group["momentum"])
        direction = gradient.lerp(average, group["momentum"]) if group["nesterov"] else average
        step = self._orthogonal(direction, group["ns_steps"])
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.add_(step, alpha=-group["lr"] * _factor(group["adjust_lr_fn"], *parameter.shape))

    def _orthogonal(self, matrix: torch.Tensor, steps: int) -> torch.Tensor:
        """Nearly UVᵀ of the matrix USVᵀ, in bfloat16."""
        a, b, c = self.coefficients
        tall = matrix.size(0) > matrix.size(1)
        x = matrix.bfloat16()
        x = x.T if tall else x  # the smaller of the two products is computed
        x = x / x.norm().clamp(min=self.eps)
        for _ in range(steps):
            gram = x @ x.T
            x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
        return x.T if tall else x


def _factor(adjust: str, rows: int, columns: int) -> float:
    """What a matrix's rate is multiplied by."""
    if adjust == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1, rows / columns))
