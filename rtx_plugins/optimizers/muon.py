"""Muon for hidden matrices, AdamW for the rest (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/).

Muon makes the momentum of a matrix nearly orthogonal, by a Newton-Schulz iteration in bfloat16, before it is a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from rtx_core import Optimizer, hookimpl
from rtx_plugins.optimizers.common import DECAY_RATES, kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from rtx_core import ParameterGroup
    from rtx_core.components import Role

_AXES_OF_A_MATRIX = 2


@attrs.frozen(kw_only=True)
class Muon(Optimizer):
    """``lr`` is that of the matrices inside the backbone; embeddings, heads, norms and biases have ``adamw_lr``."""

    lr: float = attrs.field(validator=attrs.validators.gt(0.0))
    """Peak rate of Muon's matrices: 0.02 is usual with ``adjust_lr = "original"``, a rate of AdamW with
    ``"match_rms_adamw"``."""
    adamw_lr: float = attrs.field(default=3e-4, validator=attrs.validators.gt(0.0))
    """Peak rate of all other parameters; the same schedule multiplies it."""
    weight_decay: float = attrs.field(default=0.1, validator=attrs.validators.ge(0.0))
    """Share of its rate by which an update shrinks a weight (w ← w − lr · weight_decay · w), of both kinds; biases and
    norms are left out."""
    momentum: float = attrs.field(default=0.95, validator=[attrs.validators.ge(0.0), attrs.validators.lt(1.0)])
    """How much of a matrix's running average of gradients stays at each update, in [0, 1)."""
    nesterov: bool = True
    """Make the average of gradient and running average orthogonal instead of the running average."""
    ns_steps: int = attrs.field(default=5, validator=[attrs.validators.ge(1), attrs.validators.lt(100)])
    """Iterations of Newton-Schulz."""
    adjust_lr: Literal["original", "match_rms_adamw"] = "original"
    """What the rate of a matrix of A rows and B columns is multiplied by. ``original``: √max(1, A/B).
    ``match_rms_adamw``: 0.2 · √max(A, B), by which an update is as large as one of AdamW (arXiv:2502.16982)."""
    adamw_betas: tuple[float, float] = attrs.field(default=(0.9, 0.95), validator=DECAY_RATES)
    """AdamW's decay rates of the running averages of the gradient and of its square, each in [0, 1)."""
    adamw_eps: float = attrs.field(default=1e-10, validator=attrs.validators.gt(0.0))
    """Added to the root of AdamW's second average, after its bias correction, so that it is never 0."""
    fused: bool | None = None
    """Do AdamW's update in one kernel; it changes the last bits. None does where the device has one (CPU, CUDA)."""

    def peak_lr(self, role: Role, parameter: torch.nn.Parameter) -> float:
        """Muon's rate for a matrix inside the backbone, AdamW's for anything else."""
        return self.lr if _is_for_muon(role, parameter) else self.adamw_lr

    def build(self, groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:
        """Both in one optimizer, whose groups are these, in order.

        :raises InputError: ``fused = true`` on a device that has no such kernel.
        """
        from rtx_plugins.optimizers.muon_part import MuonWithAdamW

        return MuonWithAdamW(
            groups,
            by_muon=[_is_for_muon(group.role, next(iter(group.parameters.values()))) for group in groups],
            muon={
                "momentum": self.momentum,
                "nesterov": self.nesterov,
                "ns_steps": self.ns_steps,
                "adjust_lr_fn": self.adjust_lr,
            },
            adamw={
                "betas": self.adamw_betas,
                "eps": self.adamw_eps,
                **kernels(groups, "AdamW", fused=self.fused),
            },
        )


def _is_for_muon(role: Role, parameter: torch.nn.Parameter) -> bool:
    """Whether it is a matrix of two axes: filters of convolutions have more."""
    return role == "matrix" and parameter.ndim == _AXES_OF_A_MATRIX


@hookimpl
def optimizer() -> dict[str, type[Optimizer]]:
    """Offer it as ``muon``."""
    return {"muon": Muon}
