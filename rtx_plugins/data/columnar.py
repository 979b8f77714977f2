"""What Parquet and Arrow share: tables that are stored by column and read a few rows at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from rtx_core import DataError
from rtx_plugins.data.common import PACKED, FileData, Row, quoted

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_ONCE = 1024
"""Rows that are Python objects at a time; an object takes many times the memory of a value in its column."""

_OTHERS = {b"PAR1": "Parquet", b"ARRO": "Arrow"}


@attrs.frozen(kw_only=True)
class ColumnarData(FileData):
    """Records out of tables stored by column; a record's line is its row, counted from 1."""

    columns: tuple[str, ...] = ()
    """Read these columns alone, by the names that the file has; empty reads all."""

    def check(self) -> Iterable[tuple[str, str]]:
        """What is renamed is read."""
        yield from super().check()
        unread = [name for name in self.rename if self.columns and name not in self.columns]
        if unread:
            yield "rename", f"{quoted(unread)} is not among columns"

    def batches(self, file: Path) -> Iterator[pa.RecordBatch]:
        """The table in batches of any size, with the columns that :meth:`chosen` gives, or more.

        :raises DataError: the columns are not those that were asked for.
        :raises OSError: the file can't be read.
        :raises pyarrow.ArrowException: it is malformed.
        """
        raise NotImplementedError

    def rows(self, file: Path) -> Iterator[Row]:
        """Values as Python objects: lists are lists, structs and maps are dicts."""
        line = 1
        with explained(file):
            for batch in self.batches(file):
                for start in range(0, batch.num_rows, ROWS_AT_ONCE):
                    values = _values(batch.slice(start, ROWS_AT_ONCE), file, line)
                    yield from enumerate(values, start=line)
                    line += len(values)

    def chosen(self, there: Sequence[str], file: Path) -> list[str]:
        """The columns to read, of those of a file.

        :raises DataError: one is missing, or two have one name.
        """
        if repeated := [name for name, count in Counter(there).items() if count > 1]:
            raise DataError(file, None, f"the table has the column {quoted(repeated)} more than once")
        if missing := [name for name in self.columns if name not in there]:
            raise DataError(file, None, f"no column {quoted(missing)}; there are {quoted(there)}")
        return list(self.columns or there)


def first_bytes(file: Path, expected: str) -> bytes:
    """The first six bytes, by which formats are told apart.

    :param expected: the format that is wanted.
    :raises DataError: the file is of the other format, or packed.
    :raises OSError: it can't be opened.
    """
    if file.suffix.lower() in PACKED:
        raise DataError(file, None, f"{expected} is read in place and can't be packed as a whole; unpack it")
    with file.open("rb") as stream:
        start = stream.read(6)
    other = _OTHERS.get(start[:4], expected)
    if other != expected:
        raise DataError(file, None, f'this is {other}, not {expected}; write type = "{other.lower()}"')
    return start


@contextmanager
def explained(file: Path) -> Iterator[None]:
    """Turn Arrow's errors, and those of the operating system, into one line with the file's name.

    :raises DataError: instead.
    """
    import pyarrow as pa

    try:
        yield
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or _on_one_line(error)
        raise DataError(file, None, f"can't be read: {reason}") from error


def _values(batch: pa.RecordBatch, file: Path, line: int) -> list[Mapping[str, Any]]:
    """The rows as Python objects; ``line`` is the number of the first."""
    try:
        return _converted(batch)
    except (ValueError, KeyError, OverflowError) as error:
        # Arrow does not say which row it was.
        for row in range(batch.num_rows):
            try:
                _converted(batch.slice(row, 1))
            except (ValueError, KeyError, OverflowError) as found:
                hint = "with columns = […] what isn't needed can be left out"
                raise DataError(file, line + row, f"can't be read: {_on_one_line(found)}; {hint}") from found
        raise DataError(file, line, f"can't be read: {_on_one_line(error)}") from error


def _converted(batch: pa.RecordBatch) -> list[Mapping[str, Any]]:
    # Neither format's reader looks at the values: text may not be UTF-8, an offset may lead out of the file.
    batch.validate(full=True)
    rows: list[Mapping[str, Any]] = batch.to_pylist(maps_as_pydicts="strict")
    return rows


def _on_one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
