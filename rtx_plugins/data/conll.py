"""Files with a word a line, its annotations in columns, and blank lines between sentences (CoNLL shared tasks)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from rtx_core import Data, DataError, hookimpl
from rtx_plugins.data.common import FileData, Row, lines, one_character, quoted

# Not str.split(): a no-break space may be part of a word.
_BETWEEN = re.compile(r"[ \t]+")
_BLANK = re.compile(r"[ \t]*")


def _different(_instance: object, _attribute: object, value: tuple[str, ...]) -> None:
    """A validator: no name stands twice.

    :raises ValueError: one does.
    """
    if twice := sorted({name for name in value if value.count(name) > 1}):
        raise ValueError(f"{quoted(twice)} occurs more than once")


@attrs.frozen(kw_only=True)
class Conll(FileData):
    """Column files: a record is a sentence, and under each column's name it has the list of that column's fields."""

    columns: tuple[str, ...] = attrs.field(validator=[attrs.validators.min_len(1), _different])
    """Names of the columns, from left to right: ``["word", "pos", "chunk", "tag"]``."""
    delimiter: str | None = attrs.field(default=None, validator=attrs.validators.optional(one_character))
    """The character between fields, as ``"\\t"`` where words hold spaces; None takes any run of spaces and tabs."""
    skip: str | tuple[str, ...] = ()
    """Lines that begin so are passed over, as if they weren't there: ``"-DOCSTART-"``, ``["# ", "-DOCSTART-"]``."""

    def check(self) -> Iterable[tuple[str, str]]:
        """An empty beginning would pass over everything."""
        yield from super().check()
        if "" in self._skipped:
            yield "skip", "every line begins with an empty text; leave it out"

    @property
    def _skipped(self) -> tuple[str, ...]:
        return (self.skip,) if isinstance(self.skip, str) else self.skip

    def rows(self, file: Path) -> Iterator[Row]:
        """A sentence ends at a blank line, or at the end of the file; its line is that of its first word."""
        for sentence in self._sentences(file):
            line, _ = sentence[0]
            fields = zip(*(fields for _, fields in sentence), strict=True)
            yield line, {name: list(values) for name, values in zip(self.columns, fields, strict=True)}

    def _sentences(self, file: Path) -> Iterator[list[tuple[int, list[str]]]]:
        sentence: list[tuple[int, list[str]]] = []
        for line, text in lines(file):
            if text.startswith(self._skipped):
                continue
            if not _BLANK.fullmatch(text):
                sentence.append((line, self._fields(text, file, line)))
            elif sentence:
                yield sentence
                sentence = []
        if sentence:
            yield sentence

    def _fields(self, text: str, file: Path, line: int) -> list[str]:
        fields = _BETWEEN.split(text.strip(" \t")) if self.delimiter is None else text.split(self.delimiter)
        if len(fields) != len(self.columns):
            count = "1 column" if len(fields) == 1 else f"{len(fields)} columns"
            raise DataError(file, line, f"{count}, expected {len(self.columns)}: {quoted(self.columns)}")
        return fields


@hookimpl
def data() -> dict[str, type[Data]]:
    """``data.conll``."""
    return {"conll": Conll}
