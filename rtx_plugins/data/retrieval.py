"""Queries, a corpus of documents, and which of them are relevant (BEIR: Thakur et al. 2021, arXiv:2104.08663)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from numbers import Integral
from pathlib import Path
from typing import Any

import attrs

from rtx_core import Data, DataError, InputPath, Record, TextRole, hookimpl
from rtx_plugins.data.common import Row, fingerprint_of, lines, quoted, unpacked_name
from rtx_plugins.data.csv import Csv
from rtx_plugins.data.jsonl import Jsonl

_IDS = ("_id", "id")
_JUDGMENT = ("query-id", "corpus-id", "score")
_GRADE = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII)
_TREC_FIELDS = 4


@attrs.frozen(kw_only=True)
class Retrieval(Data):
    """What an evaluation of embeddings ranks: queries, the documents among which they search, and judgments.

    Files are JSON lines (``.jsonl``), CSV or TSV with a header, also packed as ``.gz`` or ``.zst``. A query or document
    has an ``_id`` (or ``id``) and a ``text``; a document's ``title`` is put before its text, with a space.
    """

    queries: InputPath
    """The file of the queries."""
    corpus: InputPath
    """The file of the documents. Equally near documents rank in its order."""
    relevant: InputPath
    """The file of the judgments, each a query, a document and a grade, a whole number; from 1 on the document is
    relevant. A TSV with a header and the columns ``query-id``, ``corpus-id``, ``score`` (as BEIR's ``qrels``), JSON
    lines or a CSV with these names, or TREC's four columns without a header. Queries without a relevant document are
    left out."""

    def paths(self) -> tuple[Path, ...]:
        """The three files."""
        return (self.queries, self.corpus, self.relevant)

    def fingerprint(self) -> str:
        """Sha256 of the sha256 of each file's content."""
        return fingerprint_of(self.paths())

    def records(self) -> Iterator[Record]:
        """The documents, then the queries with their judgments, in the order of the files.

        Each has a ``role`` (:class:`TextRole`), its ``text`` and its ``number``, from 0; a query has ``judgments`` too,
        pairs of a document's number and a grade.

        :raises DataError: a file can't be read or is malformed, an id stands twice or nowhere.
        """
        documents = _Numbers(self.corpus)
        for line, values in _rows(self.corpus):
            number = documents.add(_id(values, self.corpus, line), line)
            text = _text(values, self.corpus, line)
            title = values.get("title")
            if isinstance(title, str):
                text = f"{title} {text}".strip()
            yield _record(self.corpus, line, role=TextRole.DOCUMENT, text=text, number=number)
        queries = _Numbers(self.queries)
        texts: list[tuple[int, str]] = []
        for line, values in _rows(self.queries):
            queries.add(_id(values, self.queries, line), line)
            texts.append((line, _text(values, self.queries, line)))
        judgments = _judgments(self.relevant, queries, documents)
        for number, (line, text) in enumerate(texts):
            yield _record(
                self.queries,
                line,
                role=TextRole.QUERY,
                text=text,
                number=number,
                judgments=tuple(judgments.get(number, {}).items()),
            )


@attrs.frozen
class _Numbers:
    """The ids of a file, numbered in their order."""

    file: Path
    _lines: dict[str, tuple[int, int]] = attrs.field(factory=dict, init=False)
    """The number and the line of each."""

    def add(self, name: str, line: int) -> int:
        """Number one more.

        :raises DataError: it stands in the file already.
        """
        if name in self._lines:
            _, before = self._lines[name]
            raise DataError(self.file, line, f'the id "{name}" stands on line {before} already')
        self._lines[name] = (len(self._lines), line)
        return len(self._lines) - 1

    def of(self, name: str, file: Path, line: int) -> int:
        """The number of an id that a judgment names.

        :raises DataError: there is no such id.
        """
        if name not in self._lines:
            raise DataError(file, line, f'no id "{name}" in {self.file}')
        return self._lines[name][0]


def _record(file: Path, line: int, **values: Any) -> Record:
    return Record(values, str(file), line)


# --- queries and documents --------------------------------------------------------------------------------------------


def _rows(file: Path) -> Iterator[Row]:
    """The rows of a file, of which there is at least one."""
    source = (Jsonl if _is_jsonl(file) else Csv)(files=(InputPath(file),))
    empty = True
    for row in source.rows(file):
        empty = False
        yield row
    if empty:
        raise DataError(file, None, "no records in this file")


def _is_jsonl(file: Path) -> bool:
    return unpacked_name(file).endswith((".jsonl", ".ndjson"))


def _id(values: Mapping[str, Any], file: Path, line: int) -> str:
    name = next((name for name in _IDS if name in values), None)
    if name is None:
        raise DataError(file, line, f'no "_id" and no "id"; there are {quoted(values)}')
    return _id_text(values[name], name, file, line)


def _id_text(value: Any, name: str, file: Path, line: int) -> str:
    """An id as text, so that JSON's 7 is the 7 of a table."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return str(int(value))
    if not isinstance(value, str) or not value:
        raise DataError(file, line, f'"{name}": expected an id (text or an integer), got {value!r}')
    return value


def _text(values: Mapping[str, Any], file: Path, line: int) -> str:
    text = values.get("text")
    if not isinstance(text, str):
        there = f"got {text!r}" if "text" in values else f"there are {quoted(values)}"
        raise DataError(file, line, f'"text": expected text, {there}')
    return text


# --- judgments --------------------------------------------------------------------------------------------------------


def _judgments(file: Path, queries: _Numbers, documents: _Numbers) -> dict[int, dict[int, int]]:
    """The grade of each document that was judged for a query, by numbers.

    :raises DataError: an id is unknown, a pair is judged twice, a grade is no whole number, or nothing is relevant.
    """
    judged: dict[int, dict[int, int]] = {}
    has_names = _is_jsonl(file) or unpacked_name(file).endswith(".csv")
    for line, (query, document, grade) in (_keyed_judgments if has_names else _column_judgments)(file):
        of_query = judged.setdefault(queries.of(query, file, line), {})
        number = documents.of(document, file, line)
        if number in of_query:
            raise DataError(file, line, f'the document "{document}" is judged for the query "{query}" already')
        of_query[number] = _grade(grade, file, line)
    if not any(grade > 0 for grades in judged.values() for grade in grades.values()):
        raise DataError(file, None, "no judgment in this file has a grade above 0, so there is nothing to find")
    return judged


def _grade(value: Any, file: Path, line: int) -> int:
    """A grade; one below 0, as TREC has for spam, is 0: not relevant."""
    if isinstance(value, bool) or not isinstance(value, int | str) or not _GRADE.fullmatch(str(value)):
        raise DataError(file, line, f"expected a grade, a whole number such as 0 or 1, got {value!r}")
    return max(0, int(value))


def _keyed_judgments(file: Path) -> Iterator[tuple[int, tuple[str, str, Any]]]:
    """Rows of JSON lines or of a CSV, by their names."""
    query, document, grade = _JUDGMENT
    for line, values in _rows(file):
        missing = [name for name in _JUDGMENT if name not in values]
        if missing:
            raise DataError(file, line, f"no {quoted(missing)}; there are {quoted(values)}")
        ids = (_id_text(values[query], query, file, line), _id_text(values[document], document, file, line))
        yield line, (*ids, values[grade])


def _column_judgments(file: Path) -> Iterator[tuple[int, tuple[str, str, str]]]:
    """BEIR's three columns below a header, or TREC's four (query, iteration, document, grade) without one."""
    rows = ((line, text) for line, text in lines(file) if text.strip())
    for place, (line, text) in enumerate(rows):
        fields, trec = text.split("\t"), text.split()
        if len(fields) == len(_JUDGMENT):
            query, document, grade = fields
            if place or _GRADE.fullmatch(grade):  # else it is the header: its last field is a name
                yield line, (query, document, grade)
        elif len(trec) == _TREC_FIELDS:
            query, _, document, grade = trec
            yield line, (query, document, grade)
        else:
            wanted = f"{', '.join(_JUDGMENT)} with tabs between them, below a header, or TREC's four columns"
            raise DataError(file, line, f"expected {wanted}, got {len(fields)} column{'s' * (len(fields) != 1)}")


@hookimpl
def data() -> dict[str, type[Data]]:
    """Offer it as ``retrieval``."""
    return {"retrieval": Retrieval}
