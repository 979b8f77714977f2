"""What every installed loss promises, whoever published it: a new one is tested by having an entry point."""

import importlib.metadata

import pytest
import torch

from rtx_core import Outputs

POINTS = {
    f"{point.dist.name}:{point.name.partition('.')[2]}": point
    for point in importlib.metadata.entry_points(group="rtx.v1")
    if point.name.startswith("loss.")
}

SETTINGS = {
    "rtx-transformers:cross_entropy": {
        "label_smoothing": 0.1,
        "class_weights": (1.0, 3.0, 0.5, 2.0),
        "z_loss": 0.01,
        "chunk_size": 2,
    },
    "rtx-transformers:focal": {"class_weights": (1.0, 3.0, 0.5, 2.0), "alpha": 0.25, "gamma": 0.5},
    "rtx-transformers:binary_cross_entropy": {"label_smoothing": 0.1, "positive_weights": (1.0, 3.0, 0.5, 2.0)},
    "rtx-transformers:huber": {"delta": 0.5},
}
"""Of ours, others than the defaults, all at once."""

CLASSES = torch.tensor([0, 3, -100, 1, 1, -100, 2])
"""Seven rows of 4 classes, of which two are ignored."""

pytestmark = pytest.mark.parametrize(
    ("name", "fields"), [*((name, {}) for name in sorted(POINTS)), *SETTINGS.items()], ids=str
)


@pytest.fixture
def loss(name, fields, settings):
    """The component with these settings."""
    point = POINTS[name]
    component = settings(point.load().loss()[point.name.partition(".")[2]], **fields)
    if not component.target_kinds:
        pytest.skip(f"{name} doesn't say which kinds of targets it takes (target_kinds)")
    return component


def part_of(loss, kind):
    """The part for four outputs, or for the two that spans have."""
    return loss.build(Outputs(size=_outputs(kind)))


def _outputs(kind):
    return 2 if kind == "span" else 4


def logits_of(kind, rows):
    return torch.randn(rows, _outputs(kind), generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def summed(part, logits, targets):
    """By whichever of its two functions the loss has; logits are the features of a head that does nothing."""
    if hasattr(part, "of_features"):
        return part.of_features(logits, lambda features: features, targets)
    return part.of_logits(logits, targets)


@pytest.mark.parametrize("sizes", [(1, 6), (3, 4), (0, 7), (1,) * 7], ids=str)
def test_it_does_not_mind_the_cut(loss, sizes, targets_of):
    """Weights, sums and gradients of the pieces add to those of the whole, with ignored targets and an empty piece."""
    if loss.whole_step:
        pytest.skip("it is given the whole step at once, however that is cut (whole_step)")
    for kind in loss.target_kinds:
        part, targets = part_of(loss, kind), targets_of(kind, CLASSES, by="loss")
        whole, cut = (logits_of(kind, len(targets)).requires_grad_() for _ in range(2))
        expected = summed(part, whole, targets)
        expected.backward()
        rows = [size * len(targets) // 7 for size in sizes]
        pieces = list(zip(cut.split(rows), targets.split(rows), strict=True))
        total = torch.stack([summed(part, *piece) for piece in pieces]).sum()
        total.backward()
        rounding = {"rtol": 64 * torch.finfo(expected.dtype).eps, "atol": 0}  # a loss may sum in float32
        weights = [part.weight(piece) for _, piece in pieces if len(piece)]  # it isn't asked about an empty piece
        assert sum(weights) == pytest.approx(part.weight(targets), rel=1e-12)
        torch.testing.assert_close(total, expected, **rounding)
        torch.testing.assert_close(cut.grad, whole.grad, **rounding)


def test_what_is_ignored_takes_no_part(loss, targets_of):
    """The row of an ignored target gets no gradient; weight and sum of the others are there and finite."""
    for kind in loss.target_kinds:
        part, targets = part_of(loss, kind), targets_of(kind, CLASSES, by="loss")
        logits = logits_of(kind, len(targets)).requires_grad_()
        counts = (CLASSES >= 0).repeat_interleave(len(targets) // 7)
        total = summed(part, logits, targets)
        total.backward()
        assert part.weight(targets) > 0
        assert total.shape == ()
        assert total.isfinite()
        if kind != "embedding":  # there a text that is nobody's positive is a negative of all
            assert not logits.grad[~counts].any()
        assert logits.grad[counts].any()


def test_nothing_to_learn_is_nothing(loss, targets_of):
    """Where every target is ignored the weight is 0, and the sum is a 0 that goes backward without NaN."""
    for kind in loss.target_kinds:
        part, targets = part_of(loss, kind), targets_of(kind, torch.full((3,), -100), by="loss")
        logits = logits_of(kind, len(targets)).requires_grad_()
        total = summed(part, logits, targets)
        total.backward()
        assert part.weight(targets) == 0.0
        assert total.item() == 0.0
        assert not logits.grad.any()
