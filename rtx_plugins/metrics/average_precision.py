"""Average precision, the area under the curve of precision over recall."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from rtx_core import Metric, hookimpl
from rtx_plugins.metrics.f1 import Average
from rtx_plugins.metrics.ranking import RankingPart, average_precision

if TYPE_CHECKING:
    from rtx_core import Outputs
    from rtx_core.components import Direction, TargetKind


@attrs.frozen(kw_only=True)
class AveragePrecision(Metric):
    """The mean precision as recall grows, for guessing the share of positive rows; logged as ``average_precision``,
    with another average than ``macro`` as ``average_precision_micro``, ``_weighted`` or ``_per_class``.
    """

    target_kinds: ClassVar[tuple[TargetKind, ...]] = ("class", "labels")

    average: Average = "macro"
    """Of more than two classes, or of labels: ``macro``, the mean over those that some rows have and others don't;
    ``weighted``, the mean weighted by how many rows have each; ``micro``, over all rows and classes at once; ``none``,
    a list in the order of the labels, which can't be the monitor. With two classes the three are the second's."""

    def names(self) -> dict[str, Direction | None]:
        """``average_precision``, larger is better; no direction for the list."""
        return {self._name: None if self.average == "none" else "max"}

    def build(self, outputs: Outputs) -> RankingPart:
        """The part for these classes or labels."""
        return RankingPart(average_precision, outputs.size, self.average, self._name)

    @property
    def _name(self) -> str:
        suffix = {"macro": "", "none": "_per_class"}.get(self.average, f"_{self.average}")
        return f"average_precision{suffix}"


@hookimpl
def metric() -> dict[str, type[Metric]]:
    """Offer it as ``average_precision``."""
    return {"average_precision": AveragePrecision}
