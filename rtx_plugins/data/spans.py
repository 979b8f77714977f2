"""Texts with labelled spans, as annotation tools write them: Label Studio, Doccano, Prodigy and spaCy."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from rtx_core import Data, DataError, hookimpl
from rtx_plugins.data.common import FileData, Row, lines, quoted
from rtx_plugins.data.jsonl import DECODER, WHITE_SPACE, decoded, decoded_line

KEYS = ("spans", "entities", "ents", "label", "labels")
"""Where tools write spans: Prodigy; spaCy and Doccano; spaCy's ``Doc.to_json``; Label Studio and Doccano; Doccano."""

_BETWEEN_ELEMENTS = re.compile(r"[ \t\r\n,]*")
# Label Studio writes the line feeds of a quoted text as a backslash and an n.
_SPACE = re.compile(r"\\n|\s")


@attrs.frozen(kw_only=True)
class Spans(FileData):
    """JSON lines, or one JSON array, of texts with spans.

    Each record gets the columns ``text`` and ``spans``, a list of ``{"start", "end", "label"}`` in the order of the
    text; its other columns stay.

    Offsets count characters (Unicode code points) from 0; ``end`` is the first one after the span.
    """

    text: str = "text"
    """The key of the text."""
    spans: str | None = None
    """The key of the spans; None takes the first of ``spans``, ``entities``, ``ents``, ``label``, ``labels`` that holds
    a list."""

    def rows(self, file: Path) -> Iterator[Row]:
        """Records in the form of any of the tools."""
        for line, value in _entries(file):
            try:
                yield line, self._normalised(_columns(value))
            except ValueError as error:
                raise DataError(file, line, str(error)) from error

    def _normalised(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """The record with its text and spans under their usual names.

        :raises ValueError: what is wrong, in our words.
        """
        text, key = columns.get(self.text), self._key_of_spans(columns)
        if not isinstance(text, str):
            raise ValueError(f'"{self.text}": expected the text, got {_shown(text)}')  # noqa: TRY004 - the caller adds the place
        others = {name: value for name, value in columns.items() if name not in (self.text, key)}
        return {**others, "text": text, "spans": _checked(columns[key], text)}

    def _key_of_spans(self, columns: Mapping[str, Any]) -> str:
        candidates = KEYS if self.spans is None else (self.spans,)
        for key in candidates:
            if isinstance(columns.get(key), list):
                return key
        expected = "a list under " + " or ".join(quoted([key]) for key in candidates)
        raise ValueError(f"no spans: expected {expected}, which is [] for a text without any")


# --- files ------------------------------------------------------------------------------------------------------------


def _entries(file: Path) -> Iterator[tuple[int, Any]]:
    """Each record as it is written, with its line."""
    written = ((line, text) for line, text in lines(file) if text.strip(WHITE_SPACE))
    first = next(written, None)
    if first is None:
        return
    if _opens_an_array(first[1]):
        yield from _elements(file)
        return
    for line, text in itertools.chain([first], written):
        try:
            yield line, decoded_line(text)
        except ValueError as error:
            raise DataError(file, line, str(error)) from error


def _opens_an_array(text: str) -> bool:
    """Whether the file is one array: a line of its own in brackets is spaCy's pair of a text and its annotations."""
    if not text.lstrip(WHITE_SPACE).startswith("["):
        return False
    try:
        value = decoded(text)
    except ValueError:
        return True
    return not (value and isinstance(value[0], str))


def _elements(file: Path) -> Iterator[tuple[int, Any]]:
    """The elements of the array that a file is, each with the line on which it begins."""
    text = "\n".join(text for _, text in lines(file))
    try:
        decoded(text)
    except json.JSONDecodeError as error:
        raise DataError(file, error.lineno, f"column {error.colno}: not JSON: {error.msg}") from error
    except ValueError as error:
        raise DataError(file, None, str(error)) from error
    # It is JSON: what remains is to find where each element begins.
    line, place = 1, 0
    start = text.index("[") + 1
    while True:
        start += len(_BETWEEN_ELEMENTS.match(text, start)[0])  # type: ignore[index] # it matches the empty text too
        line, place = line + text.count("\n", place, start), start
        if text[start] == "]":
            return
        value, start = DECODER.raw_decode(text, start)
        yield line, value


# --- records ----------------------------------------------------------------------------------------------------------


def _columns(value: Any) -> Mapping[str, Any]:
    """A record of any of the tools as its columns.

    :raises ValueError: it is none.
    """
    match value:
        case [str() as text, dict() as annotations]:  # spaCy's training data
            return {**annotations, "text": text}
        case {"data": dict() as data, "annotations": list() as annotations}:  # Label Studio
            own = {} if "id" not in value else {"id": value["id"]}
            return {**own, **data, "spans": _of_label_studio(annotations)}
        case dict():
            return value
    raise ValueError(f"expected an object in braces, got {_shown(value)}")


def _of_label_studio(annotations: list[Any]) -> list[Any]:
    """The spans of the one annotation that a text should have."""
    kept = [one for one in annotations if isinstance(one, dict) and not one.get("was_cancelled")]
    if len(kept) != 1:
        raise ValueError(f"{len(kept)} annotations, expected one; export one for each text, and only annotated texts")
    results = [one for one in kept[0].get("result", []) if isinstance(one, dict)]
    if any(one.get("type") == "hypertextlabels" for one in results):
        raise ValueError("the spans are of a page of HTML; they can be read of plain text only")
    return [one.get("value") for one in results if one.get("type") == "labels"]


def _checked(entries: list[Any], text: str) -> list[dict[str, Any]]:
    """The spans in the order of the text.

    :raises ValueError: one is malformed, outside of the text, or overlaps with another.
    """
    spans = sorted(
        (_span(entry, text, number) for number, entry in enumerate(entries, start=1)),
        key=lambda span: (span["start"], span["end"]),
    )
    for one, other in itertools.pairwise(spans):
        if other["start"] < one["end"]:
            raise ValueError(f"{_place(one)} and {_place(other)} overlap")
    return spans


def _span(entry: Any, text: str, number: int) -> dict[str, Any]:
    start, end, label, words = _parts(entry, number)
    for name, offset in (("start", start), ("end", end)):
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise ValueError(f"span {number}: {name}: expected a whole number of characters, got {_shown(offset)}")  # noqa: TRY004
    if not isinstance(label, str) or not label:
        raise ValueError(f"span {number}: expected a label, got {_shown(label)}")
    if not 0 <= start <= end <= len(text):
        raise ValueError(f"span {number}: {start} to {end} is not in the text, which has {len(text)} characters")
    if start == end:
        raise ValueError(f"span {number}: {start} to {end} holds no character")
    if isinstance(words, str) and _SPACE.sub("", words) != _SPACE.sub("", text[start:end]):
        there = f"{_shown(text[start:end])}, but the span says {_shown(words)}"
        unit = "offsets count characters, not bytes or UTF-16 units"
        raise ValueError(f"span {number}: {start} to {end} is {there}; {unit}")
    return {"start": start, "end": end, "label": label}


def _parts(entry: Any, number: int) -> tuple[Any, Any, Any, Any]:
    """Start, end, label, and the words where the tool writes them."""
    match entry:
        case [start, end, label]:
            return start, end, label, None
        case {"start_offset": start, "end_offset": end, "label": label}:  # Doccano with relations
            return start, end, label, None
        case {"start": start, "end": end, "labels": [label]}:  # Label Studio
            return start, end, label, entry.get("text")
        case {"start": start, "end": end, "labels": list() as labels}:
            raise ValueError(f"span {number}: expected one label, got {_shown(labels)}")
        case {"start": start, "end": end, "label": label}:
            return start, end, label, entry.get("text")
    raise ValueError(f"span {number}: expected start, end and label, got {_shown(entry)}")


def _place(span: Mapping[str, Any]) -> str:
    return f'{span["start"]} to {span["end"]} ("{span["label"]}")'


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:60]


@hookimpl
def data() -> dict[str, type[Data]]:
    """``data.spans``."""
    return {"spans": Spans}
