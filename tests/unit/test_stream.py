"""Streams: every record once an epoch, shuffled in blocks, and resumed from any position."""

import itertools
from collections import Counter

import attrs
import numpy as np
import pytest

from rtx_core.batches import Cutting
from rtx_core.components import Data
from rtx_core.errors import DataError, PluginError
from rtx_core.samples import Record, Sample
from rtx_core.stream import Position, StreamSteps


@attrs.frozen(kw_only=True)
class Shards(Data):
    """Shards of numbered records; it counts how often each is read."""

    sizes: tuple
    read: Counter = attrs.field(factory=Counter)

    def shards(self):
        starts = [sum(self.sizes[:i]) for i in range(len(self.sizes))]
        return [Shard(start=start, size=size, read=self.read) for start, size in zip(starts, self.sizes, strict=True)]


@attrs.frozen(kw_only=True)
class Shard(Data):
    start: int
    size: int
    read: Counter

    def records(self):
        for number in range(self.start, self.start + self.size):
            self.read[number] += 1
            yield Record({"number": number}, "shard", number)


class Task:
    """A sample for each record: its number, as often as the remainder by three says and once more."""

    def __init__(self):
        self.encoded = []

    def samples(self, records, *, targets=True):
        for record in records:
            number = record.values["number"]
            self.encoded.append(number)
            size = number % 3 + 1
            none = np.zeros(0, np.int64)
            yield Sample(np.full(size, number, np.int32), np.zeros(size, np.uint8), none.astype(np.int32), none)

    def prepare(self, sample, seed):
        """Chance can be seen: it is the only target."""
        return attrs.evolve(sample, target_positions=np.zeros(1, np.int32), targets=np.array([seed], np.int64))


def stream(sizes=(5, 7, 3), **settings):
    defaults = {
        "source": Shards(sizes=tuple(sizes)),
        "task": Task(),
        "cutting": Cutting(micro_batch_size=2),
        "batch_size": 4,
        "window": 6,
        "packing": "none",
        "max_length": 8,
        "seed": 1,
    }
    return StreamSteps(**{**defaults, **settings})


def told(pieces):
    """All that a step would learn from."""
    return [(batch.input_ids.tolist(), batch.lengths, batch.targets.tolist()) for batch in pieces]


def steps(streamed, count, workers=0):
    return [told(pieces) for pieces in streamed.iterate(0, count, workers)]


def numbers(made):
    """The records of steps, in any order within each."""
    return [number for pieces in made for ids, lengths, _ in pieces for number in firsts(ids, lengths)]


def firsts(ids, lengths):
    starts = itertools.accumulate(lengths, initial=0)
    return [ids[start] for start, _ in zip(starts, lengths, strict=False)]


@pytest.mark.parametrize("window", [1, 6, 15, 1000])
def test_every_record_comes_once_an_epoch(window):
    """15 records, steps of 5: three steps are an epoch."""
    made = steps(stream(batch_size=5, window=window), 9)
    for epoch in range(3):
        assert sorted(numbers(made[3 * epoch : 3 * epoch + 3])) == list(range(15))


def test_epochs_follow_one_another_in_the_middle_of_a_step():
    """Steps of 4 of 15 records: every step is full, and 15 steps are 4 epochs."""
    made = steps(stream(), 15)
    assert [sum(len(lengths) for _, lengths, _ in pieces) for pieces in made] == [4] * 15
    assert Counter(numbers(made)) == dict.fromkeys(range(15), 4)


def test_records_are_shuffled_within_their_block_alone():
    """The records of an epoch's first block are those of the shards that come first in it."""
    made = numbers(steps(stream(sizes=(6,) * 10, batch_size=6, window=6), 10))
    blocks = [made[start : start + 6] for start in range(0, 60, 6)]
    assert all(sorted(block) == list(range(min(block), min(block) + 6)) for block in blocks)
    assert any(block != sorted(block) for block in blocks)
    assert [min(block) for block in blocks] != list(range(0, 60, 6))


def test_shards_and_blocks_come_in_another_order_each_epoch():
    """And with another seed."""
    first, second = (numbers(steps(stream(sizes=(6,) * 10, batch_size=60, seed=seed), 2)) for seed in (1, 2))
    orders = [tuple(made[start : start + 60]) for made in (first, second) for start in (0, 60)]
    assert len(set(orders)) == 4


def test_every_sample_of_the_stream_has_its_own_id():
    """So that a part that leaves one out leaves out no other, in this epoch or the next."""
    ids = [
        i for pieces in stream(batch_size=15).iterate(0, 3, 0) for batch in pieces for i in batch.sample_ids.tolist()
    ]
    assert len(set(ids)) == 45


def test_a_mask_is_another_in_each_epoch():
    """A sample's chance comes from the seed, the epoch and its place."""
    made = steps(stream(batch_size=15), 3)
    seeds = [seed for pieces in made for _, _, targets in pieces for seed in targets]
    assert len(set(seeds)) == 45


