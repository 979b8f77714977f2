"""Scale the gradient down where its norm is too large (Pascanu et al. 2013, arXiv:1211.5063)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Callback, hookimpl

if TYPE_CHECKING:
    from rtx_core import Run


@attrs.frozen(kw_only=True)
class ClipGradNorm(Callback):
    """Bounds the norm of the whole step's gradient; logs ``grad_norm`` as it was before."""

    max_norm: float = attrs.field(default=1.0, validator=attrs.validators.gt(0.0))
    """The largest 2-norm over all parameters together; a larger gradient is scaled down to it."""

    def on_gradients(self, run: Run) -> None:
        """Clip. The norm stays on its device: nothing waits for it."""
        import torch

        # What the optimizer holds is what is updated: those of a loss are in it, what is frozen has no gradient.
        gradients = [p.grad for group in run.optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not gradients:
            return
        # What torch.nn.utils.clip_grad_norm_ computes, to the bit, without its sorting by device and dtype, which
        # takes longer than a small model's whole update: max_norm / (norm + 1e-6), and at most 1.
        norms = torch._foreach_norm(gradients)  # noqa: SLF001 - torch's own clipping is built on it
        norm = torch.linalg.vector_norm(torch.stack(norms))
        torch._foreach_mul_(gradients, (norm + 1e-6).reciprocal_().mul_(self.max_norm).clamp_(max=1.0))
        run.log({"grad_norm": norm})


@hookimpl
def callback() -> dict[str, type[Callback]]:
    """Offer it as ``clip_grad_norm``."""
    return {"clip_grad_norm": ClipGradNorm}
