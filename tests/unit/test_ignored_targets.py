"""Samples whose targets are left out of a batch, whatever kind of targets they are."""

import numpy as np
import torch

from rtx_core import Batch, Outputs, Sample
from rtx_core.components import SpanRole
from rtx_plugins.losses.cross_entropy import CrossEntropy
from rtx_plugins.losses.mse import Mse
from rtx_plugins.losses.span_cross_entropy import SpanCrossEntropy


def batch_of(targets, positions):
    """Samples 7, 3 and 5 of 3 tokens each, with the same targets at the same positions."""
    samples = [
        Sample(
            input_ids=np.arange(3, dtype=np.int32),
            token_types=np.zeros(3, dtype=np.uint8),
            target_positions=np.array(positions, dtype=np.int32),
            targets=targets,
        )
        for _ in range(3)
    ]
    return Batch.of(samples, [7, 3, 5])


def test_classes_become_ignored_ones():
    """Two targets of the sample in the middle turn negative; the loss counts the other four."""
    batch = batch_of(np.array([1, 2]), [0, 2])
    batch.ignore_targets({3, 99})
    assert (batch.targets < 0).tolist() == [False, False, True, True, False, False]
    assert CrossEntropy().build(Outputs(size=3)).weight(batch.targets) == 4.0


def test_numbers_become_nan():
    """Both numbers of two samples are NaN, those of the third stay."""
    batch = batch_of(np.array([[0.5, 1.5]], dtype=np.float32), [0])
    batch.ignore_targets({7, 5})
    assert batch.targets.isnan().tolist() == [[True, True], [False, False], [True, True]]
    assert Mse().build(Outputs(size=2)).weight(batch.targets) * 3 == Mse().build(Outputs(size=2)).weight(
        batch_of(np.array([[0.5, 1.5]], dtype=np.float32), [0]).targets
    )


def test_a_span_has_no_answer_any_more():
    """Its tokens keep their places and lose start and end; rows about the text, which measure alone, stay."""
    rows = np.array([[0, 0, 0, 0, -1], [1, 1, 1, 2, 3], [SpanRole.REFERENCE, 0, 0, 2, 3]])
    batch = batch_of(rows, [0, 1, 1])
    part = SpanCrossEntropy().build(Outputs(size=2))
    assert part.weight(batch.targets) == 3.0
    batch.ignore_targets({5})
    assert part.weight(batch.targets) == 2.0
    changed = torch.from_numpy(rows).clone()
    changed[:2, 1:] = -1
    assert torch.equal(batch.targets[6:], changed)
    assert torch.equal(batch.targets[:3], torch.from_numpy(rows))
