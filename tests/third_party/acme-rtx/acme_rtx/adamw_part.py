"""torch's AdamW with its fast paths off."""

from __future__ import annotations

from typing import Any

import torch


class PlainAdamW(torch.optim.AdamW):
    """``torch.optim.AdamW`` in its simplest implementation."""

    def __init__(self, params: Any, **settings: Any) -> None:
        super().__init__(params, **settings, foreach=False, fused=False)
