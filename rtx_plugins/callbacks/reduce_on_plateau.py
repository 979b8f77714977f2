"""Lower the rate when a value of the evaluations has not improved for a while (``ReduceLROnPlateau`` of torch)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Callback, hookimpl
from rtx_plugins.callbacks.common import Patient, PatientPart

if TYPE_CHECKING:
    from rtx_core import Run


@attrs.define
class ReduceOnPlateauPart(PatientPart["ReduceOnPlateau"]):
    """Counts evaluations since the best one, or since the rate was last lowered."""

    def act(self, run: Run) -> None:
        """Lower the rate of all groups from the next step on, and wait again."""
        run.lr_scale *= self.settings.factor
        run.console.say(f"reduce_on_plateau: {self.told()}; the rate is {run.lr_scale:.3g} × its schedule from now on")
        self.count = 0


@attrs.frozen(kw_only=True)
class ReduceOnPlateau(Patient):
    """Multiplies the rate, on top of the schedule, by a factor each time the monitored value has stopped getting
    better. The checkpoint keeps the product.
    """

    factor: float = attrs.field(default=0.5, validator=[attrs.validators.gt(0.0), attrs.validators.lt(1.0)])
    """What the rate is multiplied by, in (0, 1)."""
    patience: int = attrs.field(default=2, validator=attrs.validators.ge(1))
    """Evaluations in a row without an improvement after which the rate falls; torch's is one less for the same."""

    def build(self) -> ReduceOnPlateauPart:
        """The part that counts."""
        return ReduceOnPlateauPart(self)


@hookimpl
def callback() -> dict[str, type[Callback]]:
    """Offer it as ``reduce_on_plateau``."""
    return {"reduce_on_plateau": ReduceOnPlateau}
