"""Records that are handed over in Python: iterables of dicts, and data frames of pandas and polars."""

import datetime as dt
import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rtx_core import DataError, InputError
from rtx_core.python_records import sources_of

CACHE = Path(os.environ.get("RTX_TEST_CACHE") or Path.home() / ".cache" / "rtx-tests")
FRAMES = {"pandas": "pandas==3.1.1", "polars": "polars==2.1.0"}


def rows(given):
    """The columns of each record of a training set."""
    return [record.values for record in sources_of({"train": given})["train"].records()]


class PandasLike:
    """A frame with pandas' methods, as far as they are asked for: missing values are NaN until they are replaced."""

    def __init__(self, columns, values):
        self.columns, self._values = columns, values

    def __iter__(self):
        return iter(self.columns)

    def notna(self):
        return [[value == value for value in row] for row in self._values]  # noqa: PLR0124 - NaN differs from itself

    def astype(self, kind):
        assert kind is object
        return self

    def where(self, keep, other):
        values = [
            [v if k else other for v, k in zip(*pair, strict=True)] for pair in zip(self._values, keep, strict=True)
        ]
        return PandasLike(self.columns, values)

    def to_dict(self, orient):
        assert orient == "records"
        return [dict(zip(self.columns, row, strict=True)) for row in self._values]


class PolarsLike:
    """A frame with polars' method."""

    def __init__(self, values):
        self._values = values

    def iter_rows(self, *, named):
        assert named
        return iter(self._values)


ROWS = [{"text": "a", "n": 1}, {"text": "b", "n": None}]


@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        tuple(ROWS),
        (dict(row) for row in ROWS),
        PolarsLike(ROWS),
        PandasLike(["text", "n"], [["a", 1], ["b", float("nan")]]),
    ],
    ids=["list", "tuple", "generator", "polars", "pandas"],
)
def test_whatever_holds_records_gives_them(given):
    """Each form gives the same rows, as often as they are asked for; a missing value of pandas is None."""
    source = sources_of({"train": given})["train"]
    for _ in range(2):
        assert [record.values for record in source.records()] == ROWS
    assert [(record.file, record.line) for record in source.records()] == [("train", 1), ("train", 2)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),  # noqa: FBT003 - a value
        (np.str_("x"), "x"),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        ((np.int64(1), ("x",)), [1, ["x"]]),
        ([{"start": np.int64(0)}], [{"start": 0}]),
        (dt.date(2020, 2, 29), dt.date(2020, 2, 29)),
        (float("inf"), float("inf")),
    ],
)
def test_numbers_of_numpy_become_pythons(value, expected):
    """At any depth, as a file of data would give them."""
    ((found),) = rows([{"a": value}])
    assert found == {"a": expected}
    assert type(found["a"]) is type(expected)


def test_the_rows_are_those_of_the_moment():
    """What changes in the caller's dicts afterwards changes no run."""
    mine = [{"words": ["a"]}]
    source = sources_of({"train": mine})["train"]
    mine[0]["words"].append("b")
    mine[0]["more"] = 1
    assert [record.values for record in source.records()] == [{"words": ["a"]}]


def test_equal_rows_have_equal_fingerprints():
    """Whatever holds them, and in whatever order their columns stand; the order of the rows counts."""
    one, other, swapped = (
        sources_of({"train": given})["train"].fingerprint()
        for given in (ROWS, PolarsLike([{"n": 1, "text": "a"}, {"n": None, "text": "b"}]), ROWS[::-1])
    )
    assert one == other != swapped


def test_evaluation_sets_may_have_names():
    """A dict for ``eval`` is several sets, anything else is one."""
    several = sources_of({"eval": {"clean": ROWS, "noisy": iter(ROWS)}})["eval"]
    assert [(name, source.name) for name, source in several.items()] == [
        ("clean", "eval.clean"),
        ("noisy", "eval.noisy"),
    ]
    assert list(sources_of({"eval": ROWS})["eval"]) == [""]


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ({"valid": ROWS}, InputError, "data: there is no set 'valid'; the sets are train, eval, test"),
        ({"train": "rows.jsonl"}, InputError, "data: train: expected records (dicts, or a data frame), got str"),
        ({"train": None}, InputError, "data: train: expected records (dicts, or a data frame), got NoneType"),
        ({"train": {"a": ROWS}}, InputError, "data: train: expected records (dicts, or a data frame), got dict"),
        ({"train": [ROWS[0], "x"]}, DataError, "train:2: expected a dict of columns, got str"),
        ({"eval": {"a": ["x"]}}, DataError, "eval.a:1: expected a dict of columns, got str"),
        ({"test": [{1: "x"}]}, DataError, "test:1: the name of a column must be text, got 1"),
        (
            {"train": PandasLike(["a", "a"], [[1, 2]])},
            InputError,
            "data: train: the frame has the column 'a' more than once",
        ),
    ],
)
def test_what_is_no_record_is_refused(data, error, message):
    """One line that names the set, and the row where it is one."""
    with pytest.raises(error) as caught:
        sources_of(data)
    assert str(caught.value) == message


def test_no_rows_are_refused_when_they_are_read():
    """As an empty file is (case 25)."""
    source = sources_of({"train": []})["train"]
    with pytest.raises(DataError, match=r"^train: no records$"):
        source.records()


# --- the libraries themselves -----------------------------------------------------------------------------------------


@pytest.fixture
def frames(monkeypatch):
    """Import pandas or polars, from where it is installed or from a folder of the cache, for this test alone."""

    def library(name):
        try:
            return importlib.import_module(name)
        except ImportError:
            pass
        folder = CACHE / FRAMES[name]
        if not folder.is_dir():
            pip = [sys.executable, "-m", "pip", "install", "-q", "--target", folder, FRAMES[name]]
            if subprocess.run(pip, capture_output=True, check=False).returncode != 0:
                pytest.skip(f"{FRAMES[name]} is neither installed nor can be fetched")
        # At the end of the path: what the package brings along doesn't replace what is here.
        monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
        return importlib.import_module(name)

    return library


@pytest.mark.network
def test_a_frame_of_pandas(frames):
    """Every kind of missing value is None; lists, categories and numbers of any type are Python's own."""
    pd = frames("pandas")
    frame = pd.DataFrame(
        {
            "text": ["a", None],
            "float": [1.5, float("nan")],
            "integer": pd.array([1, None], dtype="Int64"),
            "words": [["a", "b"], []],
            "category": pd.Categorical(["x", None]),
            "time": pd.to_datetime(["2020-02-29", None]),
            "count": [1, 2],
        },
        index=[7, 7],
    )
    missing = dict.fromkeys(("text", "float", "integer", "category", "time"))
    first, second = rows(frame)
    assert first == {
        "text": "a",
        "float": 1.5,
        "integer": 1,
        "words": ["a", "b"],
        "category": "x",
        "count": 1,
        "time": dt.datetime(2020, 2, 29),  # noqa: DTZ001 - as it was written
    }
    assert second == {**missing, "words": [], "count": 2}
    assert {type(first["integer"]), type(first["count"])} == {int}


@pytest.mark.network
def test_a_frame_of_polars(frames):
    """Nulls are None; lists and structs are Python's own."""
    pl = frames("polars")
    frame = pl.DataFrame({"text": ["a", None], "n": [1, None], "words": [["a", "b"], []], "span": [{"start": 0}, None]})
    assert rows(frame) == [
        {"text": "a", "n": 1, "words": ["a", "b"], "span": {"start": 0}},
        {"text": None, "n": None, "words": [], "span": None},
    ]
