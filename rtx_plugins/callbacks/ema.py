"""An exponential moving average of the weights, which is what is measured and kept (Polyak & Juditsky 1992)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

import attrs

from rtx_core import Callback, InputError, hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from rtx_core import Run
    from rtx_core.model import Model


class EmaPart:
    """Holds the average beside the weights that are trained, in as much memory again."""

    def __init__(self, settings: Ema) -> None:
        self.settings = settings
        self.averages: dict[str, torch.Tensor] = {}
        """By the parameter's name; empty before the run starts."""
        self._trained: list[torch.Tensor] = []

    def on_build(self, run: Run) -> None:
        """Refuse a second part that shows other weights than are trained.

        :raises InputError: the optimizer is one.
        """
        if hasattr(run.optimizer, "train") and hasattr(run.optimizer, "eval"):
            raise InputError("callbacks.ema: the optimizer has an average of its own; take one of the two")

    def on_run_start(self, run: Run) -> None:
        """Begin with the first weights, or go on with a checkpoint's average."""
        parameters = cast("Model", run.model).parameters_by_name()
        self._trained = [parameter.detach() for parameter in parameters.values()]
        self.averages = {
            name: self.averages.get(name, parameter).detach().to(parameter.device, copy=True)
            for name, parameter in parameters.items()
        }

    def decay(self, updates: int) -> float:
        """The share of the average that stays at this update, counted from 1."""
        if not self.settings.warmup:
            return self.settings.decay
        return min(self.settings.decay, (1 + updates) / (10 + updates))

    def on_step_end(self, run: Run) -> None:
        """Take in the new weights; a skipped step made none."""
        import torch

        if run.skip_reason is not None:
            return
        decay = self.decay(run.updates)
        torch._foreach_lerp_(list(self.averages.values()), self._trained, 1 - decay)
        run.log({"decay": decay})

    def eval(self) -> None:
        """Show the average; the core has copied the weights of training and puts them back."""
        for trained, average in zip(self._trained, self.averages.values(), strict=True):
            trained.copy_(average)

    def train(self) -> None:
        """Nothing to do: see :meth:`eval`."""

    def state_dict(self) -> dict[str, Any]:
        """The average."""
        return {"averages": self.averages}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take a checkpoint's average."""
        self.averages = dict(state["averages"])


@attrs.frozen(kw_only=True)
class Ema(Callback):
    """Averages the weights over the updates. Evaluations, the kept model and its export have the average; training, and
    a resume, go on from the weights themselves.
    """

    once: ClassVar[bool] = True

    decay: float = attrs.field(default=0.999, validator=[attrs.validators.ge(0.0), attrs.validators.lt(1.0)])
    """Share of the average that stays at each update, in [0, 1): 0.999 averages over about 1000 updates."""
    warmup: bool = True
    """Let the decay rise, min(decay, (1 + n) / (10 + n)) at update n, so that the first weights are soon forgotten."""

    def build(self) -> EmaPart:
        """The part that averages."""
        return EmaPart(self)


@hookimpl
def callback() -> dict[str, type[Callback]]:
    """Offer it as ``ema``."""
    return {"ema": Ema}
