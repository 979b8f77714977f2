"""Folds of cross-validation."""

from collections import Counter

import pytest

from rtx_core.config.pipeline import Folds, Split
from rtx_core.errors import InputError
from rtx_core.reading import divide
from rtx_core.samples import Record

TRAIN, EVAL, TEST = range(3)


def records(n, rare=0):
    return [Record({"text": str(i), "label": "rare" if i < rare else "common"}, "f", i + 1) for i in range(n)]


def label(record):
    return record.values["label"]


def sides(rows, index, count=5, split=None, stratum=None):
    """The side of each record where one fold is held out."""
    (found,) = divide([rows], split or Split(), seed=1, stratum=stratum, folds=Folds(count=count, index=index))
    return list(found)


def test_each_record_is_held_out_once():
    """Over all folds every record is evaluated exactly once, and trains the others."""
    rows = records(23)
    held_out = Counter(i for fold in range(1, 6) for i, side in enumerate(sides(rows, fold)) if side == EVAL)
    assert held_out == dict.fromkeys(range(23), 1)


@pytest.mark.parametrize(("total", "sizes"), [(20, [4] * 5), (23, [4, 4, 5, 5, 5])])
def test_folds_are_equally_large(total, sizes):
    """No fold has more than one record more than another."""
    assert sorted(sides(records(total), fold).count(EVAL) for fold in range(1, 6)) == sizes


def test_equal_records_are_in_one_fold():
    """A duplicate of a record that is held out doesn't train."""
    rows = records(15) * 3
    for fold in range(1, 6):
        found = sides(rows, fold)
        assert found[:15] == found[15:30] == found[30:]


def test_each_fold_has_its_share_of_each_label():
    """Ten records of a rare label are two in each of five folds."""
    rows = records(100, rare=10)
    for fold in range(1, 6):
        held_out = [row for row, side in zip(rows, sides(rows, fold, stratum=label), strict=True) if side == EVAL]
        assert Counter(map(label, held_out)) == {"rare": 2, "common": 18}


def test_the_test_set_is_in_no_fold():
    """What a split takes for the test is neither trained on nor evaluated in any fold."""
    rows = records(50)
    found = [sides(rows, fold, split=Split(test=0.2)) for fold in range(1, 6)]
    assert all(
        [i for i, s in enumerate(one) if s == TEST] == [i for i, s in enumerate(found[0]) if s == TEST] for one in found
    )
    assert found[0].count(TEST) == 10
    assert sum(one.count(EVAL) for one in found) == 40


@pytest.mark.parametrize("fold", [1, 3])
def test_more_folds_than_records_are_refused(fold):
    """A fold without a record can't be evaluated; that is said by the first run of a series, not by a later one."""
    with pytest.raises(InputError, match=r"data\.folds: fold 3 of 5 has no record; take fewer folds"):
        sides(records(3), fold)
