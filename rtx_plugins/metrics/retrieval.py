"""How well queries find their documents by the cosine of their embeddings: recall, reciprocal rank and nDCG at k."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from rtx_core import Metric, hookimpl

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rtx_core import Outputs
    from rtx_core.components import Direction, TargetKind
    from rtx_plugins.metrics.retrieval_part import RetrievalPart


@attrs.frozen(kw_only=True)
class Retrieval(Metric):
    """All documents are ranked for each query, exactly; logged as ``recall@10``, ``mrr@10`` and ``ndcg@10``.

    ``recall``: the share of the relevant documents that are among the first k. ``mrr``: 1 over the rank of the first
    relevant one, 0 where none is among them. ``ndcg``: the gains of the first k, each divided by log₂(rank + 1), over
    the largest that any order would have; a document's gain is its grade, as in trec_eval and BEIR, not 2^grade − 1.
    Each is the mean over the queries that have a relevant document (a grade above 0). Equally near documents rank in
    the order of the corpus.

    Of pairs the anchors are the queries, and all positives and negatives of the set the documents: equal texts are one
    query, or one document, and whatever is a positive of a query is relevant for it.
    """

    target_kinds: ClassVar[tuple[TargetKind, ...]] = ("embedding",)

    k: tuple[int, ...] = attrs.field(
        default=(10,),
        validator=[
            attrs.validators.min_len(1),
            attrs.validators.deep_iterable(attrs.validators.ge(1)),
        ],
    )
    """How many documents are looked at; each number gives its own three values."""

    def check(self) -> Iterable[tuple[str, str]]:
        """Each k once."""
        if len(set(self.k)) < len(self.k):
            yield "k", "a number occurs more than once"

    def names(self) -> dict[str, Direction | None]:
        """Three for each k, larger is better."""
        return {f"{name}@{k}": "max" for k in self.k for name in ("recall", "mrr", "ndcg")}

    def build(self, outputs: Outputs) -> RetrievalPart:  # noqa: ARG002 - embeddings have no outputs
        """The part."""
        from rtx_plugins.metrics.retrieval_part import RetrievalPart

        return RetrievalPart(self.k)


@hookimpl
def metric() -> dict[str, type[Metric]]:
    """Offer it as ``retrieval``."""
    return {"retrieval": Retrieval}