def test_memory_holds_a_block():
    """No more records are encoded than the steps so far need, up to the end of a block."""
    streamed = stream(sizes=(100,) * 10, window=10, batch_size=5)
    iterator = streamed.iterate(0, 100, 0)
    for _ in range(5):
        next(iterator)
    assert len(streamed.task.encoded) == 30
    assert sum(streamed.source.read.values()) <= 31


@pytest.mark.parametrize("packing", ["none", "best_fit", "concat"])
@pytest.mark.parametrize("workers", [0, 1])
def test_it_goes_on_from_every_position(packing, workers):
    """In the middle of a block, at its end, and in the middle of an epoch: what follows is the same to the bit."""
    settings = {"packing": packing, "batch_size": 2}
    whole = steps(stream(**settings), 30)
    for done in range(1, 29):
        begun = stream(**settings)
        list(begun.iterate(0, done, workers))
        resumed = stream(**settings)
        resumed.load_state_dict(begun.state_dict())
        assert [told(pieces) for pieces in resumed.iterate(done, 30, workers)] == whole[done:]


def test_what_was_done_is_read_but_not_encoded():
    """A resume in the fourth block encodes none of the three before it."""
    begun = stream(sizes=(100,), window=10, batch_size=5)
    list(begun.iterate(0, 7, 0))
    assert begun.state_dict() == {"epoch": 0, "block": 3, "sample": 5}
    resumed = stream(sizes=(100,), window=10, batch_size=5)
    resumed.load_state_dict(begun.state_dict())
    next(resumed.iterate(7, 8, 0))
    assert len(resumed.task.encoded) == 10
    assert sum(resumed.source.read.values()) in (40, 41)


def test_a_thread_changes_nothing():
    """The next block is encoded while this one is learnt; the position is that of the steps that were handed out."""
    plain, threaded = stream(), stream()
    assert steps(plain, 12) == steps(threaded, 12, workers=3)
    assert plain.state_dict() == threaded.state_dict()


def test_the_end_of_a_run_ends_the_thread():
    """Also where the loop stops early."""
    import threading

    for pieces in stream(sizes=(10_000,)).iterate(0, 1000, 1):
        assert pieces
        break
    assert not [thread for thread in threading.enumerate() if thread.name == "ahead"]


def test_each_process_has_its_pieces():
    """Two processes with two pieces of two each: together the step of one process."""
    alone = steps(stream(batch_size=8), 3)
    each = [
        steps(stream(batch_size=8, cutting=Cutting(micro_batch_size=2, processes=2), rank=rank), 3) for rank in (0, 1)
    ]
    dealt = [[one[i // 2] if i % 2 == 0 else two[i // 2] for i in range(4)] for one, two in zip(*each, strict=True)]
    assert dealt == alone


@pytest.mark.parametrize("packing", ["best_fit", "concat"])
def test_blocks_are_packed(packing):
    """Samples of about ``max_length`` tokens, with every record of the block in one of them."""
    made = steps(stream(sizes=(30,), window=30, packing=packing, batch_size=1), 8)
    tokens = [sum(map(len, (ids for ids, _, _ in pieces))) for pieces in made]
    assert max(tokens) <= 8
    assert sum(tokens) == 60
    assert all(len(lengths) > 1 for pieces in made for _, lengths, _ in pieces)
    assert Counter(i for pieces in made for ids, _, _ in pieces for i in ids) == {i: i % 3 + 1 for i in range(30)}


def test_the_epoch_is_how_often_all_was_seen():
    """A whole number: how many records there are isn't known."""
    streamed = stream(batch_size=5)
    epochs = [streamed.epoch for _ in streamed.iterate(0, 7, 0)]
    assert epochs == [0, 0, 0, 1, 1, 1, 2]


def test_a_stream_without_samples_is_refused():
    """Instead of reading it for ever."""
    with pytest.raises(DataError, match=r"^data\.train: the stream gives no sample$"):
        next(stream(sizes=()).iterate(0, 1, 0))


def test_an_error_in_a_shard_comes_when_it_is_reached():
    """With a thread too, and after the steps before it."""

    class Broken(Shards):
        def shards(self):
            return [BrokenShard(start=0, size=10, read=self.read)]

    class BrokenShard(Shard):
        def records(self):
            yield from super().records()
            raise DataError("shard", 11, "bad")

    for workers in (0, 1):
        iterator = stream(source=Broken(sizes=())).iterate(0, 9, workers)
        assert [len(told(next(iterator))) for _ in range(2)] == [2, 2]
        with pytest.raises(DataError, match="^shard:11: bad$"):
            next(iterator)


def test_a_place_that_is_none_is_refused():
    """A state of another version."""
    with pytest.raises(PluginError, match=r"no place: \['row'\]"):
        stream().load_state_dict({"row": 3})
    assert stream().position == Position()
