"""Which samples an epoch has, and in which order."""

from itertools import starmap

import numpy as np
import pytest
from scipy import stats

from rtx_core.order import BalancedOrder, MixedOrder, Order, Share, shares


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


# --- every label equally often ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [(5, 1), (90, 9, 1), (3, 3, 3), (70_000, 10, 500)])
def test_an_epoch_has_every_label_equally_often(counts):
    """As many samples as there are, rounded up to a multiple of the labels, of each label the same number."""
    labels = np.random.Generator(np.random.PCG64(0)).permutation(np.repeat(np.arange(len(counts)), counts))
    order = BalancedOrder.of(3, labels, len(counts))
    each = -(-sum(counts) // len(counts))
    assert order.size == each * len(counts)
    for epoch in range(2):
        samples = order.samples(epoch, 0, order.size)
        assert np.bincount(labels[samples]).tolist() == [each] * len(counts)
    assert np.array_equal(order.samples(1, 3, 5), samples[3:5])


def test_every_label_is_gone_through_in_turn():
    """No sample comes again before all of its label have come, within an epoch and from one to the next."""
    labels = np.repeat([0, 1], [20, 7])
    order = BalancedOrder.of(5, labels, 2)  # 14 of each in an epoch
    counts = np.zeros(27, dtype=int)
    for epoch in range(10):
        counts += np.bincount(order.samples(epoch, 0, order.size), minlength=27)
        assert counts[:20].max() - counts[:20].min() <= 1
        assert counts[20:].tolist() == [2 * (epoch + 1)] * 7
    assert counts[:20].tolist() == [7] * 20


def test_tokens_of_a_balanced_epoch_are_those_of_its_draws():
    """Of a label that is drawn twice as often as it has samples, twice its tokens."""
    labels = np.array([0, 1, 0, 0, 0, 0])
    assert BalancedOrder.of(0, labels, 2).total(np.array([2, 7, 2, 2, 2, 2])) == 3 * 2 + 3 * 7


def test_labels_are_mixed():
    """Where the samples of a label stand in an epoch is uniform (chi-square, p > 1e-4)."""
    labels = np.repeat([0, 1], [300, 100])
    order = BalancedOrder.of(11, labels, 2)
    counts = sum(np.add.reduceat(labels[order.samples(epoch, 0, 400)], np.arange(0, 400, 40)) for epoch in range(300))
    assert stats.chisquare(counts).pvalue > 1e-4
