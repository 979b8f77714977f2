"""Recall, reciprocal rank and nDCG against plain formulas, scikit-learn and figures worked out by hand."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import ndcg_score

from rtx_core import Outputs, TextRole
from rtx_plugins.metrics import retrieval_part
from rtx_plugins.metrics.retrieval import Retrieval


def judged_rows(queries, documents, grades):
    """Embeddings, targets, weights and samples: the documents, then each query with a row for each of its judgments.

    :param grades: a dict of grades by document for each query.
    """
    rows = [(embedding, (TextRole.DOCUMENT, number, 0), number) for number, embedding in enumerate(documents)]
    for number, (embedding, own) in enumerate(zip(queries, grades, strict=True)):
        sample = len(documents) + number
        rows.append((embedding, (TextRole.QUERY, number, 0), sample))
        rows += [(embedding, (TextRole.JUDGMENT, *judgment), sample) for judgment in own.items()]
    return packed(rows)


def pair_rows(samples):
    """The same of samples of (text, embedding): an anchor, its positive, its negatives."""
    roles = (TextRole.ANCHOR, TextRole.POSITIVE, *[TextRole.NEGATIVE] * 9)
    return packed(
        (embedding, (role, text, 0), number)
        for number, sample in enumerate(samples)
        for role, (text, embedding) in zip(roles, sample, strict=False)
    )


def packed(rows):
    embeddings, targets, samples = zip(*rows, strict=True)
    return (
        torch.tensor(np.array(embeddings), dtype=torch.float32),
        torch.tensor(targets),
        torch.ones(len(targets)),
        torch.tensor(samples),
    )


def measured(rows, k=(10,)):
    part = Retrieval(k=k).build(Outputs(size=0))
    part.update_by_sample(*rows)
    return part.compute()


def plain(queries, documents, grades, k):
    """By sorting all documents of a query: trec_eval's recall, reciprocal rank and nDCG with linear gains, cut at k."""
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, documents)]
    figures = []
    for embedding, own in zip(unit[0], grades, strict=True):
        relevant = {document: grade for document, grade in own.items() if grade > 0}
        if not relevant:
            continue
        order = np.argsort(-(unit[1] @ embedding), kind="stable")[:k]
        gains = [relevant.get(document, 0) for document in order]
        ideal = sorted(relevant.values(), reverse=True)[:k]
        found = [rank for rank, gain in enumerate(gains, start=1) if gain]
        dcg, best = (sum(g / math.log2(rank + 1) for rank, g in enumerate(gs, start=1)) for gs in (gains, ideal))
        figures.append((len(found) / len(relevant), 1 / found[0] if found else 0.0, dcg / best))
    return dict(zip((f"recall@{k}", f"mrr@{k}", f"ndcg@{k}"), np.mean(figures, axis=0), strict=True))


def random_case(seed, queries=7, documents=40, size=5):
    """Every third query has nothing relevant, or is not judged at all."""
    draw = np.random.default_rng(seed)
    grades = [
        dict(zip(draw.permutation(documents)[:6].tolist(), draw.integers(0, 4, 6).tolist(), strict=True))
        for _ in range(queries)
    ]
    grades[0], grades[3] = {}, {2: 0, 5: 0}
    return draw.normal(size=(queries, size)), draw.normal(size=(documents, size)), grades


@pytest.mark.parametrize("seed", range(20))
def test_figures_are_those_of_sorting(seed):
    """For every k, also beyond the corpus; queries for which nothing is relevant are left out."""
    case = random_case(seed)
    found = measured(judged_rows(*case), k=(1, 3, 10, 100))
    expected = {name: value for k in (1, 3, 10, 100) for name, value in plain(*case, k).items()}
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("k", [1, 10, None])
def test_ndcg_is_scikit_learns(k):
    """On 1,000 random rankings without ties, with grades 0 to 3; without k all documents count."""
    draw = np.random.default_rng(1)
    queries, documents = draw.normal(size=(1000, 8)), draw.normal(size=(30, 8))
    truth = draw.integers(0, 4, (1000, 30))
    rows = judged_rows(queries, documents, [dict(enumerate(row.tolist())) for row in truth])
    scores = queries @ (documents / np.linalg.norm(documents, axis=1, keepdims=True)).T
    cut = k or 30
    assert measured(rows, (cut,))[f"ndcg@{cut}"] == pytest.approx(ndcg_score(truth, scores, k=k), rel=1e-12)


