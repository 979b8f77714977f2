"""The mean absolute error of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from rtx_core import Metric, hookimpl
from rtx_plugins.metrics.error import ErrorPart

if TYPE_CHECKING:
    from rtx_core import Outputs
    from rtx_core.components import Direction, TargetKind


@attrs.frozen(kw_only=True)
class Mae(Metric):
    """The mean of |x − y|, in the unit of the data; of several numbers the mean; logged as ``mae``."""

    target_kinds: ClassVar[tuple[TargetKind, ...]] = ("values",)

    def names(self) -> dict[str, Direction | None]:
        """``mae``, smaller is better."""
        return {"mae": "min"}

    def build(self, outputs: Outputs) -> ErrorPart:  # noqa: ARG002 - the rows say how many numbers there are
        """The part, for any number of outputs."""
        return ErrorPart(1, "mae")


@hookimpl
def metric() -> dict[str, type[Metric]]:
    """Offer it as ``mae``."""
    return {"mae": Mae}
