"""The ranking behind the metric ``retrieval``. Q queries, D documents, J judgments, E numbers in an embedding.

Only the ranks of relevant documents matter: the number of documents that are nearer, counted piece by piece, so that
the Q × D scores are never in memory together, nor sorted.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs
import numpy as np
import torch
from torch.nn import functional

from rtx_core import MetricPart, TextRole
from rtx_plugins.metrics.counting import wide

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_QUERIES = 256
_DOCUMENTS = 8192
"""Rows and columns of the largest matrix of scores that is built."""


@attrs.frozen(eq=False)
class Collection:
    """Queries, documents and what is relevant, numbered from 0."""

    queries: torch.Tensor
    """``[Q, E]``."""
    documents: torch.Tensor
    """``[D, E]``, in the order that breaks ties."""
    query: torch.Tensor
    """int64 ``[J]``: the query of each judgment, rising; its grade is above 0."""
    document: torch.Tensor
    """int64 ``[J]``: its document."""
    grade: torch.Tensor
    """int64 ``[J]``."""


class RetrievalPart(MetricPart):
    """Keeps the embeddings, and ranks when all are there."""

    def __init__(self, k: Sequence[int]) -> None:
        super().__init__()
        self._k = tuple(k)

    def update_by_sample(
        self,
        predictions: torch.Tensor,
        targets: torch.Tensor,
        weights: torch.Tensor,  # noqa: ARG002 - every text counts
        samples: torch.Tensor,
    ) -> None:
        """Keep embeddings ``[N, E]`` with their targets ``[N, 3]``; a judgment stands at its query's embedding."""
        is_text = targets[:, 0] != TextRole.JUDGMENT
        self.collect(
            embeddings=predictions[is_text],
            texts=torch.cat([targets[is_text], samples[is_text].unsqueeze(1)], dim=1),
            judgments=torch.cat([targets[~is_text], samples[~is_text].unsqueeze(1)], dim=1),
        )

    def compute(self) -> dict[str, float]:
        """The mean over the queries that have a relevant document; NaN where there is none."""
        figures = dict.fromkeys((f"{name}@{k}" for k in self._k for name in ("recall", "mrr", "ndcg")), math.nan)
        if not self.rows:
            return figures
        collection = _collection(*(torch.cat(self.rows[name]) for name in ("embeddings", "texts", "judgments")))
        finite = collection.queries.isfinite().all() & collection.documents.isfinite().all()
        if not len(collection.query) or not finite:
            return figures
        judged = _Judged(collection)
        for k in self._k:
            figures |= {f"recall@{k}": judged.recall(k), f"mrr@{k}": judged.mrr(k), f"ndcg@{k}": judged.ndcg(k)}
        return figures


# --- from rows to queries and documents -------------------------------------------------------------------------------


def _collection(embeddings: torch.Tensor, texts: torch.Tensor, judgments: torch.Tensor) -> Collection:
    """Of rows in any order.

    :param texts: (role, identity, grade, sample) ``[N, 4]`` of each embedding.
    :param judgments: the same of judgments, the identity being a document's.
    """
    roles, identities = texts[:, 0], texts[:, 1]
    is_query = (roles == TextRole.QUERY) | (roles == TextRole.ANCHOR)
    queries, query_of = _distinct(identities[is_query], roles[is_query], texts[is_query, 3])
    documents, document_of = _distinct(identities[~is_query], roles[~is_query], texts[~is_query, 3])
    # A judgment names the sample of its query; so does a positive, which is one by itself.
    positive = roles[~is_query] == TextRole.POSITIVE
    by_sample, places = texts[is_query, 3].sort()
    samples = torch.cat([judgments[:, 3], texts[~is_query, 3][positive]])
    query = query_of[places[torch.searchsorted(by_sample, samples)]]
    listed = identities[~is_query][documents]  # rising
    document = torch.cat([torch.searchsorted(listed, judgments[:, 1].contiguous()), document_of[positive]])
    grade = torch.cat([judgments[:, 2], torch.ones_like(document_of[positive])])
    judged = torch.unique(torch.stack([query, document, grade], dim=1)[grade > 0], dim=0)
    return Collection(embeddings[is_query][queries], embeddings[~is_query][documents], *judged.unbind(1))


