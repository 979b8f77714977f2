"""Encoded samples in files: what comes back is what was written, in little memory."""

import contextlib
import json

import attrs
import numpy as np
import pyarrow as pa
import pytest

from rtx_core.errors import DataError, PluginError
from rtx_core.samples import Batch, Sample
from rtx_core.store import SampleStore, StoreWriter


def sample(ids, targets, *, types=None, positions=None, lengths=()):
    return Sample(
        input_ids=np.array(ids, np.int32),
        token_types=np.zeros(len(ids), np.uint8) if types is None else np.array(types, np.uint8),
        target_positions=np.arange(len(targets), dtype=np.int32)
        if positions is None
        else np.array(positions, np.int32),
        targets=targets,
        lengths=lengths,
    )


def classes(*values):
    return np.array(values, np.int64)


KINDS = {
    "classes": [sample([1, 2, 3], classes(5)), sample([4], classes(-100))],
    "no targets": [sample([1, 2], classes()), sample([3, 4, 5], classes())],
    "some without targets": [sample([1, 2], classes()), sample([3, 4, 5], classes(1, 0, 2))],
    "labels": [sample([1, 2], np.array([[0, 1, 1]], np.float32)), sample([9], np.array([[1, 0, np.nan]], np.float32))],
    "triples": [sample([7, 8], np.array([[0, 1, -1], [2**40, 1, 0]]), positions=[1, 1])],
    "token types": [sample([1, 2, 3], classes(1), types=[0, 0, 1]), sample([1], classes(0))],
    "windows": [sample([1, 2, 3], classes(1, 0), lengths=(1, 2)), sample([4, 5], classes(0))],
    "large ids": [sample([0, 70_000], classes(1))],
    "no token": [sample([], classes()), sample([3], classes(1))],
}


def written(folder, *lists, **about):
    """The file of samples that came in these lists."""
    folder.mkdir()
    with contextlib.closing(StoreWriter(folder)) as writer:
        for samples in lists:
            writer.add(samples)
        return writer.finish(about)


def equal(ours, theirs):
    return (
        all(
            np.array_equal(getattr(ours, name), getattr(theirs, name), equal_nan=name == "targets")
            and getattr(ours, name).dtype == getattr(theirs, name).dtype
            for name in ("input_ids", "token_types", "target_positions", "targets")
        )
        and ours.lengths == theirs.lengths
    )


@pytest.fixture(params=KINDS, ids=lambda name: name.replace(" ", "_"))
def samples(request):
    return KINDS[request.param]


@pytest.fixture(params=["in memory", "from a file", "from a file, one by one"])
def store(request, samples, tmp_path):
    if request.param == "in memory":
        return SampleStore(samples)
    lists = [samples] if request.param == "from a file" else [[one] for one in samples]
    return SampleStore.open(written(tmp_path / "store", *lists))


def test_samples_come_back_as_they_were(store, samples):
    """Every array, its type, and the lengths of its sequences."""
    assert len(store) == len(samples)
    assert all(equal(store[i], one) for i, one in enumerate(samples))


def test_lengths_and_tokens_are_those_of_the_samples(store, samples):
    """And the flat arrays hold them end to end."""
    lengths = [len(one.input_ids) for one in samples]
    assert store.lengths.tolist() == lengths
    assert store.lengths.dtype == np.int64
    assert store.tokens == sum(lengths)
    assert store.input_ids.values.tolist() == [i for one in samples for i in one.input_ids]
    assert store.input_ids.bounds[:-1].tolist() == np.cumsum([0, *lengths[:-1]]).tolist()


