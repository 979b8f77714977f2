"""The squared error of numbers near the target and the absolute error far from it (Huber 1964)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from rtx_core import Loss, hookimpl

if TYPE_CHECKING:
    from rtx_core import Outputs
    from rtx_core.components import TargetKind
    from rtx_plugins.losses.huber_part import HuberPart


@attrs.frozen(kw_only=True)
class Huber(Loss):
    """(x − y)² / 2 up to a distance of ``delta``, ``delta`` · (|x − y| − ``delta`` / 2) beyond it; NaN is ignored."""

    target_kinds: ClassVar[tuple[TargetKind, ...]] = ("values",)

    delta: float = attrs.field(default=1.0, validator=attrs.validators.gt(0.0))
    """The distance from which on the loss grows linearly, in the unit in which targets are learnt: of a task that
    standardises them, in standard deviations."""

    def build(self, outputs: Outputs) -> HuberPart:  # noqa: ARG002 - the same for any number of outputs
        """The part, for any number of outputs."""
        from rtx_plugins.losses.huber_part import HuberPart

        return HuberPart(self.delta)


@hookimpl
def loss() -> dict[str, type[Loss]]:
    """Offer it as ``huber``."""
    return {"huber": Huber}
