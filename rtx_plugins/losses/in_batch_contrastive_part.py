"""The computation behind ``in_batch_contrastive``. N texts of a step, of which A are anchors, each with a positive, and
C are candidates: the positives and negatives; E numbers in an embedding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import torch
from torch.nn import functional

from rtx_core import InputError, TextRole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rtx_core import Run


@attrs.frozen(eq=False)
class Pairs:
    """Which texts of a step are to find each other, and which are left out; indices into the N texts and what follows.

    A sample's rows stand side by side, the anchor first and its positive next.
    """

    anchors: torch.Tensor
    """int64 ``[A]``: the rows of the anchors that have a positive."""
    candidates: torch.Tensor
    """int64 ``[C]``: the rows of all positives and negatives."""
    own: torch.Tensor
    """int64 ``[A]``: the place of each anchor's positive among the candidates."""
    left_out: torch.Tensor | None
    """bool ``[A, C]``: candidates that are not negatives of an anchor since they are, or may be, right; None: all
    are."""

    @classmethod
    def of(cls, targets: torch.Tensor, *, without_duplicates: bool) -> Pairs:
        """From the targets ``[N, 3]`` of a step."""
        roles, texts = targets[:, 0], targets[:, 1]
        anchors = _anchors(targets).nonzero().squeeze(1)
        is_candidate = (roles == TextRole.POSITIVE) | (roles == TextRole.NEGATIVE)
        candidates = is_candidate.nonzero().squeeze(1)
        own = is_candidate.cumsum(0)[anchors + 1] - 1
        if not without_duplicates:
            return cls(anchors, candidates, own, None)
        # The text of the anchor whose positive a candidate is; no text has the number −1.
        asked = torch.full_like(texts, -1).index_copy(0, anchors + 1, texts[anchors])[candidates]
        anchor, positive = texts[anchors].unsqueeze(1), texts[anchors + 1].unsqueeze(1)  # [A, 1]
        candidate = texts[candidates]
        left_out = (candidate == positive) | (candidate == anchor) | (asked == anchor)
        return cls(anchors, candidates, own, left_out.scatter(1, own.unsqueeze(1), value=False))


class InBatchContrastivePart:
    """Sums over the anchors that have a positive.

    :param sizes: how many of an embedding's first numbers are compared, and what that loss is multiplied with; empty:
        all of them.
    """

    def __init__(self, temperature: float, sizes: Mapping[int, float], *, symmetric: bool) -> None:
        self.temperature = temperature
        self.sizes = sizes
        self.symmetric = symmetric
        self.without_duplicates = False

    def leave_out_duplicates(self) -> None:
        """From now on no text is a negative of an anchor if it is the anchor's own text, or that of its positive, or if
        it is the positive of an equal anchor.
        """
        self.without_duplicates = True

    def on_build(self, run: Run) -> None:
        """Refuse what can't be cut, and what has nothing to be told from.

        :raises InputError: a size is larger than the embeddings, or a step is one pair without a negative.
        """
        if run.pipeline.training.batch_size == 1 and getattr(run.pipeline.task, "negative", None) is None:
            raise InputError(
                "training.batch_size: a step of 1 has no other texts that the positive is told from, so nothing would "
                "be learnt; write a larger one, or name a column of negatives (task.negative)"
            )
        largest, whole = max(self.sizes, default=0), run.pipeline.architecture.hidden_size
        if largest > whole:
            raise InputError(f"loss.sizes: {largest} is more than the {whole} numbers of an embedding (hidden_size)")

    def weight(self, targets: torch.Tensor) -> float:
        """How many of the targets ``[N, 3]`` are anchors with a positive."""
        return float(_anchors(targets).sum())

    def of_logits(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The sum over embeddings ``[N, E]`` and targets ``[N, 3]`` of a whole step, in float32 or wider."""
        embeddings = logits.to(torch.promote_types(logits.dtype, torch.float32))
        pairs = Pairs.of(targets, without_duplicates=self.without_duplicates)
        total = embeddings.new_zeros(())
        for size, weight in (self.sizes or {embeddings.shape[1]: 1.0}).items():
            total = total + weight * self._of(embeddings[:, :size], pairs)
        return total

    def _of(self, embeddings: torch.Tensor, pairs: Pairs) -> torch.Tensor:
        embeddings = functional.normalize(embeddings, dim=1)
        scores = embeddings[pairs.anchors] @ embeddings[pairs.candidates].T / self.temperature  # [A, C]
        if pairs.left_out is not None:
            scores = scores.masked_fill(pairs.left_out, -torch.inf)
        found = functional.cross_entropy(scores, pairs.own, reduction="sum")
        if not self.symmetric:
            return found
        # The same scores, those of positives alone, [A, A]: what is no negative of an anchor has none in that anchor.
        backwards = scores[:, pairs.own].T
        right = torch.arange(len(pairs.anchors), device=scores.device)
        return (found + functional.cross_entropy(backwards, right, reduction="sum")) / 2.0


def _anchors(targets: torch.Tensor) -> torch.Tensor:
    """Which of N rows, bool, are anchors that have a positive: it is the next row."""
    roles = targets[:, 0]
    followed = functional.pad(roles[1:], (0, 1), value=-1) == TextRole.POSITIVE
    return (roles == TextRole.ANCHOR) & followed