def test_batches_are_those_of_the_samples(store, samples):
    """In any order, a sample also more than once, and a batch without any: as packing the samples one by one."""
    every = list(range(len(samples)))
    many = [np.array(ids, np.int64) for ids in ([0, *reversed(every)], [], every[1:], every, [])]
    for ids, ours in zip(many, store.batches(many), strict=True):
        theirs = Batch.of([samples[i] for i in ids], ids.tolist())
        assert len(ours.sample_ids) == len(ours.lengths)
        if not len(ids):
            assert (ours.lengths, ours.cu_seqlens.tolist(), ours.input_ids.tolist()) == ((), [0], [])
            continue
        for field in attrs.fields(Batch):
            mine, other = getattr(ours, field.name), getattr(theirs, field.name)
            if hasattr(mine, "dtype"):
                assert mine.dtype == other.dtype
                np.testing.assert_array_equal(mine.numpy(), other.numpy())
            else:
                assert mine == other


def test_numbers_to_learn_lie_where_they_would_alone():
    """A kernel may sum in another order from an odd address, and a resumed run begins with another batch."""
    targets = [np.array([[float(i), 0.5, 1.5]], np.float32) for i in range(4)]
    store = SampleStore([sample([1], one) for one in targets])
    for batch in store.batches([np.array([i]) for i in range(4)]):
        assert batch.targets.storage_offset() == 0


@pytest.mark.parametrize(
    ("largest", "stored"), [(255, "uint8"), (256, "uint16"), (65_535, "uint16"), (65_536, "uint32")]
)
def test_ids_take_no_more_room_than_they_need(largest, stored, tmp_path):
    """The smallest unsigned integers that hold the largest; columns of nothing but zeros are left out."""
    file = written(tmp_path / "store", [sample([0, largest], classes(0))])
    with pa.memory_map(str(file)) as source:
        schema = pa.ipc.open_file(source).schema
    assert str(schema.field("input_ids").type) == f"large_list<item: {stored}>"
    assert schema.names == ["input_ids", "target_positions", "targets"]


def test_any_reader_of_arrow_can_read_it(tmp_path):
    """One record batch with a row for each sample, and what stands beside them as JSON."""
    file = written(tmp_path / "store", KINDS["labels"], notes=["a note"])
    with pa.memory_map(str(file)) as source:
        table = pa.ipc.open_file(source).read_all()
    assert table.column("input_ids").to_pylist() == [[1, 2], [9]]
    assert table.column("targets").to_pylist()[0] == [[0.0, 1.0, 1.0]]
    assert json.loads(table.schema.metadata[b"rtx"])["notes"] == ["a note"]
    assert SampleStore.open(file).about == {"notes": ["a note"]}


def test_targets_of_two_types_are_the_plugins_mistake(tmp_path):
    """Numbers after classes can't be kept in one column."""
    lists = [[sample([1], classes(1))], [sample([1], np.ones(1, np.float32))]]
    with pytest.raises(PluginError, match="task: targets of its samples differ in type or shape"):
        written(tmp_path / "store", *lists)


def test_a_negative_token_is_the_plugins_mistake(tmp_path):
    """It would become a large one."""
    with pytest.raises(PluginError, match="task: a sample holds a negative token id"):
        written(tmp_path / "store", [sample([-1, 3], classes(1))])


@pytest.mark.parametrize("size", [0, 1, 100, -1])
def test_a_cut_file_is_noticed(size, tmp_path):
    """Whatever is missing at its end."""
    file = written(tmp_path / "store", KINDS["classes"])
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(DataError, match=r"samples\.arrow: damaged: "):
        SampleStore.open(file)


def test_bounds_that_lead_nowhere_are_noticed(tmp_path):
    """Zeros where a lost block of the disk was: the bounds of rows no longer rise to their end."""
    many = [sample([1, 2, 3], classes(5))] * 100
    file = written(tmp_path / "store", many)
    content = file.read_bytes()
    bounds = np.arange(0, 303, 3, dtype=np.int64).tobytes()
    assert content.count(bounds) == 1
    file.write_bytes(content.replace(bounds, bytes(len(bounds))))
    with pytest.raises(DataError, match="damaged"):
        SampleStore.open(file)
