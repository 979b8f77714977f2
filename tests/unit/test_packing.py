"""Packed samples: every token once, documents apart, bins full."""

from collections import Counter

import attrs
import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from rtx_core import Sample
from rtx_core.packing import best_fit_decreasing, documents, packed
from rtx_core.store import SampleStore
from rtx_plugins.architectures.bert import Bert
from rtx_plugins.tasks.masked_lm import MaskedLm

CAPACITY = 16


def document(number, length):
    """A document whose tokens tell which one it is and where they stand in it."""
    tokens = (100 * number + np.arange(length)).astype(np.int32)
    return Sample(tokens, (tokens % 2).astype(np.uint8), np.array([], np.int32), np.array([], np.int64))


def store_of(lengths):
    return SampleStore([document(number, length) for number, length in enumerate(lengths)])


def sequences_of(sample):
    """The tokens of each sequence of a sample."""
    return [part.tolist() for part in np.split(sample.input_ids, np.cumsum(sample.sequence_lengths)[:-1])]


lengths_of_documents = st.lists(st.integers(1, CAPACITY), min_size=1, max_size=60)


# --- best fit ---------------------------------------------------------------------------------------------------------


def naive(lengths, capacity):
    """Best-fit decreasing as the textbook has it: look at every bin."""
    room, count = [], 0
    for length in sorted(lengths, reverse=True):
        fitting = [place for place, free in enumerate(room) if free >= length]
        if not fitting:
            room.append(capacity)
            count += 1
            fitting = [count - 1]
        room[min(fitting, key=room.__getitem__)] -= length
    return room


@given(st.lists(st.integers(1, 40), max_size=80))
def test_bins_are_those_of_best_fit_decreasing(lengths):
    """As many bins, with as much room left, as when every bin is looked at for each document."""
    bins = best_fit_decreasing(np.array(lengths, dtype=np.int64), 40)
    filled = np.bincount(bins, weights=lengths) if lengths else np.array([])
    assert sorted(40 - filled) == sorted(naive(lengths, 40))


def test_a_document_that_fits_exactly_fills_a_bin():
    """7 + 3, 6 + 4 and 5 + 5 of 10 are three full bins."""
    bins = best_fit_decreasing(np.array([5, 3, 6, 4, 7, 5]), 10)
    assert np.bincount(bins, weights=[5, 3, 6, 4, 7, 5]).tolist() == [10, 10, 10]


def test_a_document_that_is_too_long_stands_alone():
    """Nothing is cut, and nothing is put beside it."""
    bins = best_fit_decreasing(np.array([12, 1, 9]), 10)
    assert sorted(Counter(bins.tolist()).values()) == [1, 2]
    assert bins[1] == bins[2]


@settings(max_examples=40)
@given(lengths_of_documents)
def test_best_fit_holds_every_document_whole(lengths):
    """Each document once, as a sequence of its own, and no sample longer than the capacity."""
    store, sizes = packed(store_of(lengths), [len(lengths)], "best_fit", CAPACITY)
    samples = [store[i] for i in range(len(store))]
    assert sizes == [len(samples)]
    assert [len(sample.input_ids) for sample in samples] == store.lengths.tolist()
    assert store.lengths.max() <= CAPACITY
    found = sorted(sequence for sample in samples for sequence in sequences_of(sample))
    assert found == [document(number, length).input_ids.tolist() for number, length in enumerate(lengths)]


def test_texts_of_usual_lengths_fill_almost_all():
    """Of lengths as in a corpus, cut at 512, at least 99 % of each bin is used, also over several windows."""
    lengths = np.minimum(np.random.Generator(np.random.PCG64(0)).lognormal(5, 1, 25_000).astype(int) + 2, 512)
    filled = []
    for first in range(0, len(lengths), 10_000):
        part = lengths[first : first + 10_000]
        filled += np.bincount(best_fit_decreasing(part, 512), weights=part).tolist()
    assert np.mean(filled) / 512 > 0.99


