"""The peak rate throughout, after a warm-up if one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Scheduler, hookimpl

if TYPE_CHECKING:
    from rtx_core import Horizon


@attrs.frozen
class ConstantSchedule:
    """The factor 1, for ever."""

    def factor(self, i: int) -> float:  # noqa: ARG002 - a schedule is asked for each update
        """1."""
        return 1.0


@attrs.frozen(kw_only=True)
class Constant(Scheduler):
    """The peak rate throughout."""

    def build(self, horizon: Horizon) -> ConstantSchedule:  # noqa: ARG002 - it has no course that a length could change
        """The schedule, whatever the length."""
        return ConstantSchedule()


@hookimpl
def scheduler() -> dict[str, type[Scheduler]]:
    """Offer it as ``constant``."""
    return {"constant": Constant}
