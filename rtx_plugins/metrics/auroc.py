"""The area under the receiver operating characteristic."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from rtx_core import Metric, hookimpl
from rtx_plugins.metrics.f1 import Average
from rtx_plugins.metrics.ranking import RankingPart, area_under_roc

if TYPE_CHECKING:
    from rtx_core import Outputs
    from rtx_core.components import Direction, TargetKind


@attrs.frozen(kw_only=True)
class Auroc(Metric):
    """How often a row of a class or label is ranked above a row without it, 0.5 for guessing; logged as ``auroc``, with
    another average than ``macro`` as ``auroc_micro``, ``auroc_weighted`` or ``auroc_per_class``.
    """

    target_kinds: ClassVar[tuple[TargetKind, ...]] = ("class", "labels")

    average: Average = "macro"
    """Of more than two classes, or of labels: ``macro``, the mean over those that some rows have and others don't;
    ``weighted``, the mean weighted by how many rows have each; ``micro``, over all rows and classes at once; ``none``,
    a list in the order of the labels, which can't be the monitor. With two classes the three are the second's."""

    def names(self) -> dict[str, Direction | None]:
        """``auroc``, larger is better; no direction for the list."""
        return {self._name: None if self.average == "none" else "max"}

    def build(self, outputs: Outputs) -> RankingPart:
        """The part for these classes or labels."""
        return RankingPart(area_under_roc, outputs.size, self.average, self._name)

    @property
    def _name(self) -> str:
        suffix = {"macro": "", "none": "_per_class"}.get(self.average, f"_{self.average}")
        return f"auroc{suffix}"


@hookimpl
def metric() -> dict[str, type[Metric]]:
    """Offer it as ``auroc``."""
    return {"auroc": Auroc}
