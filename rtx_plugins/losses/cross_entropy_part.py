"""The computation behind ``cross_entropy``. N targets, K classes, H numbers a feature."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from rtx_plugins.losses.class_part import ClassPart

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class CrossEntropyPart(ClassPart):
    """Sums over targets: Σ w[y] · (−log p[y] + z · log² Z), smoothed as ``torch.nn.functional.cross_entropy`` does.

    :param class_weights: w, K numbers, or None for all 1.
    :param z_loss: z, where Z is what a softmax divides by, the sum of exp over the logits.
    """

    def __init__(self, class_weights: Sequence[float] | None, label_smoothing: float, z_loss: float) -> None:
        super().__init__(class_weights)
        self.label_smoothing = label_smoothing
        self.z_loss = z_loss

    def of_logits(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The sum over logits ``[N, K]`` and targets ``[N]``, in float32 or wider; negative targets don't count."""
        if logits.itemsize < torch.float32.itemsize:
            logits = logits.float()
        total = functional.cross_entropy(
            logits,
            targets.clamp_min(-1),
            weight=None if self.class_weights is None else self.class_weights.to(logits.dtype),
            ignore_index=-1,
            reduction="sum",
            label_smoothing=self.label_smoothing,
        )
        if not self.z_loss:
            return total
        squares = logits.logsumexp(-1).square()  # [N]
        return total + self.z_loss * (self.shares(targets, logits.dtype) * squares).sum()


class ChunkedCrossEntropyPart(CrossEntropyPart):
    """The same sum from features, a chunk of targets after the other: a chunk's logits are forgotten, and made again
    in the backward pass (Chen et al. 2016, arXiv:1604.06174).

    :param chunk_size: targets whose logits exist at once.
    """

    def __init__(
        self, class_weights: Sequence[float] | None, label_smoothing: float, z_loss: float, chunk_size: int
    ) -> None:
        super().__init__(class_weights, label_smoothing, z_loss)
        self.chunk_size = chunk_size

    def of_features(
        self, features: torch.Tensor, project: Callable[[torch.Tensor], torch.Tensor], targets: torch.Tensor
    ) -> torch.Tensor:
        """The sum over features ``[N, H]`` and targets ``[N]``, with ``project`` to logits ``[N, K]``."""

        def of_chunk(rows: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
            return self.of_logits(project(rows), classes)

        # Of no rows there is one chunk, which is empty: so the sum always has a graph.
        chunks = zip(torch.split(features, self.chunk_size), torch.split(targets, self.chunk_size), strict=True)
        sums = [cast("torch.Tensor", checkpoint(of_chunk, *chunk, use_reentrant=False)) for chunk in chunks]
        return torch.stack(sums).sum()
