"""Records that are handed over in Python: lists and iterables of dicts, pandas and polars data frames."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import attrs
import numpy as np

from rtx_core.components import Data
from rtx_core.errors import DataError, InputError
from rtx_core.samples import Record

_SETS = ("train", "eval", "test")


@attrs.frozen(kw_only=True)
class PythonRecords(Data):
    """Records in memory. In messages their file is the set's name, and their line is the row, counted from 1."""

    name: str
    """Where they were handed over: ``train``, ``eval``, ``eval.clean``, ``test``."""
    rows: tuple[Mapping[str, Any], ...] = attrs.field(repr=False)
    """Each record's columns."""

    def records(self) -> Iterator[Record]:
        """The rows in order.

        :raises DataError: there is none.
        """
        if not self.rows:
            raise DataError(self.name, None, "no records")
        return (Record(row, self.name, line) for line, row in enumerate(self.rows, start=1))

    def fingerprint(self) -> str:
        """Sha256 of the rows, which keep no type that JSON lacks."""
        total = hashlib.sha256()
        for row in self.rows:
            total.update(json.dumps(row, sort_keys=True, default=str).encode() + b"\n")
        return total.hexdigest()


def sources_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """The sources of a pipeline's sets; of ``eval`` a mapping of names, where the name is empty for a single set.

    :param data: an iterable of dicts or a data frame for each of ``train``, ``eval`` and ``test``; for ``eval`` also a
        dict of them by name.
    :raises InputError: a set is unknown, or something is no record.
    """
    if unknown := [name for name in data if name not in _SETS]:
        raise InputError(f"data: there is no set {unknown[0]!r}; the sets are {', '.join(_SETS)}")
    sources: dict[str, Any] = {}
    for name, given in data.items():
        if name == "eval":
            named = given if isinstance(given, Mapping) else {"": given}
            sources[name] = {one: _source(f"eval.{one}".rstrip("."), rows) for one, rows in named.items()}
        else:
            sources[name] = _source(name, given)
    return sources


def _source(name: str, given: Any) -> PythonRecords:
    rows = (_row(values, name, line) for line, values in enumerate(_rows(given, name), start=1))
    # An iterable may be one that can be read only once.
    return PythonRecords(name=name, rows=tuple(rows))


def _rows(given: Any, name: str) -> Iterable[Any]:
    """The rows of whatever holds them; frames are known by their methods, so that neither library is needed here."""
    if hasattr(given, "iter_rows"):  # polars
        return cast("Iterable[Any]", given.iter_rows(named=True))
    if hasattr(given, "to_dict") and hasattr(given, "notna"):  # pandas
        if twice := [column for column, count in Counter(given.columns).items() if count > 1]:
            raise InputError(f"data: {name}: the frame has the column {twice[0]!r} more than once")
        # pandas writes a missing value as NaN, NaT or NA, which no task knows.
        return cast("Iterable[Any]", given.astype(object).where(given.notna(), None).to_dict("records"))
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        kind = type(given).__name__
        raise InputError(f"data: {name}: expected records (dicts, or a data frame), got {kind}")
    return given


def _row(values: Any, name: str, line: int) -> Mapping[str, Any]:
    if not isinstance(values, Mapping):
        raise DataError(name, line, f"expected a dict of columns, got {type(values).__name__}")
    for column in values:
        if not isinstance(column, str):
            raise DataError(name, line, f"the name of a column must be text, got {column!r}")
    return {column: _plain(value) for column, value in values.items()}


def _plain(value: Any) -> Any:
    """Numbers and arrays of numpy as Python's own."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value
