"""Comma-separated values (RFC 4180) with a header, and tab-separated ones. Every value stays text."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from rtx_core import Data, DataError, hookimpl
from rtx_plugins.data.common import FileData, Row, lines, one_character, quoted, unpacked_name


def _one_character_or_none(part: object, field: attrs.Attribute[str], value: str) -> None:
    if value:
        one_character(part, field, value)


@attrs.frozen(kw_only=True)
class Csv(FileData):
    """CSV with a header. Values stay text: ``NA``, ``null``, ``007`` and an empty field are what they look like.

    Blank lines are skipped; an empty field in a file of one column is written ``""``.
    """

    delimiter: str | None = attrs.field(default=None, validator=attrs.validators.optional(one_character))
    """The character between fields; None takes a tab for ``.tsv`` files and a comma for all others."""
    quotechar: str = attrs.field(default='"', validator=_one_character_or_none)
    """Stands around a field that holds the delimiter, line ends or itself (then doubled). Empty: quotes are text."""

    def check(self) -> Iterable[tuple[str, str]]:
        """A character has one meaning."""
        yield from super().check()
        if self.delimiter is not None and self.delimiter == self.quotechar:
            yield "quotechar", f'the delimiter is "{self.delimiter}" too'

    def rows(self, file: Path) -> Iterator[Row]:
        """The header names the columns; each row must have as many fields."""
        table = self._table(file)
        line, header = next(table, (1, []))
        if repeated := [name for name, count in Counter(header).items() if count > 1]:
            raise DataError(file, line, f"the header has {quoted(repeated)} more than once")
        for line, fields in table:
            if len(fields) != len(header):
                count = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
                raise DataError(file, line, f"{count}, the header has {len(header)}; {_likely_cause(header)}")
            yield line, dict(zip(header, fields, strict=True))

    def _table(self, file: Path) -> Iterator[tuple[int, list[str]]]:
        """All rows that are not blank, header first, each with the line on which it begins."""
        # One limit (131,072 characters) holds for all readers of a process, and a long document is no mistake.
        csv.field_size_limit(sys.maxsize)
        reader = csv.reader(
            (f"{text}\n" for _, text in lines(file)),
            delimiter=self.delimiter or _tab_or_comma(file),
            quotechar=self.quotechar or None,
            quoting=csv.QUOTE_MINIMAL if self.quotechar else csv.QUOTE_NONE,
            strict=True,
        )
        while True:
            line = reader.line_num + 1
            try:
                fields = next(reader, None)
            except csv.Error as error:
                raise DataError(file, line, f"not CSV: {_explained(error)}") from error
            if fields is None:
                return
            if fields:
                yield line, fields


def _tab_or_comma(file: Path) -> str:
    return "\t" if unpacked_name(file).endswith(".tsv") else ","


def _likely_cause(header: list[str]) -> str:
    """Why rows have other lengths than the header; one that is a single column was cut at the wrong character."""
    mark = next((mark for mark in ";\t|," if mark in header[0]), None) if len(header) == 1 else None
    if mark is None:
        return "quote what holds the delimiter"
    return f"if the header names several columns, write delimiter = {json.dumps(mark)}"


def _explained(error: csv.Error) -> str:
    if "new-line" in str(error):
        # The module's own text asks for an argument of open().
        return r"a carriage return in the middle of a line; end lines with \n or \r\n"
    if "unexpected end" in str(error):
        return 'a quote opens in this row and never closes; quotechar = "" reads quotes as text'
    return f'{error}; write a quote in a quoted field twice, or set quotechar = "" to read quotes as text'


@hookimpl
def data() -> dict[str, type[Data]]:
    """``data.csv``."""
    return {"csv": Csv}
