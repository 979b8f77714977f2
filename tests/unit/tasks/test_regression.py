"""Texts with numbers: what counts as a number, standardised targets and back, and errors that name file and line."""

import decimal
import math

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler

from rtx_core import DataError, InputError, Outputs
from rtx_plugins.tasks.regression import Regression


@pytest.fixture
def part(tokenizer, special_tokens):
    """A function: the task's part with these means and deviations, or none."""

    def build(center=None, scale=None, **settings):
        task = Regression(**settings)
        outputs = Outputs(size=len(task.target_columns), center=center, scale=scale)
        return task.build(tokenizer, outputs, max_length=16, special_tokens=special_tokens)

    return build


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3.0),
        (2.5, 2.5),
        (-0.25, -0.25),
        ("12.5", 12.5),
        (" 1e3 ", 1000.0),
        ("+.5", 0.5),
        ("-7.", -7.0),
        ("007", 7.0),
        (np.float32(0.5), 0.5),
        (np.int64(4), 4.0),
        (decimal.Decimal("19.99"), 19.99),
    ],
)
def test_a_number_becomes_a_target(part, record, tokens_of, value, expected):
    """Numbers, and texts that are decimal numbers (a CSV has no others), are float32 ``[1, 1]`` at the first token."""
    (sample,) = part().samples([record(text="a", target=value)])
    assert tokens_of(sample) == ["[CLS]", "a", "[SEP]"]
    assert sample.target_positions.tolist() == [0]
    assert sample.targets.dtype == np.float32
    assert sample.targets.tolist() == [[np.float32(expected)]]


@pytest.mark.parametrize("value", [None, "", "  ", math.nan, np.float64("nan")])
def test_a_missing_number_is_ignored_and_counted(part, record, value):
    """Null, an empty cell and NaN are NaN beside a number that is there; the notes say how many, once."""
    task = part(target=("price", "weight"))
    (sample,) = task.samples([record(text="a", price=value, weight=2)])
    assert np.isnan(sample.targets[0, 0])
    assert sample.targets[0, 1] == 2.0
    assert list(task.notes()) == ["1 numbers are missing and neither learnt nor measured"]
    assert list(task.notes()) == []


def test_prediction_needs_no_target(part, record):
    """Without targets the columns may be missing; every entry is ignored."""
    (sample,) = part(target=("x", "y")).samples([record(text="a")], targets=False)
    assert sample.targets.shape == (1, 2)
    assert np.isnan(sample.targets).all()


# --- the unit of the data ---------------------------------------------------------------------------------------------


def test_means_and_deviations_are_scikit_learns(record):
    """Over the training data, each target by itself, of those that are there, as StandardScaler has them."""
    rows = 300_000.0 + 5_000.0 * np.random.default_rng(0).normal(size=(50, 2)) * [1.0, 1e-3]
    rows[3, 0] = rows[5, 1] = np.nan
    records = [record(text="a", x=x, y=None if math.isnan(y) else y) for x, y in rows]
    outputs = Regression(target=("x", "y")).outputs(iter(records), 25)
    expected = StandardScaler().fit(rows)
    assert (outputs.size, outputs.labels) == (2, None)
    np.testing.assert_allclose(outputs.center, expected.mean_, rtol=1e-14)
    np.testing.assert_allclose(outputs.scale, expected.scale_, rtol=1e-9)  # theirs loses digits to the mean


def test_the_order_of_the_records_changes_no_bit(record):
    """Sums are exact: the same records in another order give the same mean and deviation."""
    values = np.random.default_rng(1).normal(size=100).tolist()
    forwards, backwards = (
        Regression().outputs([record(text="a", target=value) for value in ordered], 25)
        for ordered in (values, values[::-1])
    )
    assert forwards == backwards


def test_without_standardize_targets_stay_as_they_are(record):
    """There is neither a mean nor a deviation."""
    records = [record(text="a", target=value) for value in (1, 3)]
    assert Regression(standardize=False).outputs(records, 25) == Outputs(size=1)
    assert Regression().outputs(records, 25) == Outputs(size=1, center=(2.0,), scale=(1.0,))


def test_a_target_is_learnt_standardised_and_measured_in_its_unit(part, record):
    """(150 − 100) / 25 = 2 is learnt; predictions and targets of 2 are 150 for metrics and in the answer."""
    task = part(center=(100.0,), scale=(25.0,))
    (sample,) = task.samples([record(text="a", target=150)])
    assert sample.targets.tolist() == [[2.0]]
    learnt = torch.tensor([[2.0], [-1.0]])
    assert task.predictions(learnt).tolist() == task.measured(learnt).tolist() == [[150.0], [75.0]]
    assert task.answers([record(text="a")], [learnt[:1]], scores=True) == [{"prediction": 150.0}]


