"""The rate rises linearly to its peak and holds there."""

from __future__ import annotations

import attrs

from rtx_core import Length, Scheduler, hookimpl
from rtx_plugins.schedulers.constant import Constant


@attrs.frozen(kw_only=True)
class Warmup(Constant):
    """A linear rise to the peak rate, which then holds: ``constant`` with a warm-up that must be written."""

    warmup: Length
    """How long the rate rises from 0 to its peak."""


@hookimpl
def scheduler() -> dict[str, type[Scheduler]]:
    """Offer it as ``warmup``."""
    return {"warmup": Warmup}
