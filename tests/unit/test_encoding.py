"""Records become samples in order, with errors where they belong, while the next are read."""

import threading
import time

import numpy as np
import pytest
import tokenizers

from rtx_core import Task
from rtx_core.console import Console
from rtx_core.encoding import SetEncoding, ahead, in_lists, rows_needed
from rtx_core.errors import DataError
from rtx_core.lint import Survey, Surveyor
from rtx_core.samples import Record, Sample


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "ahead"]


# --- ahead ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 3, 100])
def test_items_come_in_order(depth):
    """All of them, also ones that mean nothing."""
    items = [*range(50), None, (), StopIteration]
    assert list(ahead(iter(items), depth)) == items
    assert threads() == []


def test_the_maker_is_no_further_ahead_than_it_may():
    """One more is in its hands."""
    made = []
    iterator = ahead((made.append(i) for i in range(100)), 2)
    next(iterator)
    time.sleep(0.1)
    assert len(made) <= 4
    iterator.close()
    assert threads() == []


def test_an_error_comes_where_its_item_would():
    """After all items before it, as the same exception."""

    def items():
        yield 1
        yield 2
        raise DataError("f", 3, "bad")

    iterator = ahead(items(), 10)
    assert [next(iterator), next(iterator)] == [1, 2]
    with pytest.raises(DataError, match="^f:3: bad$"):
        next(iterator)
    assert threads() == []


def test_an_error_of_the_consumer_ends_the_thread():
    """Nobody wants what it makes."""
    with pytest.raises(ZeroDivisionError):
        sum(1 // (3 - item) for item in ahead(range(10**9), 2))
    assert threads() == []


def test_an_interrupt_ends_the_thread(monkeypatch):
    """Ctrl-C while it waits for the next item."""
    iterator = ahead(range(10**9), 1)
    next(iterator)
    with pytest.raises(KeyboardInterrupt):
        iterator.throw(KeyboardInterrupt)
    assert threads() == []


# --- lists ------------------------------------------------------------------------------------------------------------


def test_lists_have_so_many_items():
    """The last one what is left."""
    assert [len(some) for some in in_lists(range(25), 10)] == [10, 10, 5]
    assert list(in_lists([], 10)) == []


def test_lists_of_large_items_are_short():
    """A million in all, of whatever an item has."""
    assert [len(some) for some in in_lists([400_000] * 7, 10, size=int)] == [3, 3, 1]


def test_items_before_an_error_come_first():
    """What is wrong with one of them is found before."""

    def items():
        yield from range(12)
        raise ValueError("the thirteenth")

    lists = in_lists(items(), 10)
    assert next(lists) == list(range(10))
    assert next(lists) == [10, 11]
    with pytest.raises(ValueError, match="the thirteenth"):
        next(lists)


# --- sets -------------------------------------------------------------------------------------------------------------


class Lengths:
    """A task whose samples are as long as the record says; it refuses a negative one."""

    def __init__(self):
        self.seen = 0

    def samples(self, records, *, targets=True):
        for record in records:
            self.seen += 1
            length = record.values["length"]
            if length < 0:
                raise DataError(record.file, record.line, "negative")
            for _ in range(record.values.get("times", 1)):
                none = np.zeros(0, np.int64)
                yield Sample(np.zeros(length, np.int32), np.zeros(length, np.uint8), none.astype(np.int32), none)

    def notes(self):
        seen, self.seen = self.seen, 0
        return [f"{seen} seen"] if seen else []


def records(*lengths, file="f", times=1, fails=None):
    for line, length in enumerate(lengths, start=1):
        yield Record({"length": length, "times": times}, file, line)
    if fails is not None:
        raise fails


class Again:
    """An iterable that begins anew each time."""

    def __init__(self, make):
        self.make = make

    def __iter__(self):
        return self.make()


class Texts(Task):
    """A task whose records have a length, and that as their text."""

    def texts(self, record):
        yield str(record.values["length"])


def encoding(*sources):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}))

    def surveyor():
        return Surveyor(Texts(), tokenizer, unknown="[UNK]", max_length=5)

    return SetEncoding(Lengths(), [Again(make) for make in sources], "training", Console(quiet=True), surveyor)


def lengths(made):
    return [len(sample.input_ids) for samples in made for sample in samples]


def test_a_set_is_encoded_source_after_source():
    """With how many records there were, how many samples each source gave, and the task's notes."""
    made = encoding(lambda: records(1, 2, 3), lambda: records(4, 5, times=2))
    for _ in range(2):  # it begins anew each time, with counts and notes of its own
        assert lengths(made) == [1, 2, 3, 4, 4, 5, 5]
        about = made.about()
        assert (about["sources"], about["notes"]) == ([3, 4], ["5 seen"])
        survey = Survey.from_json(about["survey"])
        assert (survey.records, survey.samples, survey.tokens, survey.full) == (5, 7, 24, 2)


def test_a_bad_record_is_reported_before_a_bad_file():
    """Line 2 is the task's to refuse, line 4 the reader's: the first in the file comes first, though both were read."""
    made = encoding(lambda: records(1, -1, 3, fails=DataError("f", 4, "not JSON")))
    with pytest.raises(DataError, match="^f:2: negative$"):
        lengths(made)
    assert threads() == []


def test_a_set_without_samples_is_refused():
    """With the file of its first record, if it has one."""
    with pytest.raises(DataError, match=r"^f: gives no sample for training$"):
        lengths(encoding(lambda: records(1, 2, times=0)))
    with pytest.raises(DataError, match=r"^training: gives no sample for training$"):
        lengths(encoding(records))


def test_a_vocabulary_with_gaps_needs_a_row_for_its_highest_number():
    """A line that stands twice in vocab.txt has the number of the second; that of the first is nobody's."""
    model = tokenizers.models.WordLevel({"a": 2, "b": 5})
    assert rows_needed(tokenizers.Tokenizer(model)) == 6