def test_a_known_ranking():
    """Documents at 0°, 10°, 20° … from one query; grade 2 at rank 2, grade 1 at rank 4: recall@3 1/2, MRR 1/2, and
    nDCG@3 (2 / log₂3) / (2 + 1 / log₂3).
    """
    angles = np.radians([30, 10, 0, 20])
    documents = np.stack([np.cos(angles), np.sin(angles)], axis=1) * [[1], [5], [2], [3]]
    found = measured(judged_rows(np.array([[2.0, 0.0]]), documents, [{1: 2, 0: 1, 3: 0}]), k=(3,))
    log3 = math.log2(3)
    assert found == pytest.approx({"recall@3": 0.5, "mrr@3": 0.5, "ndcg@3": (2 / log3) / (2 + 1 / log3)}, rel=1e-12)


# --- however it is cut ------------------------------------------------------------------------------------------------


def test_the_order_of_batches_changes_nothing(monkeypatch):
    """Samples in any order and any cut, and matrices of scores of any size, give the same floats."""
    case = random_case(3)
    rows = judged_rows(*case)
    expected = measured(rows, k=(1, 5))
    samples = rows[3]
    for size, seed in ((1, 0), (4, 1), (13, 2)):
        part = Retrieval(k=(1, 5)).build(Outputs(size=0))
        order = torch.randperm(int(samples.max()) + 1, generator=torch.Generator().manual_seed(seed))
        for some in order.split(size):
            own = torch.cat([(samples == sample).nonzero().squeeze(1) for sample in some])
            part.update_by_sample(*(tensor[own] for tensor in rows))
        assert part.compute() == expected
    monkeypatch.setattr(retrieval_part, "_QUERIES", 3)
    monkeypatch.setattr(retrieval_part, "_DOCUMENTS", 7)
    assert measured(rows, k=(1, 5)) == expected


@pytest.mark.parametrize("documents", [9, 300])
def test_equally_near_documents_rank_in_the_order_of_the_corpus(documents, monkeypatch):
    """All documents have one embedding: document d has rank d + 1, in matrices of every shape."""
    monkeypatch.setattr(retrieval_part, "_DOCUMENTS", 7)
    embedding = np.random.default_rng(0).normal(size=(1, 384))
    for relevant in (0, 4, 8):
        rows = judged_rows(embedding, np.repeat(embedding * 3, documents, axis=0), [{relevant: 1}])
        assert measured(rows, k=(9,))["mrr@9"] == 1 / (relevant + 1)


# --- pairs ------------------------------------------------------------------------------------------------------------


def test_of_pairs_the_anchors_are_queries():
    """Positives and negatives of all samples are the documents; equal texts are one, whatever their role."""
    draw = np.random.default_rng(4)
    texts = dict(zip(range(20), draw.normal(size=(20, 5)), strict=True))
    words = [(0, 10, 11), (1, 12), (2, 11, 10, 13), (3, 10), (0, 14)]  # the texts of each sample
    found = measured(pair_rows([[(text, texts[text]) for text in sample] for sample in words]), k=(2,))
    queries = np.stack([texts[text] for text in (0, 1, 2, 3)])
    documents = np.stack([texts[text] for text in range(10, 15)])
    grades = [{0: 1, 4: 1}, {2: 1}, {1: 1}, {0: 1}]
    assert found == pytest.approx(plain(queries, documents, grades, 2), rel=1e-12)


def test_of_equal_texts_the_row_of_the_positive_counts():
    """Where prompts make a text's embeddings differ by role, it doesn't matter which batch came first."""
    near, far, query = [1.0, 0.0], [0.0, 1.0], [1.0, 0.1]
    samples = [[(0, query), (7, far), (8, near)], [(1, query), (8, far), (9, [1.0, 1.0])]]
    for order in (samples, samples[::-1]):
        assert measured(pair_rows(order), k=(1,)) == {"recall@1": 0.0, "mrr@1": 0.0, "ndcg@1": 0.0}


# --- nothing to measure -----------------------------------------------------------------------------------------------


def test_without_anything_relevant_there_is_no_figure():
    """No rows, no relevant document, or an embedding that is not finite: NaN under every name that is declared."""
    queries, documents, grades = random_case(5)
    documents[3] = np.nan
    for found in (
        Retrieval().build(Outputs(size=0)).compute(),
        measured(judged_rows(queries, queries, [{}] * len(queries))),
        measured(judged_rows(queries, documents, grades)),
    ):
        assert found.keys() == Retrieval().names().keys() == {"recall@10", "mrr@10", "ndcg@10"}
        assert all(math.isnan(value) for value in found.values())


@pytest.mark.parametrize("k", [(), (0,)])
def test_every_k_is_a_number_from_1(k):
    """Without any there would be no figure."""
    with pytest.raises(ValueError, match="k"):
        Retrieval(k=k)


def test_every_k_stands_once():
    """Said by ``check``: two values would have one name."""
    assert list(Retrieval(k=(3, 3)).check()) == [("k", "a number occurs more than once")]