def _distinct(
    identities: torch.Tensor, roles: torch.Tensor, samples: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """A row for each identity, rising, and the place of every row's identity among them.

    Of equal texts it is the one of the lowest role and sample: which batch came first doesn't matter.
    """
    order = samples.argsort(stable=True)
    order = order[roles[order].argsort(stable=True)]
    order = order[identities[order].argsort(stable=True)]
    rising = identities[order]
    first = torch.ones_like(rising, dtype=torch.bool)
    first[1:] = rising[1:] != rising[:-1]
    return order[first], torch.empty_like(order).scatter(0, order, first.cumsum(0) - 1)


# --- ranks and what follows from them ---------------------------------------------------------------------------------


def ranks(collection: Collection) -> torch.Tensor:
    """The rank of each judgment's document among all, from 1, float64 ``[J]`` in the order of the judgments."""
    queries, documents = (functional.normalize(wide(x), dim=1) for x in (collection.queries, collection.documents))
    numbers = torch.arange(len(documents), device=documents.device)
    found: list[torch.Tensor] = []
    for start, stop in _pieces(len(queries), _QUERIES):
        judged = (collection.query >= start) & (collection.query < stop)
        query, document = collection.query[judged], collection.document[judged]
        # Rounded sums of float64, so that equal documents are equally near whatever the order of a kernel's sums.
        own = (queries[query] * documents[document]).sum(1).float()  # [j]
        ahead = torch.zeros_like(query)
        for first, last in _pieces(len(documents), _DOCUMENTS):
            scores = (queries[start:stop] @ documents[first:last].T).float()  # [q, d]
            number = numbers[first:last]
            for low, high in _pieces(len(query), _QUERIES):
                some = slice(low, high)
                near, mine = scores[query[some] - start], own[some].unsqueeze(1)
                before = number < document[some].unsqueeze(1)
                other = number != document[some].unsqueeze(1)
                ahead[some] += (((near > mine) & other) | ((near == mine) & before)).sum(1)
        found.append(ahead + 1)
    return wide(torch.cat(found))


def _pieces(size: int, most: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + most, size)) for start in range(0, size, most))


class _Judged:
    """The ranks of relevant documents, on the host, with what is made of them."""

    def __init__(self, collection: Collection) -> None:
        self._ranks = ranks(collection).cpu().numpy()
        self._grades = collection.grade.cpu().numpy().astype(np.float64)
        # Numbered anew, without the queries that have no relevant document.
        _, self._query = np.unique(collection.query.cpu().numpy(), return_inverse=True)

    def recall(self, k: int) -> float:
        return self._mean(self._summed(self._ranks <= k) / self._summed(np.ones_like(self._ranks)))

    def mrr(self, k: int) -> float:
        reciprocal = np.zeros(self._query.max() + 1)
        np.maximum.at(reciprocal, self._query, (self._ranks <= k) / self._ranks)
        return self._mean(reciprocal)

    def ndcg(self, k: int) -> float:
        """Järvelin & Kekäläinen 2002 (doi:10.1145/582415.582418), the gain being the grade."""
        # The ideal order has the highest grades first: the rank of each judgment among those of its query.
        order = np.lexsort((-self._grades, self._query))
        _, starts = np.unique(self._query, return_index=True)  # the judgments of a query stand side by side
        ideal = np.empty_like(self._ranks)
        ideal[order] = np.arange(len(order)) - starts[self._query[order]] + 1
        return self._mean(self._discounted(self._ranks, k) / self._discounted(ideal, k))

    def _discounted(self, ranks: np.ndarray, k: int) -> np.ndarray:
        return self._summed((ranks <= k) * self._grades / np.log2(ranks + 1.0))

    def _summed(self, values: np.ndarray) -> np.ndarray:
        """The sum over each query's judgments ``[Q]``."""
        return np.bincount(self._query, weights=values)

    @staticmethod
    def _mean(figures: np.ndarray) -> float:
        return float(figures.mean())
