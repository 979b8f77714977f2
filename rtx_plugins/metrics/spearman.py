"""Spearman's rank correlation of predicted and true numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from rtx_core import Metric, hookimpl
from rtx_plugins.metrics.correlation import CorrelationPart, spearman

if TYPE_CHECKING:
    from rtx_core import Outputs
    from rtx_core.components import Direction, TargetKind


@attrs.frozen(kw_only=True)
class Spearman(Metric):
    """Spearman's ρ, how well the order is met, of several numbers their mean; logged as ``spearman``."""

    target_kinds: ClassVar[tuple[TargetKind, ...]] = ("values",)

    def names(self) -> dict[str, Direction | None]:
        """``spearman``, larger is better."""
        return {"spearman": "max"}

    def build(self, outputs: Outputs) -> CorrelationPart:  # noqa: ARG002 - the rows say how many numbers there are
        """The part, for any number of outputs."""
        return CorrelationPart(spearman, "spearman")


@hookimpl
def metric() -> dict[str, type[Metric]]:
    """Offer it as ``spearman``."""
    return {"spearman": Spearman}
