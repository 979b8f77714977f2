"""The split of the training records."""

from collections import Counter

import pytest

from rtx_core.config.pipeline import Split
from rtx_core.errors import InputError
from rtx_core.reading import divide
from rtx_core.samples import Record


def records(n, labels=3):
    return [Record({"text": f"text {i}", "label": str(i % labels)}, "f", i + 1) for i in range(n)]


def label(record):
    return record.values["label"]


def split(sources, settings, *, seed, stratum):
    """The training records of each source, and the evaluation and test records of all."""
    sides = divide(sources, settings, seed=seed, stratum=stratum if settings.stratify else None)
    trains = [[row for row, side in zip(*pair, strict=True) if side == 0] for pair in zip(sources, sides, strict=True)]
    rows = [
        pair for source, of_source in zip(sources, sides, strict=True) for pair in zip(source, of_source, strict=True)
    ]
    return trains, [row for row, side in rows if side == 1], [row for row, side in rows if side == 2]


def split_one(rows, settings, **options):
    """The split of a single source."""
    (train,), evals, test = split([rows], settings, **options)
    return train, evals, test


def texts(part):
    return {record.values["text"] for record in part}


def test_shares_are_exact():
    """20 % and 10 % of 100 records."""
    train, evals, test = split_one(records(100), Split(eval=0.2, test=0.1), seed=1, stratum=label)
    assert (len(train), len(evals), len(test)) == (70, 20, 10)
    assert len(texts(train) | texts(evals) | texts(test)) == 100


def test_the_order_of_the_records_makes_no_difference():
    """A pure function of the set of records and the seed."""
    rows = records(60)
    forwards = split_one(rows, Split(eval=0.3), seed=1, stratum=label)
    backwards = split_one(rows[::-1], Split(eval=0.3), seed=1, stratum=label)
    assert texts(forwards[1]) == texts(backwards[1])
    assert texts(forwards[1]) != texts(split_one(rows, Split(eval=0.3), seed=2, stratum=label)[1])


def test_a_stratified_split_keeps_each_labels_share():
    """A rare label is held out in the same share."""
    rows = [Record({"text": str(i), "label": "rare" if i < 10 else "common"}, "f", i) for i in range(100)]
    _, evals, test = split_one(rows, Split(eval=0.2, test=0.1, stratify=True), seed=3, stratum=label)
    assert Counter(map(label, evals)) == {"rare": 2, "common": 18}
    assert Counter(map(label, test)) == {"rare": 1, "common": 9}


@pytest.mark.parametrize("seed", range(5))
def test_equal_records_stay_on_one_side(seed):
    """A duplicate never leaks from training into evaluation."""
    rows = records(30) * 3
    train, evals, test = split_one(rows, Split(eval=0.3, test=0.2), seed=seed, stratum=label)
    assert not texts(train) & texts(evals)
    assert not texts(evals) & texts(test)
    assert len(train) + len(evals) + len(test) == 90


def test_a_split_leaves_each_source_its_own():
    """Held-out records are those of one source with all records; what is left stays in its source, in its order."""
    rows = records(60)
    alone = split_one(rows, Split(eval=0.2, test=0.1), seed=1, stratum=label)
    trains, *held_out = split([rows[:10], rows[10:]], Split(eval=0.2, test=0.1), seed=1, stratum=label)
    assert [texts(part) for part in held_out] == [texts(part) for part in alone[1:]]
    assert trains == [[row for row in source if row in alone[0]] for source in (rows[:10], rows[10:])]


def test_equal_records_of_two_sources_stay_on_one_side():
    """A duplicate in another source doesn't leak either."""
    trains, evals, _ = split([records(30), records(30)], Split(eval=0.3), seed=0, stratum=label)
    assert texts(trains[0]) == texts(trains[1])
    assert not texts(trains[0]) & texts(evals)


def test_many_equal_records_do_not_swallow_the_evaluation():
    """A text that occurs 200 times among 240 stays in training; the share is filled with others."""
    rows = [Record({"text": "n/a", "label": "g"}, "f", i) for i in range(200)] + records(40)
    (train,), evals, _ = split([rows], Split(eval=0.1), seed=0, stratum=label)
    assert len(evals) == 24
    assert "n/a" not in texts(evals)
    assert len(train) == 216


@pytest.mark.parametrize(("share", "rows"), [(Split(eval=0.2, stratify=True), 3), (Split(test=0.1), 4)])
def test_a_share_that_holds_out_nothing_is_refused(share, rows):
    """Rather than a run without the evaluation that was asked for."""
    with pytest.raises(InputError, match=r"data\.split\.(eval|test): a share of .* holds out none of the \d records"):
        split([records(rows)], share, seed=0, stratum=label)


def test_equal_records_are_named_where_they_are_why_nothing_is_held_out():
    """A tenth of 20 records is two, but each of the two texts is in ten."""
    with pytest.raises(InputError, match="holds out none of the 20 records, of which 2 are different"):
        split([records(2) * 10], Split(eval=0.1), seed=0, stratum=None)
