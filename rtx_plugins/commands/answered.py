"""Records and what the model answers to each: one row out for each row in, in order and in constant memory."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import attrs

from rtx_core import DataError, Record
from rtx_core.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Row = Mapping[str, Any]
    Attempt = Callable[[Iterable[Record]], Iterator[Row | DataError]]

AT_ONCE = 1024
"""Rows of a stream that are read before the first is answered."""
ERROR = "error"
"""The column that says why a row has no answers."""


@attrs.define(kw_only=True, eq=False)
class Answered:
    """Records with the answers to them.

    A record that can't be read gets empty answers and an ``error``, so that it costs no other row its answer.
    """

    known: Callable[[], Iterable[Record]]
    """Records that may be looked at beforehand, from the beginning each time: all of a file, the first of a stream."""
    records: Iterable[Record]
    """All records, once."""
    attempt: Attempt
    """The columns to add to each record, or why there are none."""
    example: Callable[[], Row]
    """An answer to look at where none of the first records can be answered."""
    strict: bool = False
    """Raise the error of a record that can't be read, and add no column for errors."""
    columns: tuple[str, ...] = attrs.field(init=False)
    """Every column that some known record has."""
    template: Row = attrs.field(init=False)
    """An answer, for its columns and the types of their values."""
    names: dict[str, str] = attrs.field(init=False)
    """Each column that is added, and the name that it gets: another one where the input has it already."""
    count: int = attrs.field(default=0, init=False)
    """Rows that were given so far."""
    failures: int = attrs.field(default=0, init=False)
    """How many of them have an error instead of answers."""
    first_failure: DataError | None = attrs.field(default=None, init=False)

    @classmethod
    def of_file(cls, source: Callable[[], Iterable[Record]], attempt: Attempt, **settings: Any) -> Self:
        """Read all records once, so that a bad line is found before the work, and every column is known.

        :param source: gives the records from the beginning, each time it is called.
        """
        return cls(known=source, records=source(), attempt=attempt, **settings)

    @classmethod
    def of_stream(cls, records: Iterable[Record], attempt: Attempt, **settings: Any) -> Self:
        """Records that can be read only once: the first of them say which columns there are."""
        rest = iter(records)
        first = tuple(itertools.islice(rest, AT_ONCE))
        return cls(known=lambda: first, records=itertools.chain(first, rest), attempt=attempt, **settings)

    @columns.default
    def _columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for record in self.known() for name in record.values))

    @template.default
    def _template(self) -> Row:
        """That to the first record that can be answered, one at a time: often it is the very first."""
        for record in itertools.islice(self.known(), AT_ONCE):
            (answer,) = self.attempt([record])
            if not isinstance(answer, DataError):
                return answer
        return self.example()

    @names.default
    def _names(self) -> dict[str, str]:
        added = [*self.template, *([] if self.strict else [ERROR])]
        return {name: self._free(name) for name in added}

    def _free(self, name: str) -> str:
        """The name, or the next one of which the input has neither it nor a column of it (``scores.spam``)."""
        value = self.template.get(name)
        inner = tuple(value) if isinstance(value, Mapping) else ()
        others = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
        return next(other for other in others if not {other, *(f"{other}.{key}" for key in inner)} & set(self.columns))

    def added(self) -> Row:
        """The columns that a table gets beside those of the input, with an answer's values."""
        return flat({other: self.template.get(name) for name, other in self.names.items()}, ())

    def header(self) -> tuple[str, ...]:
        """The columns of a table: those of the input, then the answers."""
        return (*self.columns, *self.added())

    def rows(self) -> Iterator[Row]:
        """Each record's columns, then its answers.

        :raises DataError: a record can't be read, where that is strict.
        :raises RunError: a record of a stream has a column by the name of an answer.
        """
        return (row for _, row in self._pairs())

    def table_rows(self) -> Iterator[Row]:
        """The same for a table, by the columns of its header; scores have a column for each label.

        :raises RunError: a record has a column that the header lacks.
        """
        header = frozenset(self.header())
        for record, values in self._pairs():
            row = flat(values, self.columns)
            if late := [name for name in row if name not in header]:
                raise RunError(
                    f'{record.file}:{record.line}: the column "{late[0]}" is new here, but a table has its columns '
                    f"from the start, and these went by the first {AT_ONCE:,} rows; write JSON lines"
                )
            yield row

    def _pairs(self) -> Iterator[tuple[Record, Row]]:
        asked, kept = itertools.tee(self.records)
        for record, answer in zip(kept, self.attempt(asked), strict=True):
            row = self._joined(record, answer)
            self.count += 1
            yield record, row

    def _joined(self, record: Record, answer: Row | DataError) -> Row:
        taken = [name for name in self.names.values() if name in record.values]
        if taken:
            raise RunError(
                f'{record.file}:{record.line}: the column "{taken[0]}" is new here and has the name of an answer; '
                "rename it, or give the input as a file"
            )
        if isinstance(answer, DataError):
            answer = self._failed(answer)
        return {**record.values, **{self.names.get(name, name): value for name, value in answer.items()}}

    def _failed(self, error: DataError) -> Row:
        if self.strict:
            raise error
        self.failures += 1
        self.first_failure = self.first_failure or error
        empty = {
            name: dict.fromkeys(value) if isinstance(value, Mapping) else None for name, value in self.template.items()
        }
        return {**empty, ERROR: str(error)}


def flat(row: Row, columns: Iterable[str]) -> dict[str, Any]:
    """The row with a column for each key of an answer that has keys (``scores.LABEL``); the input's columns stay."""
    columns = frozenset(columns)
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping) and name not in columns:
            found |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            found[name] = value
    return found
