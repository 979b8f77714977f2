"""How parameters start: as in BERT (Devlin et al. 2019, arXiv:1810.04805) and most encoders since."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def initialize_normal(name: str, tensor: torch.Tensor, generator: torch.Generator, *, std: float) -> None:
    """Fill one parameter in place: biases 0, weights of norms 1, everything else normal(0, std).

    :param name: its dotted name; a norm is a module whose name says so, as ``attention.output.LayerNorm``.
    """
    if not _fill_constant(name, tensor):
        tensor.normal_(std=std, generator=generator)


def initialize_truncated(
    name: str, tensor: torch.Tensor, generator: torch.Generator, *, std: float, cutoff: float
) -> None:
    """The same, but no weight is farther from 0 than cutoff · std: what the normal puts there is drawn again."""
    from torch import nn

    if not _fill_constant(name, tensor):
        nn.init.trunc_normal_(tensor, std=std, a=-cutoff * std, b=cutoff * std, generator=generator)


def _fill_constant(name: str, tensor: torch.Tensor) -> bool:
    """Fill a bias or a norm's weight; False, and nothing done, for anything else."""
    module, _, kind = name.rpartition(".")
    if kind == "bias":
        tensor.zero_()
    elif "norm" in module.rpartition(".")[2].lower():
        tensor.fill_(1.0)
    else:
        return False
    return True
