"""JSON lines (https://jsonlines.org): one object a line, its keys are the columns."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import attrs

from rtx_core import Data, DataError, hookimpl
from rtx_plugins.data.common import FileData, Row, lines, quoted

WHITE_SPACE = " \t\r\n"
"""What JSON allows between values."""


@attrs.frozen(kw_only=True)
class Jsonl(FileData):
    """JSON lines: one object a line, its keys are the columns. Blank lines are skipped."""

    def rows(self, file: Path) -> Iterator[Row]:
        """Strict JSON: no NaN, no Infinity, no key twice."""
        for number, text in lines(file):
            if text.strip(WHITE_SPACE):
                try:
                    yield number, _object(text)
                except ValueError as error:
                    raise DataError(file, number, str(error)) from error


def decoded(text: str) -> Any:
    """One JSON value, strictly: no NaN, no Infinity, no key twice, no half of a character.

    :raises json.JSONDecodeError: this is not JSON.
    :raises ValueError: anything else is wrong; the message says what, in our words.
    """
    try:
        value = DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deeply to be read") from error
    except ValueError as error:
        if str(error).startswith("Exceeds the limit"):  # Python's words are about its own setting
            raise ValueError(f"a number of more than {sys.get_int_max_str_digits():,} digits is too long") from error
        raise
    # Escapes can spell half a character, which no tokenizer takes; without such an escape there is nothing to look for.
    if "\\ud" in text or "\\uD" in text:
        _refuse_lone_surrogates(value)
    return value


def decoded_line(text: str) -> Any:
    """The value of a line.

    :raises ValueError: what is wrong, in our words.
    """
    try:
        return decoded(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"column {error.colno}: not JSON: {error.msg}; each line must be one whole object") from error


def _object(text: str) -> dict[str, Any]:
    value = decoded_line(text)
    if not isinstance(value, dict):
        raise ValueError(f"expected an object in braces, got {json.dumps(value)[:40]}")  # noqa: TRY004 - the caller adds the place
    return value


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        repeated = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
        raise ValueError(f"the key {quoted(repeated)} stands in one object more than once")
    return values


def _finite(literal: str) -> float:
    number = float(literal)
    if math.isinf(number):
        raise ValueError(f"{literal} is too large for a float")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON; write null, or leave the row out")


def _refuse_lone_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise ValueError(f"\\u{ord(half):04x} is half of a surrogate pair; the other half is missing") from error


DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refuse_constant)
"""Refuses what JSON doesn't have, or what has no meaning."""


@hookimpl
def data() -> dict[str, type[Data]]:
    """``data.jsonl``."""
    return {"jsonl": Jsonl}
