"""What callbacks do to an optimizer beside its updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch


def reset_state(optimizer: torch.optim.Optimizer, parameters: Iterable[torch.nn.Parameter] | None = None) -> None:
    """Forget what the optimizer remembers of past gradients; rates and settings stay.

    It goes on as if it were new, from the weights as they are. An optimizer that remembers anything beside ``state``
    has a method ``reset_state(parameters)`` that is called in place of this.

    :param parameters: those whose memory goes; None: all.
    """
    own = getattr(cast("Any", optimizer), "reset_state", None)
    if own is not None:
        own(parameters)
    elif parameters is None:
        optimizer.state.clear()
    else:
        for parameter in parameters:
            optimizer.state.pop(parameter, None)
