"""A metric that needs all rows of an evaluation at once, and the way from tensors to arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtx_core import MetricPart

if TYPE_CHECKING:
    import torch


class RowsPart(MetricPart):
    """Keeps predictions, targets and weights; on the device, since a copy for each batch would wait for it."""

    def update(self, predictions: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> None:
        """Keep predictions ``[N, K]``, targets ``[N]`` or ``[N, K]`` and weights ``[N]``."""
        self.collect(predictions=predictions, targets=targets, weights=weights)

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """All rows on the host in float64, classes in int64; None where there are none."""
        if not self.rows:
            return None
        predictions, targets, weights = (
            np.concatenate([_array(tensor) for tensor in self.rows[name]])
            for name in ("predictions", "targets", "weights")
        )
        return predictions, targets, weights


def _array(tensor: torch.Tensor) -> np.ndarray:
    host = tensor.detach().cpu()
    array: np.ndarray = (host.double() if host.is_floating_point() else host).numpy()
    return array
