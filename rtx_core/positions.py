"""Longer tables of learned positions, made of a shorter one: ``[architecture.load] positions``."""

from __future__ import annotations

import torch
from torch.nn import functional


def repeated(table: torch.Tensor, rows: int, reserved: int) -> torch.Tensor:
    """The positions again and again, from the first (Beltagy et al. 2020, arXiv:2004.05150): ``[rows, H]``.

    :param table: ``[P, H]``.
    :param reserved: rows in front that belong to no position; they stay as they are.
    """
    places = torch.arange(rows - reserved) % (len(table) - reserved)
    return torch.cat([table[:reserved], table[reserved:][places]])


def interpolated(table: torch.Tensor, rows: int, reserved: int) -> torch.Tensor:
    """The positions drawn apart, what lies between two of them on the line that joins them: float64 ``[rows, H]``.

    The first and the last keep their values, which are those of the ends of a text.

    :param table: ``[P, H]``.
    :param reserved: rows in front that belong to no position; they stay as they are.
    """
    table = table.double()  # places between two rows, far from the first, lose digits in less
    channels = table[reserved:].T[None]  # [1, H, P]
    drawn = functional.interpolate(channels, size=rows - reserved, mode="linear", align_corners=True)
    return torch.cat([table[:reserved], drawn[0].T])