def test_several_targets_are_answered_by_name(part, record):
    """Each has its own unit, and the answer is an object of their columns, of a list of one too."""
    task = part(center=(100.0, 0.0), scale=(25.0, 2.0), target=("price", "weight"))
    logits = [torch.tensor([[1.0, 0.25]])]
    assert task.answers([record(text="a")], logits, scores=False) == [{"prediction": {"price": 125.0, "weight": 0.5}}]
    (answer,) = part(target=("x",)).answers([record(text="a")], [torch.tensor([[3.0]])], scores=False)
    assert answer == {"prediction": {"x": 3.0}}


def test_what_is_turned_back_is_as_exact_as_float32_was(part, record):
    """Prices near 300,000 come back within a float32's rounding of their distance from the mean."""
    task = part(center=(300_000.0,), scale=(1_000.0,))
    values = [300_000.0 + step for step in range(-3000, 3000, 7)]
    targets = torch.from_numpy(
        np.concatenate([s.targets for s in task.samples(record(text="a", target=v) for v in values)])
    )
    torch.testing.assert_close(
        task.measured(targets).squeeze(1), torch.tensor(values, dtype=torch.float64), rtol=0, atol=3000 * 2**-24
    )


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("12,5", 'expected a number, got the text "12,5"'),
        ("nan", 'expected a number, got the text "nan"'),
        ("1_000", 'expected a number, got the text "1_000"'),
        ("٣", 'expected a number, got the text "٣"'),
        (True, "expected a number, got the truth value true"),
        ([1.0], "expected a number, got the list [1.0]"),
        (math.inf, "the number Infinity is more than a float32 can hold"),
        ("1e39", 'the text "1e39" is more than a float32 can hold'),
    ],
)
def test_bad_record_is_an_error_with_its_place(part, record, value, message):
    """What is no number is said in one line that begins with its place, when it is counted and when it is read."""
    with pytest.raises(DataError) as caught:
        list(part().samples([record(text="a", target=value)]))
    assert str(caught.value) == f'data.jsonl:7: column "target": {message}'
    with pytest.raises(DataError, match=r"^data.jsonl:7: "):
        Regression().outputs([record(text="a", target=value)], 25)


def test_a_number_of_hundreds_of_digits_is_an_error(part, record):
    """Python can't even make a float of it."""
    with pytest.raises(DataError, match=r'^data.jsonl:7: column "target": the number 1000.* more than a float32'):
        list(part().samples([record(text="a", target=10**400)]))


def test_a_number_beyond_all_comparison_is_an_error(part, record):
    """One that standardising would make infinite is named, and no infinity is learnt."""
    with pytest.raises(DataError, match="^data.jsonl:7: a target is too far from those of the training data"):
        list(part(center=(0.0,), scale=(1e-9,)).samples([record(text="a", target=1e38)]))


def test_a_missing_column_is_an_error(part, record):
    """It names the columns that there are."""
    with pytest.raises(DataError, match='no column "target"; the columns are "text", "price"'):
        list(part().samples([record(text="a", price=1)]))


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([], "no number"),
        ([None, ""], "no number"),
        ([3, 3.0, "3"], "no number but 3"),
        ([0.0, 1e-300], "no number but 0"),
    ],
)
@pytest.mark.parametrize("standardize", [True, False])
def test_one_number_is_nothing_to_learn(record, values, found, standardize):
    """Training data without two numbers that differ are refused."""
    with pytest.raises(InputError, match=f'^task: column "target" of the training data has {found}; two different'):
        Regression(standardize=standardize).outputs([record(text="a", target=value) for value in values], 25)


def test_targets_must_be_other_columns():
    """Learning a column from itself is refused by ``check``, and so is a list that names one twice, or none."""
    assert list(Regression(text=("a", "b"), target=("c", "b")).check()) == [
        ("target", '"b" is the column of the text too')
    ]
    with pytest.raises(ValueError, match="occurs more than once"):
        Regression(target=("c", "c"))
    with pytest.raises(ValueError, match="at least one name"):
        Regression(target=())


def test_columns_are_those_that_are_named():
    """The targets are only asked for where there are targets."""
    task = Regression(text=("a", "b"), target=("c", "d"))
    assert task.columns(targets=True) == ("a", "b", "c", "d")
    assert task.columns(targets=False) == ("a", "b")
