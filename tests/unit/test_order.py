"""The order of samples and the cutting of a step."""

from itertools import starmap

import numpy as np
import pytest
from scipy import stats

from rtx_core.order import Cutting, MixedOrder, Order, Share, shares


@pytest.mark.parametrize("size", [1, 2, 5, 100, 65_535, 65_536, 65_537, 100_003])
def test_an_epoch_holds_every_sample_once(size):
    """π is a permutation, below and above the size from which it is computed instead of stored."""
    samples = Order(3, size).samples(0, 0, size)
    assert np.array_equal(np.sort(samples), np.arange(size))


@pytest.mark.parametrize("size", [1000, 70_000])
def test_positions_can_be_asked_for_in_any_pieces(size):
    """Position p is sample π(p), however many positions are asked for at once."""
    order = Order(7, size)
    whole = order.samples(2, 0, size)
    start = size - 333
    assert np.array_equal(order.samples(2, start, size), whole[start:])
    assert [int(order.samples(2, p, p + 1)[0]) for p in range(20)] == whole[:20].tolist()


@pytest.mark.parametrize("size", [1000, 70_000])
def test_another_epoch_or_seed_gives_another_order(size):
    """The order is a function of both seed and epoch."""
    first = Order(0, size).samples(0, 0, size)
    assert not np.array_equal(first, Order(0, size).samples(1, 0, size))
    assert not np.array_equal(first, Order(1, size).samples(0, 0, size))


