"""Cut each entry of the gradient that is too large (Mikolov 2012)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Callback, hookimpl

if TYPE_CHECKING:
    from rtx_core import Run


@attrs.frozen(kw_only=True)
class ClipGradValue(Callback):
    """Bounds each entry of the whole step's gradient alone, which changes its direction; ``clip_grad_norm`` doesn't."""

    max_value: float = attrs.field(default=1.0, validator=attrs.validators.gt(0.0))
    """The largest absolute value of an entry; beyond it the entry becomes this, with its sign."""

    def on_gradients(self, run: Run) -> None:
        """Clip what the optimizer updates."""
        from torch.nn.utils import clip_grad_value_

        clip_grad_value_([p for group in run.optimizer.param_groups for p in group["params"]], self.max_value)


@hookimpl
def callback() -> dict[str, type[Callback]]:
    """Offer it as ``clip_grad_value``."""
    return {"clip_grad_value": ClipGradValue}
