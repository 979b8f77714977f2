"""Plain text files: a record is a line, a paragraph or a whole file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import attrs

from rtx_core import Data, hookimpl
from rtx_plugins.data.common import FileData, Row, lines


@attrs.frozen(kw_only=True)
class Text(FileData):
    """Plain text with one column, ``text``. What holds nothing but white space is no record."""

    unit: Literal["line", "paragraph", "document"] = "line"
    """What one record is: a line, a paragraph (lines between blank lines), or a document (a file)."""

    def rows(self, file: Path) -> Iterator[Row]:
        """Lines of a paragraph or document stay apart, joined by a line feed."""
        for block in self._blocks(file):
            line, _ = block[0]
            yield line, {"text": "\n".join(text for _, text in block)}

    def _blocks(self, file: Path) -> Iterator[list[tuple[int, str]]]:
        if self.unit == "line":
            yield from ([numbered] for numbered in lines(file) if not _blank(numbered))
        elif self.unit == "paragraph":
            yield from (list(block) for blank, block in itertools.groupby(lines(file), _blank) if not blank)
        else:
            whole = list(lines(file))
            if not all(map(_blank, whole)):
                yield whole


def _blank(numbered: tuple[int, str]) -> bool:
    return not numbered[1].strip()


@hookimpl
def data() -> dict[str, type[Data]]:
    """``data.text``."""
    return {"text": Text}
