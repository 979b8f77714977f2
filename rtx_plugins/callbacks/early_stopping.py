"""Stop when a value of the evaluations has not improved for a while (Prechelt 1998)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Callback, hookimpl
from rtx_plugins.callbacks.common import Patient, PatientPart

if TYPE_CHECKING:
    from rtx_core import Run


@attrs.define
class EarlyStoppingPart(PatientPart["EarlyStopping"]):
    """Counts evaluations since the best one."""

    def act(self, run: Run) -> None:
        """End the run after this step."""
        run.stop(f"early_stopping: {self.told()}")


@attrs.frozen(kw_only=True)
class EarlyStopping(Patient):
    """Ends the run when the monitored value has stopped getting better."""

    def build(self) -> EarlyStoppingPart:
        """The part that counts."""
        return EarlyStoppingPart(self)


@hookimpl
def callback() -> dict[str, type[Callback]]:
    """Offer it as ``early_stopping``."""
    return {"early_stopping": EarlyStopping}
