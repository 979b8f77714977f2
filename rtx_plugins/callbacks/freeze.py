"""Keep some of the parameters as they are, for the whole run or at its beginning (Howard & Ruder 2018)."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any, cast

import attrs

from rtx_core import Callback, InputError, Length, hookimpl
from rtx_core.lengths import not_zero
from rtx_core.schedule import steps_within

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from rtx_core import Run
    from rtx_core.model import Model


class FreezePart:
    """Takes their gradients away: the optimizer passes by a parameter without one, its decay and its state too."""

    def __init__(self, settings: Freeze) -> None:
        self.settings = settings
        self.frozen = True
        self._parameters: list[torch.nn.Parameter] = []

    def on_build(self, run: Run) -> None:
        """Find the parameters and freeze them.

        :raises InputError: a pattern matches none, none is left to train, or the run ends before they are unfrozen.
        """
        from rtx_core.groups import unmatched_hint

        table, model = f"callbacks.{run.speaker}", cast("Model", run.model)
        if self.settings.until is not None:
            steps_within(run.horizon, self.settings.until, f"{table}.until")
        named = model.parameters_by_name()
        trained = {name: p for name, p in named.items() if p.requires_grad}
        chosen: set[str] = set()
        for index, pattern in enumerate(self.settings.match):
            matched = fnmatch.filter(trained, pattern)
            if not matched:
                if fnmatch.filter(named, pattern):
                    raise InputError(f'{table}.match.{index}: all that "{pattern}" matches is frozen already')
                hint = unmatched_hint(pattern, named, model.tied_names())
                raise InputError(f'{table}.match.{index}: "{pattern}" matches no parameter; {hint}')
            chosen.update(matched)
        if len(chosen) == len(trained):
            raise InputError(f"{table}.match: all parameters are frozen, so there is nothing to train")
        self._parameters = [trained[name] for name in sorted(chosen)]
        self._freeze(frozen=True)

    def on_step_end(self, run: Run) -> None:
        """Unfreeze them when it is time."""
        if self.frozen and self.settings.until is not None and run.step >= run.horizon.steps(self.settings.until):
            self._freeze(frozen=False)
            run.console.say(f"freeze: {len(self._parameters):,} tensors are trained from step {run.step + 1:,} on")

    def _freeze(self, *, frozen: bool) -> None:
        self.frozen = frozen
        for parameter in self._parameters:
            parameter.requires_grad_(not frozen)

    def state_dict(self) -> dict[str, Any]:
        """Whether they are frozen."""
        return {"frozen": self.frozen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Be where a checkpoint was."""
        self._freeze(frozen=state["frozen"])


@attrs.frozen(kw_only=True)
class Freeze(Callback):
    """Parameters that match get no update, no decay and no state of the optimizer while they are frozen."""

    match: tuple[str, ...] = attrs.field(validator=attrs.validators.min_len(1))
    """Patterns of parameter names, as in the kept model's file (``"bert.embeddings.*"``); each must match one."""
    until: Length | None = attrs.field(default=None, validator=not_zero)
    """How long, as ``"1 epoch"`` or ``"10%"``, at most as long as the run; None: the whole run."""

    def build(self) -> FreezePart:
        """The part that knows the parameters."""
        return FreezePart(self)


@hookimpl
def callback() -> dict[str, type[Callback]]:
    """Offer it as ``freeze``."""
    return {"freeze": Freeze}