# --- end to end -------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(lengths_of_documents)
def test_concatenation_cuts_every_so_many_tokens(lengths):
    """The samples' tokens end to end are the documents', each sample is full but the last, and documents stay apart."""
    store, sizes = packed(store_of(lengths), [len(lengths)], "concat", CAPACITY)
    assert sizes == [len(store)] == [-(-sum(lengths) // CAPACITY)]
    assert (store.lengths[:-1] == CAPACITY).all()
    samples = [store[i] for i in range(len(store))]
    tokens = [t for number, length in enumerate(lengths) for t in document(number, length).input_ids.tolist()]
    assert [t for sample in samples for t in sample.input_ids.tolist()] == tokens
    for sample in samples:
        numbers = [{token // 100 for token in sequence} for sequence in sequences_of(sample)]
        assert all(len(one) == 1 for one in numbers)  # no sequence has tokens of two documents
        assert [min(one) for one in numbers] == sorted({min(one) for one in numbers})  # no document is two sequences


def test_a_document_that_is_cut_goes_on_in_the_next_sample():
    """10 and 10 tokens at 16 a sample: 10 and 6, then 4, whose positions begin anew."""
    store, _ = packed(store_of([10, 10]), [2], "concat", 16)
    assert [store[i].sequence_lengths for i in range(2)] == [(10, 6), (4,)]
    batch = store.batches([np.array([1, 0])])[0]
    assert batch.lengths == (4, 10, 6)
    assert batch.positions.tolist() == [*range(4), *range(10), *range(6)]
    assert batch.sample_ids.tolist() == [1, 0, 0]


# --- both -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packing", ["best_fit", "concat"])
def test_no_sample_has_documents_of_two_sources(packing):
    """Sources of 2 and 3 documents are packed by themselves, and each says how many samples it has."""
    store, sizes = packed(store_of([5, 5, 5, 7, 2]), [2, 3], packing, CAPACITY)
    assert sizes == [1, 1]
    assert [sorted({token // 100 for token in store[i].input_ids.tolist()}) for i in range(2)] == [[0, 1], [2, 3, 4]]
    assert store.tokens == 24
    assert store.fill == pytest.approx(24 / 32)
    assert documents(store) is store.base
    assert documents(store.base) is store.base


@pytest.mark.parametrize("packing", ["best_fit", "concat"])
def test_an_empty_source_has_no_sample(packing):
    """A source of which nothing is left for training gives none, and disturbs no other."""
    store, sizes = packed(store_of([5, 5]), [0, 2, 0], packing, CAPACITY)
    assert sizes == [0, 1, 0]
    assert len(store) == 1


@pytest.mark.parametrize("packing", ["best_fit", "concat"])
def test_samples_of_several_sequences_keep_them(packing):
    """A document that is several sequences itself stays so, whole or cut."""
    pair = attrs.evolve(document(1, 10), lengths=(4, 6))
    store, _ = packed(SampleStore([pair, document(2, 4)]), [2], packing, 7)
    lengths = {"best_fit": [(4, 6), (4,)], "concat": [(4, 3), (3, 4)]}[packing]
    assert [store[i].sequence_lengths for i in range(2)] == lengths


@pytest.mark.parametrize("packing", ["best_fit", "concat"])
def test_a_packed_sample_is_masked_as_one(packing):
    """With every token to be predicted, the targets are the ordinary tokens in order and the rest is as it was."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}))
    tokenizer.add_special_tokens(words[:5])
    task = MaskedLm(mask_probability=1.0)
    outputs, special_tokens = task.outputs([], len(words)), Bert().special_tokens
    part = task.build(tokenizer, outputs, max_length=CAPACITY, special_tokens=special_tokens)
    ids = [[2, 5, 6, 3], [2, 7, 3], [2, 5, 5, 7, 3]]
    store = SampleStore([attrs.evolve(document(0, len(row)), input_ids=np.array(row, np.int32)) for row in ids])
    view, _ = packed(store, [3], packing, CAPACITY)
    (sample,) = (view[i] for i in range(len(view)))
    masked = part.prepare(sample, 1)
    assert masked.sequence_lengths == sample.sequence_lengths
    assert sorted(sample.sequence_lengths) == [3, 4, 5]
    ordinary = np.flatnonzero(sample.input_ids >= 5)
    assert masked.target_positions.tolist() == ordinary.tolist()
    assert masked.targets.tolist() == sample.input_ids[ordinary].tolist()
