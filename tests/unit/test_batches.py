"""How an epoch becomes steps, and a step becomes pieces."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtx_core.batches import Cutting, EqualBatches, LengthBatches, TokenBatches, even_bounds
from rtx_core.order import MixedOrder, Order, Share


def epoch_of(batches, epoch):
    """The samples of every step of an epoch."""
    first = epoch * batches.steps_per_epoch
    found = [batches.samples(step) for step in range(first, first + batches.steps_per_epoch)]
    assert {number for number, _ in found} == {epoch}
    return [samples.tolist() for _, samples in found]


def lengths_of(size, seed=0, longest=512):
    """Lengths as those of texts: many short, a few long."""
    drawn = np.random.Generator(np.random.PCG64(seed)).geometric(1 / 60, size)
    return np.minimum(drawn + 1, longest)


# --- equal batches ----------------------------------------------------------------------------------------------------


def test_the_last_step_of_an_epoch_may_be_short():
    """Case 3: 9 records in batches of 4 are steps of 4, 4 and 1, at the positions of the order."""
    order = Order(0, 9)
    batches = EqualBatches(order=order, size=4)
    assert batches.steps_per_epoch == 3
    for epoch in (0, 1):
        positions = order.samples(epoch, 0, 9).tolist()
        assert epoch_of(batches, epoch) == [positions[:4], positions[4:8], positions[8:]]


# --- about equal tokens -----------------------------------------------------------------------------------------------


def token_batches(lengths, per_step, order=None, seed=3):
    order = order or Order(seed, len(lengths))
    return TokenBatches(order=order, lengths=lengths, steps=math.ceil(order.total(lengths) / per_step))


@given(
    lengths=st.lists(st.integers(1, 600), min_size=1, max_size=900).map(np.array),
    per_step=st.integers(1, 5000),
    seed=st.integers(0, 5),
)
def test_an_epoch_by_tokens_holds_every_sample_once(lengths, per_step, seed):
    """Whatever the lengths and the tokens of a step, each sample comes once an epoch and no step is empty."""
    steps = min(len(lengths), math.ceil(lengths.sum() / per_step))
    batches = TokenBatches(order=Order(seed, len(lengths)), lengths=lengths, steps=steps)
    for epoch in (0, 1):
        cut = epoch_of(batches, epoch)
        assert all(cut)
        assert sorted(i for samples in cut for i in samples) == list(range(len(lengths)))


def test_samples_follow_the_order():
    """Cut by tokens, an epoch's samples are still those of the order, one step after the other."""
    lengths = lengths_of(5000)
    batches = token_batches(lengths, 1000)
    assert [i for samples in epoch_of(batches, 2) for i in samples] == batches.order.samples(2, 0, 5000).tolist()


def test_a_step_has_about_as_many_tokens_as_were_asked_for():
    """Each boundary lies within half of the longest sample of where it should be, in every window."""
    lengths = lengths_of(40_000)
    batches = token_batches(lengths, 4096)
    assert batches.steps_per_epoch == math.ceil(lengths.sum() / 4096) > 3 * 64
    tokens = np.array([lengths[samples].sum() for samples in epoch_of(batches, 0)])
    assert tokens.mean() == pytest.approx(4096, rel=1 / batches.steps_per_epoch)
    # Two boundaries, each off by half a sample; and a window, of 64 steps, has its own mean.
    deviation = 4 * lengths.std() / lengths.mean() / np.sqrt(40_000 / batches.steps_per_epoch * 64)
    assert np.abs(tokens - 4096).max() <= 4096 * deviation + lengths.max()


def test_where_a_step_is_asked_for_does_not_matter():
    """A step is a function of the seed and its number: any order of asking gives the same."""
    lengths = lengths_of(9000)
    whole = {step: token_batches(lengths, 700).samples(step)[1].tolist() for step in range(1000)}
    again = token_batches(lengths, 700)
    for step in np.random.Generator(np.random.PCG64(1)).permutation(1000).tolist():
        assert again.samples(step)[1].tolist() == whole[step]
    assert token_batches(lengths, 700, seed=4).samples(0)[1].tolist() != whole[0]


def test_weighted_sources_are_cut_by_tokens_too():
    """A mixture's epoch has the steps of its mean tokens, and each draw comes once."""
    lengths = np.concatenate((np.full(100, 10), np.full(500, 30)))
    order = MixedOrder(5, (Share(100, 100), Share(500, 300)))
    assert order.total(lengths) == 100 * 10 + 300 * 30
    batches = token_batches(lengths, 250, order)
    assert batches.steps_per_epoch == 40
    for epoch in range(3):
        cut = epoch_of(batches, epoch)
        assert [i for samples in cut for i in samples] == order.samples(epoch, 0, 400).tolist()
        assert max(abs(lengths[samples].sum() - 250) for samples in cut) <= 30


