"""Rotary positions (Su et al. 2021, arXiv:2104.09864): queries and keys are turned by angles that grow with position.

The product of a turned query and a turned key depends on the distance between the two alone. As in ``transformers``,
channel i turns with channel i + D / 2. Shapes: T tokens, h heads of D channels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    Rotation = tuple[torch.Tensor, torch.Tensor]
    """Cosines and sines of the angles, each float32 ``[T, 1, D]``."""


def rotation(positions: torch.Tensor, head_size: int, theta: float) -> Rotation:
    """The angles position · theta^(−2 i / D), of channel pairs i = 0, …, D / 2 − 1.

    :param positions: int64 ``[T]``.
    :param head_size: D, even.
    :param theta: the larger, the slower the last pairs turn, and the farther they tell positions apart.
    """
    import torch

    # float32 whatever the model's dtype, in the order of transformers: half precision can't tell late positions apart.
    exponents = torch.arange(0, head_size, 2, dtype=torch.float32, device=positions.device) / head_size
    angles = positions.unsqueeze(-1).float() * (1.0 / theta**exponents)  # [T, D / 2]
    angles = torch.cat((angles, angles), dim=-1).unsqueeze(1)
    return angles.cos(), angles.sin()


def rotate(tensor: torch.Tensor, by: Rotation) -> torch.Tensor:
    """A query or key ``[T, h, D]``, turned; computed in float32 or wider."""
    import torch

    cos, sin = by
    wide = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
    first, second = wide.chunk(2, dim=-1)
    return (wide * cos + torch.cat((-second, first), dim=-1) * sin).to(tensor.dtype)
