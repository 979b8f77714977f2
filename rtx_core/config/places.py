"""Where each key and value of a TOML text stands; read only when there is an error to place.

Lines and columns count characters from 1. tree-sitter counts rows and bytes from 0 and knows TOML 1.0: where a file
uses something newer, the nearest place that it does know is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs
import tomli
import tree_sitter_toml
from tree_sitter import Language, Parser

if TYPE_CHECKING:
    from collections.abc import Iterator

    import tree_sitter

    from rtx_core.config.tree import Keys

_NO_VALUE = ("comment", "ERROR")

Spot: TypeAlias = Literal["key", "value", "header"]
"""What to point at: the key, its value, or the header of the table that it is."""


@attrs.frozen
class Span:
    """A piece of one line."""

    line: int
    column: int
    width: int
    """In characters; a value of several lines ends with its first."""
    source_line: str


class Places:
    """The places of one TOML text, which has no byte order mark."""

    def __init__(self, text: str) -> None:
        self._lines = [line.removesuffix("\r") for line in text.split("\n")]
        self._keys: dict[Keys, tree_sitter.Node] = {}
        self._values: dict[Keys, tree_sitter.Node] = {}
        self._headers: dict[Keys, tuple[tree_sitter.Node, tree_sitter.Node]] = {}
        self._elements: dict[Keys, int] = {}
        """How many ``[[headers]]`` each list of tables has had so far."""
        self._document(Parser(Language(tree_sitter_toml.language())).parse(text.encode()).root_node)

    def find(self, keys: Keys, spot: Spot) -> Span:
        """The place of a key, its value or its header; where it has none of its own, of what is around it."""
        for end in range(len(keys), 0, -1):
            known = keys[:end]
            if spot == "header" and known in self._headers:
                first, last = self._headers[known]
                return self._span(first, last)
            if spot == "value" and end == len(keys) and known in self._values:
                return self._span(self._values[known])
            # A list's element has no key: it is pointed at itself.
            node = self._keys.get(known) or self._values.get(known)
            if node is not None:
                return self._span(node)
        return Span(1, 1, 1, self._lines[0])

    def _span(self, first: tree_sitter.Node, last: tree_sitter.Node | None = None) -> Span:
        row, start = first.start_point
        end_row, end = (last or first).end_point
        line = self._lines[row]
        column = _characters(line, start)
        width = (_characters(line, end) if end_row == row else len(line)) - column
        return Span(row + 1, column + 1, max(width, 1), line)

    def _document(self, node: tree_sitter.Node) -> None:
        for child in node.children:
            if child.type == "pair":
                self._pair(child, ())
            elif child.type in ("table", "table_array_element"):
                self._table(child)
            elif child.type == "ERROR":
                self._document(child)

    def _table(self, node: tree_sitter.Node) -> None:
        bracket, key, close = node.children[:3]
        parts = list(_key_parts(key))
        keys: Keys = ()
        for name, part in parts:
            keys = (*keys, name)
            self._keys.setdefault(keys, part)
            if part is parts[-1][1]:
                # The table's own header is a better place than one that only passes through it.
                self._keys[keys] = part
                if node.type == "table_array_element":
                    self._elements[keys] = self._elements.get(keys, 0) + 1
            if keys in self._elements:
                keys = (*keys, self._elements[keys] - 1)
        self._keys[keys] = parts[-1][1]  # an element of a list of tables is at its own header
        self._headers[keys] = (bracket, close)
        for child in node.children[3:]:
            if child.type == "pair":
                self._pair(child, keys)

    def _pair(self, node: tree_sitter.Node, prefix: Keys) -> None:
        keys = prefix
        for name, part in _key_parts(node.children[0]):
            keys = (*keys, name)
            self._keys.setdefault(keys, part)
        # A comment at the end of the line is a child of the pair too.
        self._value([child for child in node.named_children if child.type not in _NO_VALUE][-1], keys)

    def _value(self, node: tree_sitter.Node, keys: Keys) -> None:
        self._values[keys] = node
        if node.type == "inline_table":
            for child in node.children:
                if child.type == "pair":
                    self._pair(child, keys)
        elif node.type == "array":
            elements = [child for child in node.named_children if child.type not in _NO_VALUE]
            for index, child in enumerate(elements):
                self._value(child, (*keys, index))


def _key_parts(node: tree_sitter.Node) -> Iterator[tuple[str, tree_sitter.Node]]:
    if node.type == "dotted_key":
        for child in node.named_children:
            yield from _key_parts(child)
    elif node.text is not None:
        text = node.text.decode()
        # tomli knows the escapes of quoted keys.
        yield (next(iter(tomli.loads(f"{text} = 0"))) if node.type == "quoted_key" else text), node


def _characters(line: str, size: int) -> int:
    """How many characters the first ``size`` bytes of a line are."""
    return len(line.encode()[:size].decode(errors="replace"))
