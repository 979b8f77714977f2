"""The exponential of the mean cross-entropy in nats: among how many classes the model hesitates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import attrs

from rtx_core import Metric, MetricPart, hookimpl
from rtx_plugins.metrics.counting import ratio, row_weights

if TYPE_CHECKING:
    import torch

    from rtx_core import Outputs
    from rtx_core.components import Direction, TargetKind


class PerplexityPart(MetricPart):
    """Sums −log p of the right class."""

    def update(self, predictions: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> None:
        """Count logits ``[N, K]`` and classes ``[N]``."""
        weights = row_weights(targets, weights)
        logits = predictions if predictions.itemsize > 4 else predictions.float()  # noqa: PLR2004 - float64 stays
        chosen = logits.gather(-1, targets.clamp_min(0).unsqueeze(-1)).squeeze(-1)
        # logsumexp makes no second [N, K], which a vocabulary of 30,000 would notice.
        nats = (logits.logsumexp(-1) - chosen).to(weights.dtype)
        self.add(nats=(nats * weights).sum(), rows=weights.sum())

    def compute(self) -> dict[str, float]:
        """The perplexity; NaN where nothing was counted, infinity where it exceeds what a number holds."""
        mean = ratio(self.sums.get("nats", 0.0), self.sums.get("rows", 0.0))
        try:
            return {"perplexity": math.exp(mean)}
        except OverflowError:
            return {"perplexity": math.inf}


@attrs.frozen(kw_only=True)
class Perplexity(Metric):
    """The exponential of the mean cross-entropy, without smoothing or class weights; logged as ``perplexity``."""

    target_kinds: ClassVar[tuple[TargetKind, ...]] = ("class",)

    def names(self) -> dict[str, Direction | None]:
        """``perplexity``, smaller is better."""
        return {"perplexity": "min"}

    def build(self, outputs: Outputs) -> PerplexityPart:  # noqa: ARG002 - a mean needs no names of classes
        """The part, for any number of classes."""
        return PerplexityPart()


@hookimpl
def metric() -> dict[str, type[Metric]]:
    """Offer it as ``perplexity``."""
    return {"perplexity": Perplexity}
