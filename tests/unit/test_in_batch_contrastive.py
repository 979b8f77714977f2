"""The contrastive loss against formulas that are written pair by pair, and case 5: 8 pairs cut into pieces."""

import math

import pytest
import torch
from torch.nn import functional

from rtx_core import InputError, Outputs, TextRole
from rtx_core.model import FeatureCache
from rtx_plugins.losses.in_batch_contrastive import InBatchContrastive


def part_of(*, without_duplicates=False, **settings):
    part = InBatchContrastive(**settings).build(Outputs(size=0))
    if without_duplicates:
        part.leave_out_duplicates()
    return part


def targets_of(*samples):
    """Each sample a text for the anchor, one for its positive, and its negatives; a text is a number."""
    rows = []
    for anchor, positive, *negatives in samples:
        rows += [(TextRole.ANCHOR, anchor, 0), (TextRole.POSITIVE, positive, 0)]
        rows += [(TextRole.NEGATIVE, negative, 0) for negative in negatives]
    return torch.tensor(rows)


def random_embeddings(count, size=12, seed=0):
    return torch.randn(count, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


PAIRS = targets_of(*((2 * i, 2 * i + 1) for i in range(8)))
HARD = targets_of((0, 1, 2, 3), (4, 5), (6, 7, 8), (9, 10))


def multiple_negatives_ranking(embeddings, targets, scale):
    """sentence-transformers' MultipleNegativesRankingLoss, mean of the batch, scores by cosine (its documentation:
    ``scores = cos_sim(anchors, cat([positives, *negatives])) * scale``, cross-entropy with the labels 0 … n − 1).
    """
    rows = [embeddings[targets[:, 0] == role] for role in (TextRole.ANCHOR, TextRole.POSITIVE, TextRole.NEGATIVE)]
    anchors, candidates = rows[0], torch.cat(rows[1:])
    scores = functional.cosine_similarity(anchors.unsqueeze(1), candidates.unsqueeze(0), dim=-1) * scale
    forward = functional.cross_entropy(scores, torch.arange(len(anchors)))
    backward = functional.cross_entropy(scores[:, : len(anchors)].T, torch.arange(len(anchors)))
    return forward, backward


@pytest.mark.parametrize("temperature", [0.05, 1.0])
@pytest.mark.parametrize("targets", [PAIRS, HARD], ids=["pairs", "hard negatives"])
def test_the_loss_is_multiple_negatives_ranking(targets, temperature):
    """With scale = 1 / temperature, hard negatives of any anchor included; symmetric is the mean of both ways."""
    embeddings = random_embeddings(len(targets))
    forward, backward = multiple_negatives_ranking(embeddings, targets, 1.0 / temperature)
    one, both = part_of(temperature=temperature), part_of(temperature=temperature, symmetric=True)
    weight = one.weight(targets)
    assert weight == (targets[:, 0] == TextRole.ANCHOR).sum()
    torch.testing.assert_close(one.of_logits(embeddings, targets) / weight, forward, rtol=1e-12, atol=0)
    torch.testing.assert_close(
        both.of_logits(embeddings, targets) / weight, (forward + backward) / 2, rtol=1e-12, atol=0
    )


def test_a_known_value():
    """Two orthogonal pairs of equal embeddings at temperature 1: −ln(e / (e + 1)) each."""
    embeddings = torch.tensor([[3.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 5.0]])
    loss = part_of(temperature=1.0).of_logits(embeddings, PAIRS[:4])
    assert loss.item() == pytest.approx(2 * math.log(1 + math.exp(-1)), rel=1e-6)


@pytest.mark.parametrize("weights", [None, (0.5, 2.0, 1.0)])
def test_sizes_add_the_losses_of_cut_embeddings(weights):
    """Matryoshka: Σ w · loss of the first so many numbers, of length 1 again; one size of all numbers is no size."""
    embeddings, sizes = random_embeddings(len(HARD)), (12, 5, 2)
    expected = sum(
        weight * multiple_negatives_ranking(embeddings[:, :size], HARD, 20.0)[0]
        for size, weight in zip(sizes, weights or (1.0, 1.0, 1.0), strict=True)
    )
    found = part_of(sizes=sizes, size_weights=weights).of_logits(embeddings, HARD) / 4.0
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    plain = part_of().of_logits(embeddings, HARD)
    torch.testing.assert_close(part_of(sizes=(12,)).of_logits(embeddings, HARD), plain, rtol=0, atol=0)


# --- the whole step ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [1, 2, 4, 8])
@pytest.mark.parametrize("settings", [{}, {"symmetric": True}, {"sizes": (12, 4)}])
def test_eight_pairs_have_one_loss_and_one_gradient_however_they_are_cut(settings, pieces):
    """Case 5: by cached gradients, as the loop does it, with an encoder's gradient; cut naively losses differ."""
    inputs = random_embeddings(16, seed=1)
    part, size = part_of(**settings), 16 // pieces
    whole, cut = (random_embeddings(12, seed=2).requires_grad_() for _ in range(2))
    expected = part.of_logits(inputs @ whole, PAIRS)
    expected.backward()
    caches = [FeatureCache(features=(piece @ cut).detach()) for piece in inputs.split(size)]
    features = torch.cat([cache.features for cache in caches]).requires_grad_()
    total = part.of_logits(features, PAIRS)
    total.backward()
    for piece, gradient in zip(inputs.split(size), features.grad.split(size), strict=True):
        ((piece @ cut) * gradient).sum().backward()
    assert sum(part.weight(piece) for piece in PAIRS.split(size)) == part.weight(PAIRS) == 8.0
    torch.testing.assert_close(total, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(cut.grad, whole.grad, rtol=1e-10, atol=1e-12)
    naive = sum(part.of_logits(*rows).item() for rows in zip(features.split(size), PAIRS.split(size), strict=True))
    assert (naive == pytest.approx(expected.item(), rel=1e-9)) == (pieces == 1)


# --- equal texts ------------------------------------------------------------------------------------------------------


def pair_by_pair(embeddings, targets, temperature, *, symmetric=False):
    """The loss without duplicates, candidate by candidate: an own positive, and what is neither the anchor's text, nor
    its positive's, nor the positive of an anchor of the same text.
    """
    rows = [(int(role), int(text), number) for number, (role, text, _) in enumerate(targets.tolist())]
    anchors = [(text, rows[number + 1][1], number) for role, text, number in rows if role == TextRole.ANCHOR]
    scores = functional.normalize(embeddings, dim=1) @ functional.normalize(embeddings, dim=1).T / temperature
    total = 0.0
    for text, positive, row in anchors:
        right = {other for anchor, _, number in anchors for other in [number + 1] if anchor == text}
        kept = [
            n for role, own, n in rows if role != TextRole.ANCHOR and own not in (text, positive) and n not in right
        ]
        forward = scores[row, [row + 1, *kept]].logsumexp(0) - scores[row, row + 1]
        others = [n for own, own_positive, n in anchors if own not in (text, positive) and own_positive != positive]
        backward = scores[row + 1, [row, *others]].logsumexp(0) - scores[row + 1, row]
        total += (forward + backward) / 2 if symmetric else forward
    return total


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(
    "samples",
    [
        [(0, 1), (2, 1), (3, 4)],  # one positive twice
        [(0, 1), (0, 2), (3, 4)],  # one anchor twice
        [(0, 1), (2, 0), (3, 4)],  # an anchor that is another one's positive
        [(0, 1, 5), (2, 3, 1), (4, 6, 0, 7)],  # a negative that is another one's positive, or an anchor
        [(0, 1, 1), (2, 3, 2)],  # a negative that is its own positive, or its own anchor
        [(0, 0), (1, 2)],  # an anchor that is its own positive
        [(0, 1), (0, 1), (0, 1)],  # nothing else
    ],
)
def test_equal_texts_are_left_out_of_each_others_negatives(samples, symmetric):
    """The masked loss is the formula's, its gradient finite; the loss that keeps them is another one."""
    targets = targets_of(*samples)
    embeddings = random_embeddings(len(targets), seed=3).requires_grad_()
    found = part_of(without_duplicates=True, symmetric=symmetric).of_logits(embeddings, targets)
    expected = pair_by_pair(embeddings, targets, 0.05, symmetric=symmetric)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    found.backward()
    assert embeddings.grad.isfinite().all()
    if samples != [(0, 0), (1, 2)]:
        assert found.item() < part_of(symmetric=symmetric).of_logits(embeddings, targets).item()


def test_without_equal_texts_nothing_is_left_out():
    """The two losses are one where all texts differ."""
    embeddings = random_embeddings(len(HARD))
    found = part_of(without_duplicates=True).of_logits(embeddings, HARD)
    torch.testing.assert_close(found, part_of().of_logits(embeddings, HARD), rtol=0, atol=0)


# --- weights and settings ---------------------------------------------------------------------------------------------


def test_what_is_no_pair_weighs_nothing():
    """Queries, documents and judgments of an evaluation, and an anchor without a positive, are not learnt."""
    roles = [TextRole.QUERY, TextRole.JUDGMENT, TextRole.DOCUMENT, TextRole.ANCHOR, TextRole.ANCHOR, TextRole.POSITIVE]
    targets = torch.tensor([(role, number, 0) for number, role in enumerate(roles)])
    assert part_of().weight(targets) == 1.0
    assert part_of().weight(targets[:5]) == 0.0
    assert part_of().weight(targets[:0]) == 0.0


def test_half_precision_is_computed_in_float32():
    """The sum is float32 and that of the rounded embeddings."""
    embeddings = random_embeddings(16).bfloat16()
    found = part_of().of_logits(embeddings, PAIRS)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), part_of().of_logits(embeddings.double(), PAIRS), rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("settings", "field", "message"),
    [
        ({"sizes": (4, 4)}, "sizes", "occurs more than once"),
        ({"sizes": (4, 2), "size_weights": (1.0,)}, "size_weights", "1 weights for 2 sizes"),
        ({"size_weights": (1.0,)}, "size_weights", "1 weights for 0 sizes"),
    ],
)
def test_sizes_and_their_weights_must_fit(settings, field, message):
    """Said by ``check``."""
    ((name, said),) = InBatchContrastive(**settings).check()
    assert name == field
    assert message in said


@pytest.mark.parametrize("settings", [{"temperature": 0.0}, {"sizes": (0,)}, {"sizes": (3,), "size_weights": (-1.0,)}])
def test_settings_without_a_meaning_are_refused(settings):
    """Temperatures, sizes and weights are above 0."""
    with pytest.raises(ValueError, match="must be >"):
        InBatchContrastive(**settings)


def test_a_size_beyond_the_embedding_is_refused(run_of_width):
    """With both numbers, as soon as the run has a model."""
    part = part_of(sizes=(64, 8))
    part.on_build(run_of_width(64))
    with pytest.raises(InputError, match="^loss.sizes: 64 is more than the 32 numbers of an embedding"):
        part.on_build(run_of_width(32))


@pytest.fixture
def run_of_width():
    """A function: as much of a run as the loss looks at."""
    from types import SimpleNamespace

    training, task = SimpleNamespace(batch_size=8), SimpleNamespace(negative=None)
    return lambda size: SimpleNamespace(
        pipeline=SimpleNamespace(architecture=SimpleNamespace(hidden_size=size), training=training, task=task)
    )
