"""The squared error of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from rtx_core import Loss, hookimpl

if TYPE_CHECKING:
    from rtx_core import Outputs
    from rtx_core.components import TargetKind
    from rtx_plugins.losses.mse_part import MsePart


@attrs.frozen(kw_only=True)
class Mse(Loss):
    """(x − y)², the mean over all numbers of the step; NaN targets are ignored."""

    target_kinds: ClassVar[tuple[TargetKind, ...]] = ("values",)

    def build(self, outputs: Outputs) -> MsePart:  # noqa: ARG002 - the same for any number of outputs
        """The part, for any number of outputs."""
        from rtx_plugins.losses.mse_part import MsePart

        return MsePart()


@hookimpl
def loss() -> dict[str, type[Loss]]:
    """Offer it as ``mse``."""
    return {"mse": Mse}
