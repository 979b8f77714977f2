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
        from torch.nn.utils import clip_grad_norm_

        # What the optimizer holds is what is updated: frozen parameters are not in it, those of a loss are.
        parameters = [parameter for group in run.optimizer.param_groups for parameter in group["params"]]
        run.log({"grad_norm": clip_grad_norm_(parameters, self.max_norm)})


@hookimpl
def callback() -> dict[str, type[Callback]]:
    """Offer it as ``clip_grad_norm``."""
    return {"clip_grad_norm": ClipGradNorm}
