"""What the columns of a file hold: free text, labels, lists. Read in one pass, in memory that does not grow with it."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rtx_core import Record

MOST_ROWS = 200_000
"""Rows that are looked at; enough for a file that is sorted by its label."""
_MOST_DISTINCT = 2_000
_MOST_LENGTHS = 20_000

_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Scripts without spaces between words, which BERT's tokenizer cuts into characters."""
_WORD = re.compile(rf"[{_CJK}]|[^\s{_CJK}]+")
_TOKEN = re.compile(rf"[{_CJK}]|(?:(?![{_CJK}])\w)+|[^\w\s]")

_LABEL_NAMES = ("label", "labels", "class", "category", "target", "sentiment", "intent", "topic", "tag", "type", "y")
_MOST_LABELS = 200
_ROWS_OF_A_LABEL = 5
_NUMBER_NAMES = ("target", "score", "rating", "price", "value", "similarity", "amount", "label", "y")
_FEW_NUMBERS = 10
"""With a fraction in them, more different values than this are a quantity rather than classes."""
_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", re.ASCII)
_LABEL_WORDS = 5
"""A label has fewer words than this on average."""
_SECOND_TEXT_SHARE = 0.25
"""Of the first text's words; a title is shorter than that beside its text, a hypothesis beside its premise is not."""
_SECOND_TEXT_WORDS = 3


@attrs.define
class Column:
    """What was seen of one column."""

    name: str
    rows: int = 0
    """Rows that have a value in it."""
    kinds: set[str] = attrs.field(factory=set)
    """Of ``text``, ``integer``, ``list`` and ``other``."""
    values: Counter[str] = attrs.field(factory=Counter)
    """How often each value (of a list: each item) occurs; incomplete where there are too many different ones."""
    many: bool = False
    """Whether there are too many different values to be labels."""
    words: int = 0
    """Words of all rows together."""
    numbers: int = 0
    """Rows that hold a number, also as text."""
    fractions: int = 0
    """Of these, rows whose number is written with a point or an exponent."""
    blank: int = 0
    """Rows that hold an empty text."""
    tokens: list[int] = attrs.field(factory=list)
    """Words and punctuation marks of each of the first rows."""

    def add(self, value: Any) -> None:
        """Look at the value of one row."""
        self.rows += value is not None
        self.kinds.add(_kind(value))
        self._count_number(value)
        for item in value if isinstance(value, list) else [value]:
            self._count(str(item))
        text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
        self.words += len(_WORD.findall(text))
        if len(self.tokens) < _MOST_LENGTHS:
            self.tokens.append(len(value) if isinstance(value, list) else len(_TOKEN.findall(text)))

    def _count_number(self, value: Any) -> None:
        written = str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else "–"
        self.blank += not written.strip()
        if _NUMBER.fullmatch(written):
            self.numbers += 1
            self.fractions += not written.strip().lstrip("+-").isdigit()

    def _count(self, text: str) -> None:
        if text in self.values or len(self.values) < _MOST_DISTINCT:
            self.values[text] += 1
        else:
            self.many = True

    @property
    def is_number(self) -> bool:
        """Whether it holds numbers alone, of which some may be missing."""
        return 0 < self.numbers == self.rows - self.blank

    @property
    def is_unique(self) -> bool:
        """Whether no value occurs twice, as far as values were counted."""
        return max(self.values.values(), default=1) == 1

    @property
    def mean_words(self) -> float:
        """Words of a row."""
        return self.words / max(self.rows, 1)

    def tokens_of(self, share: float) -> int:
        """Words and punctuation marks that this share of the rows does not exceed."""
        ordered = sorted(self.tokens)
        return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "other"
    for kind, type_ in (("text", str), ("integer", int), ("list", list)):
        if isinstance(value, type_):
            return kind
    return "other"


@attrs.frozen
class Table:
    """A file's columns."""

    rows: int
    columns: tuple[Column, ...]
    """Those that every row has, in the file's order."""
    complete: bool
    """Whether all rows were looked at."""

    def labels(self) -> list[Column]:
        """The columns that may be labels: few different short values. The likeliest is first."""
        found = [column for column in self.columns if _may_be_label(column)]
        return sorted(found, key=lambda column: (_by_name(column), -self.columns.index(column)))

    def quantities(self) -> list[Column]:
        """The columns of numbers that may be a target: many different ones, and no identifiers. The likeliest first."""
        found = [column for column in self.columns if _may_be_quantity(column)]
        return sorted(found, key=lambda column: (_by_name(column, _NUMBER_NAMES), -self.columns.index(column)))

    def texts(self, *, without: Iterable[Column] = ()) -> list[Column]:
        """The columns of text, the one with the most words in a row first."""
        left_out = [column.name for column in without]
        found = [c for c in self.columns if c.kinds == {"text"} and c.words and not c.is_number]
        found = [column for column in found if column.name not in left_out]
        return sorted(found, key=lambda column: -column.mean_words)

    def lists(self) -> list[Column]:
        """The columns of lists, the one with the most different items first."""
        found = [column for column in self.columns if column.kinds == {"list"}]
        return sorted(found, key=lambda column: (not column.many, -len(column.values)))


def look(records: Iterable[Record]) -> Table:
    """Look at the rows of a file."""
    columns: dict[str, Column] = {}
    rows, complete = 0, True
    for record in records:
        if rows == MOST_ROWS:
            complete = False
            break
        rows += 1
        for name, value in record.values.items():
            columns.setdefault(name, Column(name)).add(value)
    return Table(rows, tuple(column for column in columns.values() if column.rows == rows), complete)


def is_second_text(first: Column, second: Column) -> bool:
    """Whether two texts belong together as a pair, rather than the second being a title, a name or an identifier."""
    long_enough = max(_SECOND_TEXT_WORDS, _SECOND_TEXT_SHARE * first.mean_words)
    return second.mean_words >= long_enough and len(second.values) > second.rows * _SECOND_TEXT_SHARE / 2


def _may_be_label(column: Column) -> bool:
    few = 1 < len(column.values) <= min(_MOST_LABELS, column.rows / _ROWS_OF_A_LABEL)
    named = column.kinds <= {"text", "integer"} and "" not in column.values
    if column.is_number and column.fractions and len(column.values) > _FEW_NUMBERS:
        return False
    return few and named and not column.many and column.mean_words < _LABEL_WORDS


def _may_be_quantity(column: Column) -> bool:
    name = column.name.lower().strip()
    if not column.is_number or len(column.values) <= _FEW_NUMBERS or re.search(r"(^|[_ ])id$", name):
        return False
    # Whole numbers of which each is another count the rows, unless the name says better.
    return bool(column.fractions) or not column.is_unique or name in _NUMBER_NAMES


def _by_name(column: Column, names: Sequence[str] = _LABEL_NAMES) -> int:
    name = column.name.lower().strip()
    return names.index(name) if name in names else len(names)


def most_frequent(column: Column, count: int) -> Sequence[tuple[str, int]]:
    """The values that occur most often; equal counts by name, so that the answer is always the same."""
    return sorted(column.values.items(), key=lambda item: (-item[1], item[0]))[:count]
