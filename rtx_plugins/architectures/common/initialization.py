"""How parameters start: as in BERT (Devlin et al. 2019, arXiv:1810.04805) and most encoders since."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def initialize_normal(name: str, tensor: torch.Tensor, generator: torch.Generator, *, std: float) -> None:
    """Fill one parameter in place: biases 0, weights of norms 1, everything else normal(0, std).

    :param name: its dotted name; a norm is a module whose name says so, as ``attention.output.LayerNorm``.
    """
    module, _, kind = name.rpartition(".")
    if kind == "bias":
        tensor.zero_()
    elif "norm" in module.rpartition(".")[2].lower():
        tensor.fill_(1.0)
    else:
        tensor.normal_(std=std, generator=generator)
