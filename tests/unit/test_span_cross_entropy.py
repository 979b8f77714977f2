"""The loss of spans against torch's cross-entropy, sequence by sequence."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from rtx_core import InputError, Outputs
from rtx_core.components import SpanRole
from rtx_plugins.losses.span_cross_entropy import SpanCrossEntropy
from rtx_plugins.tasks.span_rows import rows_of_text

LENGTHS = (5, 1, 9, 3, 7)
IGNORED = (3,)


def part():
    return SpanCrossEntropy().build(Outputs(size=2))


def rows(*, text=True):
    """Five sequences, of which one is ignored, with a sample's text behind the second and the last."""
    chance = np.random.default_rng(1)
    made, marks = [], []
    for number, length in enumerate(LENGTHS):
        own = np.zeros((length, 5), dtype=np.int64)
        own[:, 0] = np.arange(length)
        start, end = np.sort(chance.integers(length, size=2))
        own[start, 1] = own[end, 2] = 1
        if number in IGNORED:
            own[:, 1:3] = -1
        marks.append((int(start), int(end)))
        made.append(own)
        if text and number in (1, 4):
            # Numbers that look like marks.
            made += [rows_of_text("\x01" + "\x00" * 31), np.array([[SpanRole.REFERENCE, 1, 1, 0, 1]])]
    return torch.from_numpy(np.concatenate(made)), marks


def expected_sum(logits, targets, marks):
    """Σ (−log p[start] − log q[end]) / 2 by torch's cross-entropy."""
    total = torch.zeros((), dtype=logits.dtype)
    tokens = logits[targets[:, 0] >= 0].split(list(LENGTHS))
    for number, (own, mark) in enumerate(zip(tokens, marks, strict=True)):
        if number not in IGNORED:
            total = total + functional.cross_entropy(own.T, torch.tensor(mark), reduction="sum") / 2
    return total


@pytest.mark.parametrize("text", [True, False])
@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_it_is_the_cross_entropy_of_each_sequence(text, scale):
    """Sum and gradient agree within rounding of float64; other rows have a gradient of exactly 0."""
    targets, marks = rows(text=text)
    logits = (
        torch.randn(len(targets), 2, generator=torch.Generator().manual_seed(0)).double() * scale
    ).requires_grad_()
    found = part().of_logits(logits, targets)
    expected = expected_sum(logits, targets, marks)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=0)
    (gradient,), (expected_gradient,) = (torch.autograd.grad(value, logits) for value in (found, expected))
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-12, atol=1e-14)
    assert (gradient[targets[:, 0] < 0] == 0).all()


def test_half_precision_is_summed_in_float32():
    """The sum is float32, of the very numbers that came."""
    targets, marks = rows()
    logits = torch.randn(len(targets), 2, generator=torch.Generator().manual_seed(0)).bfloat16()
    found = part().of_logits(logits, targets)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected_sum(logits.double(), targets, marks), rtol=1e-6, atol=0)


def test_the_weight_is_the_number_of_sequences():
    """Each that is not ignored counts once; rows of text never."""
    targets, _ = rows()
    assert part().weight(targets) == len(LENGTHS) - len(IGNORED)
    assert part().weight(targets[:0]) == 0.0


def test_sequences_add_up():
    """Cut between sequences, weights, sums and gradients are those of the whole."""
    targets, _ = rows()
    logits = torch.randn(len(targets), 2, generator=torch.Generator().manual_seed(0)).double().requires_grad_()
    sizes = [5 + 1 + 2, 9, 3 + 7 + 2]
    pieces = list(zip(logits.split(sizes), targets.split(sizes), strict=True))
    total = torch.stack([part().of_logits(*piece) for piece in pieces]).sum()
    whole = part().of_logits(logits, targets)
    torch.testing.assert_close(total, whole, rtol=1e-14, atol=0)
    assert sum(part().weight(piece) for _, piece in pieces) == part().weight(targets)
    (cut,), (once,) = (torch.autograd.grad(value, logits) for value in (total, whole))
    torch.testing.assert_close(cut, once, rtol=1e-14, atol=0)


def test_other_outputs_are_refused():
    """A span has a start and an end."""
    with pytest.raises(InputError, match="takes two outputs, start and end, but the task has 3"):
        SpanCrossEntropy().build(Outputs(size=3))
