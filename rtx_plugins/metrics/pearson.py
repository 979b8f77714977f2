"""Pearson's correlation of predicted and true numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from rtx_core import Metric, hookimpl
from rtx_plugins.metrics.correlation import CorrelationPart, pearson

if TYPE_CHECKING:
    from rtx_core import Outputs
    from rtx_core.components import Direction, TargetKind


@attrs.frozen(kw_only=True)
class Pearson(Metric):
    """Pearson's r, how linear the relation is, of several numbers their mean; logged as ``pearson``."""

    target_kinds: ClassVar[tuple[TargetKind, ...]] = ("values",)

    def names(self) -> dict[str, Direction | None]:
        """``pearson``, larger is better."""
        return {"pearson": "max"}

    def build(self, outputs: Outputs) -> CorrelationPart:  # noqa: ARG002 - the rows say how many numbers there are
        """The part, for any number of outputs."""
        return CorrelationPart(pearson, "pearson")


@hookimpl
def metric() -> dict[str, type[Metric]]:
    """Offer it as ``pearson``."""
    return {"pearson": Pearson}