@pytest.mark.parametrize("size", [5, 100, 65_537])
def test_where_a_sample_lands_is_uniform(size):
    """The position of one sample over many epochs is uniform (chi-square, p > 1e-4)."""
    cells = min(size, 50)
    watched = [0, size // 2, size - 1]
    counts = np.zeros((len(watched), cells))
    epochs = 60 if size > 1000 else 3000
    for epoch in range(epochs):
        samples = Order(11, size).samples(epoch, 0, size)
        places = np.argsort(samples)[watched]
        counts[np.arange(len(watched)), places * cells // size] += 1
    if size > 1000:
        # Few epochs of a large permutation: pool many samples instead.
        counts = np.zeros((1, cells))
        for epoch in range(20):
            places = np.argsort(Order(11, size).samples(epoch, 0, size))[::64]
            counts += np.bincount(places * cells // size, minlength=cells)
        # Cells of a range that 50 doesn't divide differ in size.
        sizes = np.bincount(np.arange(size) * cells // size, minlength=cells)
        expected = counts.sum() * sizes / size
        assert stats.chisquare(counts[0], expected).pvalue > 1e-4
        return
    for row in counts:
        assert stats.chisquare(row).pvalue > 1e-4


@pytest.mark.parametrize("size", [5, 100, 65_537])
def test_neighbours_are_scattered(size):
    """Samples that are neighbours in the file are not neighbours in the epoch more often than by chance."""
    pairs, close = 0, 0
    for epoch in range(2000 if size < 1000 else 4):
        places = np.argsort(Order(5, size).samples(epoch, 0, size))
        distance = np.abs(np.diff(places))
        close += int((distance == 1).sum())
        pairs += size - 1
    expected = 2 / size
    deviation = np.sqrt(expected * (1 - expected) * pairs)
    assert abs(close - expected * pairs) < 6 * deviation


def test_the_last_step_of_an_epoch_may_be_short():
    """Case 3: 9 records in batches of 4 are steps of 4, 4 and 1, and every record comes once an epoch."""
    cutting = Cutting(samples=9, batch_size=4, micro_batch_size=2)
    assert cutting.steps_per_epoch == 3
    spans = [cutting.positions(step) for step in range(6)]
    assert spans == [(0, 0, 4), (0, 4, 8), (0, 8, 9), (1, 0, 4), (1, 4, 8), (1, 8, 9)]


def test_pieces_are_sorted_by_length_with_ties_by_position():
    """Inside a step samples are sorted by length, stably, then cut."""
    cutting = Cutting(samples=5, batch_size=5, micro_batch_size=2)
    pieces = cutting.pieces(np.array([7, 3, 7, 1, 3]))
    assert [piece.tolist() for piece in pieces] == [[3, 1], [4, 0], [2]]


def test_every_process_gets_as_many_pieces():
    """A process without a piece of its own gets an empty one."""
    cutting = Cutting(samples=5, batch_size=5, micro_batch_size=2, processes=4)
    assert [len(piece) for piece in cutting.pieces(np.array([1, 1, 1, 1, 1]))] == [2, 2, 1, 0]


# --- several sources --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "weights", "drawn"),
    [
        ((4, 20), (1, 3), (4, 12)),
        ((20, 20), (1, 3), (7, 20)),  # 6 2/3 is rounded up
        ((10, 30), (1, 3), (10, 30)),
        ((10, 7), (1, 1), (7, 7)),
        ((3, 1000, 50), (0.1, 0.2, 0.7), (3, 6, 21)),  # 0.1 is a tenth, not the nearest float
        ((10,), (5,), (10,)),
        ((1000, 1), (1e-9, 1.0), (1, 1)),
    ],
)
def test_an_epoch_ends_when_a_source_is_used_up(sizes, weights, drawn):
    """Each source gives its share by weight, so that no share is larger than its source and one is as large."""
    assert tuple(share.drawn for share in shares(sizes, weights)) == drawn


@pytest.mark.parametrize(("sizes", "drawn"), [((4, 20), (4, 12)), ((70_000, 100_000), (70_000, 30_000)), ((5,), (5,))])
def test_an_epoch_takes_its_share_of_each_source(sizes, drawn):
    """Ids are those of the sources end to end; the source that is used up comes whole."""
    order = MixedOrder(3, tuple(starmap(Share, zip(sizes, drawn, strict=True))))
    ends = np.cumsum(sizes)
    for epoch in range(3):
        samples = order.samples(epoch, 0, order.size)
        counts = np.bincount(np.searchsorted(ends, samples, side="right"), minlength=len(sizes))
        assert counts.tolist() == list(drawn)
        whole = int(np.argmax(np.equal(sizes, drawn)))
        own = samples[(samples >= ends[whole] - sizes[whole]) & (samples < ends[whole])]
        assert np.array_equal(np.sort(own), np.arange(ends[whole] - sizes[whole], ends[whole]))


@pytest.mark.parametrize(("size", "drawn"), [(20, 12), (21, 1), (70_000, 40_000)])
def test_no_sample_comes_again_before_all_have_come(size, drawn):
    """Over the epochs a source is gone through in passes, also where they end within an epoch."""
    order = MixedOrder(5, (Share(drawn, drawn), Share(size, drawn)))
    epochs = 3 * size // drawn
    counts = np.zeros(size, dtype=int)
    for epoch in range(epochs):
        samples = order.samples(epoch, 0, order.size)
        counts += np.bincount(samples[samples >= drawn] - drawn, minlength=size)
        assert counts.max() - counts.min() <= 1
    assert counts.sum() == epochs * drawn


@pytest.mark.parametrize("size", [1000, 70_000])
def test_a_mixture_can_be_asked_for_in_any_pieces(size):
    """Its order too is a pure function of seed, epoch and position."""
    order = MixedOrder(7, (Share(size, size), Share(2 * size, size // 2)))
    whole = order.samples(2, 0, order.size)
    assert np.array_equal(order.samples(2, 333, 777), whole[333:777])
    assert not np.array_equal(order.samples(3, 0, order.size), whole)
    assert not np.array_equal(MixedOrder(8, order.sources).samples(2, 0, order.size), whole)


def test_sources_are_mixed():
    """Where the samples of one source stand in an epoch is uniform (chi-square, p > 1e-4)."""
    order = MixedOrder(11, (Share(100, 100), Share(500, 300)))
    counts = sum(np.add.reduceat(order.samples(epoch, 0, 400) < 100, np.arange(0, 400, 40)) for epoch in range(300))
    assert stats.chisquare(counts).pvalue > 1e-4
