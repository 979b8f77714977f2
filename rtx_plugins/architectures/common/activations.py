"""Activation functions by the names that Hugging Face's ``hidden_act`` has for them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

Activation = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "quick_gelu", "relu", "silu", "swish", "tanh"]
"""``gelu`` is exact; ``gelu_new`` and ``gelu_pytorch_tanh`` are its tanh form (Hendrycks & Gimpel 2016,
arXiv:1606.08415); ``quick_gelu`` is x · sigmoid(1.702 x); ``swish`` is ``silu``."""


def activation(name: Activation) -> Callable[[torch.Tensor], torch.Tensor]:
    """The function of that name."""
    import torch
    from torch.nn import functional

    tanh_gelu = functools.partial(functional.gelu, approximate="tanh")
    functions: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "gelu": functional.gelu,
        "gelu_new": tanh_gelu,
        "gelu_pytorch_tanh": tanh_gelu,
        "quick_gelu": _quick_gelu,
        "relu": torch.relu,
        "silu": functional.silu,
        "swish": functional.silu,
        "tanh": torch.tanh,
    }
    return functions[name]


def _quick_gelu(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * (1.702 * tensor).sigmoid()
