"""What our optimizers share: ranges of settings, and which of torch's implementations does the update."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import attrs

from rtx_core import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from rtx_core import ParameterGroup

OptimizerT = TypeVar("OptimizerT", bound="torch.optim.Optimizer")

DECAY_RATES = attrs.validators.deep_iterable([attrs.validators.ge(0.0), attrs.validators.lt(1.0)])
"""Each in [0, 1)."""

_FUSED_DEVICES = ("cpu", "cuda")
_FOREACH_DEVICES = ("cuda",)


def kernels(groups: Sequence[ParameterGroup], name: str, *, fused: bool | None) -> dict[str, bool]:
    """Which of torch's implementations to take on the device of the parameters: values for ``fused`` and ``foreach``.

    Both are given to torch, so that what runs is what ``run.json`` says.

    :param name: the optimizer, for the message.
    :param fused: as the file says; None takes the fastest.
    :raises InputError: ``fused = true`` on a device that has no such kernel.
    """
    devices = sorted({parameter.device.type for group in groups for parameter in group.parameters.values()})
    without = [device for device in devices if device not in _FUSED_DEVICES]
    if fused and without:
        raise InputError(f"optimizer.fused: there is no fused {name} on {without[0]}; leave the key out")
    takes_fused = not without if fused is None else fused
    return {"fused": takes_fused, "foreach": not takes_fused and set(devices) <= set(_FOREACH_DEVICES)}


def implemented(optimizer: OptimizerT, **used: bool) -> OptimizerT:
    """The optimizer, which now says which implementation it is (``implementation``).

    :param used: torch's ``fused`` and ``foreach``.
    """
    optimizer.implementation = described(optimizer, **used)  # type: ignore[attr-defined]
    return optimizer


def described(optimizer: torch.optim.Optimizer, **used: bool) -> str:
    """Class and kernel, as ``torch.optim.AdamW, fused``."""
    kind = type(optimizer)
    # torch's classes have modules that a reader doesn't know them by.
    package = "torch.optim" if kind.__module__.startswith("torch.optim.") else kind.__module__
    return f"{package}.{kind.__name__}, {next((name for name, wanted in used.items() if wanted), 'for-loop')}"
