"""The rows of ``span`` targets (:data:`rtx_core.components.TargetKind`): their columns, and a text in rows and back."""

from __future__ import annotations

import numpy as np

from rtx_core import SpanRole

PLACE, START, END, FIRST, LAST = range(5)
"""The columns."""
COLUMNS = 5

_FILLING = b"\xff"
"""A byte that no text in UTF-8 has."""
_BYTES = 8 * (COLUMNS - 1)
_LITTLE_ENDIAN = np.dtype("<i8")


def rows_of_text(text: str) -> np.ndarray:
    """int64 ``[n, 5]``: the text, in at least one row."""
    encoded = text.encode()
    count = max(1, -(-len(encoded) // _BYTES))
    numbers = np.frombuffer(encoded.ljust(count * _BYTES, _FILLING), dtype=_LITTLE_ENDIAN).astype(np.int64)
    return np.column_stack([np.full(count, SpanRole.TEXT), numbers.reshape(count, -1)])


def text_of_rows(rows: np.ndarray) -> str:
    """The text that stands in those of a sample's rows that are ``TEXT``."""
    numbers = np.ascontiguousarray(rows[rows[:, PLACE] == SpanRole.TEXT, 1:], dtype=_LITTLE_ENDIAN)
    return numbers.tobytes().rstrip(_FILLING).decode()
