"""The mean squared error of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from rtx_core import Metric, hookimpl
from rtx_plugins.metrics.error import ErrorPart

if TYPE_CHECKING:
    from rtx_core import Outputs
    from rtx_core.components import Direction, TargetKind


@attrs.frozen(kw_only=True)
class Mse(Metric):
    """The mean of (x − y)², in the squared unit of the data; of several numbers the mean; logged as ``mse``."""

    target_kinds: ClassVar[tuple[TargetKind, ...]] = ("values",)

    def names(self) -> dict[str, Direction | None]:
        """``mse``, smaller is better."""
        return {"mse": "min"}

    def build(self, outputs: Outputs) -> ErrorPart:  # noqa: ARG002 - the rows say how many numbers there are
        """The part, for any number of outputs."""
        return ErrorPart(2, "mse")


@hookimpl
def metric() -> dict[str, type[Metric]]:
    """Offer it as ``mse``."""
    return {"mse": Mse}