@pytest.mark.parametrize(
    ("tokens", "parts", "bounds"),
    [
        ([1, 1, 1, 1], 2, [0, 2, 4]),
        ([4, 1, 1, 2], 2, [0, 1, 4]),
        ([1, 2, 4, 1], 2, [0, 2, 4]),  # 3 is nearer to 4 than 7 is
        ([1, 1, 1, 97], 4, [0, 1, 2, 3, 4]),
        ([97, 1, 1, 1], 3, [0, 1, 2, 4]),
        ([1, 97, 1, 1], 2, [0, 2, 4]),  # 98 is nearer to 50 than 1 is
        ([5], 1, [0, 1]),
    ],
)
def test_a_row_is_cut_where_the_tokens_so_far_are_nearest(tokens, parts, bounds):
    """Boundaries are nearest to equal shares, and every part has a sample."""
    assert even_bounds(np.array(tokens), parts).tolist() == bounds


# --- about one length -------------------------------------------------------------------------------------------------


@given(size=st.integers(1, 700), batch=st.integers(1, 40), window=st.integers(1, 12), seed=st.integers(0, 5))
def test_an_epoch_by_length_holds_every_sample_once(size, batch, window, seed):
    """Grouping changes which step a sample comes in, and nothing else."""
    lengths = lengths_of(size, seed)
    batches = LengthBatches(order=Order(seed, size), size=batch, lengths=lengths, window=window, seed=seed)
    assert batches.steps_per_epoch == math.ceil(size / batch)
    for epoch in (0, 1):
        cut = epoch_of(batches, epoch)
        assert sorted(map(len, cut))[1:] == [batch] * (batches.steps_per_epoch - 1)
        assert sorted(i for samples in cut for i in samples) == list(range(size))


def test_samples_of_a_step_are_about_as_long():
    """In a window sorted by length the steps' ranges of lengths don't overlap, and their order is dealt anew."""
    lengths = lengths_of(4000)
    batches = LengthBatches(order=Order(1, 4000), size=20, lengths=lengths, window=50, seed=1)
    ranges = [(lengths[s].min(), lengths[s].max()) for s in epoch_of(batches, 0)[:50]]
    assert all(high <= low for (_, high), (low, _) in zip(sorted(ranges), sorted(ranges)[1:], strict=False))
    assert ranges != sorted(ranges)
    later = [(lengths[s].min(), lengths[s].max()) for s in epoch_of(batches, 0)[50:100]]
    assert np.argsort([low for low, _ in ranges]).tolist() != np.argsort([low for low, _ in later]).tolist()


def test_a_window_holds_the_samples_of_its_positions():
    """The first window of W batches of B has the samples at the first W · B positions."""
    lengths = lengths_of(1000)
    order = Order(1, 1000)
    batches = LengthBatches(order=order, size=10, lengths=lengths, window=8, seed=1)
    first = [i for samples in epoch_of(batches, 0)[:8] for i in samples]
    assert sorted(first) == sorted(order.samples(0, 0, 80).tolist())


# --- pieces -----------------------------------------------------------------------------------------------------------


def test_pieces_are_sorted_by_length_with_ties_by_position():
    """Inside a step samples are sorted by length, stably, then cut."""
    pieces = Cutting(micro_batch_size=2).pieces(np.array([7, 3, 7, 1, 3]))
    assert [piece.tolist() for piece in pieces] == [[3, 1], [4, 0], [2]]


def test_every_process_gets_as_many_pieces():
    """A process without a piece of its own gets an empty one."""
    cutting = Cutting(micro_batch_size=2, processes=4)
    assert [len(piece) for piece in cutting.pieces(np.array([1, 1, 1, 1, 1]))] == [2, 2, 1, 0]


@pytest.mark.parametrize(
    ("samples", "processes", "sizes"), [(5, 1, [5]), (5, 2, [3, 2]), (1, 2, [1, 0]), (4, 4, [1] * 4)]
)
def test_without_a_micro_batch_a_step_is_cut_for_the_processes_alone(samples, processes, sizes):
    """Each process computes its share at once."""
    cutting = Cutting(micro_batch_size=None, processes=processes)
    assert [len(piece) for piece in cutting.pieces(np.ones(samples, dtype=int))] == sizes
