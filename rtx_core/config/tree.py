"""The settings as one tree in which every value remembers where it was written, and how layers merge into it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Keys: TypeAlias = tuple[str | int, ...]
"""A place in the tree: keys of tables, and indices of lists counted from 0."""

COMMAND_LINE = "--set"
"""The source of what the command line sets."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dotted(keys: Keys) -> str:
    """A place as messages write it: ``optimizer.groups[0].lr``; keys that need quotes get them."""
    text = ""
    for key in keys:
        if isinstance(key, int):
            text += f"[{key}]"
            continue
        shown = key if _BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)
        text += f".{shown}" if text else shown
    return text


@attrs.frozen
class Origin:
    """Where a value was written."""

    source: str
    """As the user would see it: a file as it was named, ``--set``, ``defaults.toml``, ``preset "tiny"``, …."""
    file: Path | None = None
    """Absolute path of the TOML file that the user wrote; None for anything else."""
    keys: Keys = ()
    """The place within that source."""

    def folder(self, working_directory: Path) -> Path:
        """What a relative path is relative to: the folder of its file; the working directory for ``--set``."""
        return working_directory if self.file is None else self.file.parent

    def __str__(self) -> str:
        return self.source


@attrs.frozen
class Unread:
    """The text of ``--set key=TEXT``; whether it is text or a TOML value depends on the field that it is for."""

    text: str


UNSET = Unread("unset")
"""``--set key=unset`` takes a key away."""


@attrs.frozen(eq=False)
class Node:
    """A value of the tree: a table, a list, a TOML scalar, or text that is not read yet."""

    value: Any
    """``dict[str, Node]``, ``list[Node]``, a scalar, or :class:`Unread`."""
    origin: Origin
    keys: Keys
    """Its place in the pipeline; another than in its source where a value is taken over (``[data]`` gives defaults)."""

    @classmethod
    def of(cls, value: Any, origin: Origin, keys: Keys | None = None) -> Node:
        """A tree of plain TOML data from one source; ``keys`` are those of the origin unless given."""
        keys = origin.keys if keys is None else keys

        def child(key: str | int, item: Any) -> Node:
            return cls.of(item, attrs.evolve(origin, keys=(*origin.keys, key)), (*keys, key))

        if isinstance(value, dict):
            value = {key: child(key, item) for key, item in value.items()}
        elif isinstance(value, list):
            value = [child(index, item) for index, item in enumerate(value)]
        return cls(value, origin, keys)

    @property
    def table(self) -> dict[str, Node] | None:
        """The entries of a table, None for anything else."""
        return self.value if isinstance(self.value, dict) else None

    @property
    def text(self) -> str | None:
        """The value as text, if it is or may be text."""
        if isinstance(self.value, Unread):
            return self.value.text
        return self.value if isinstance(self.value, str) else None

    def part(self, key: str | int) -> Node:
        """An entry or element; the node itself where its text is not taken apart."""
        found = self.find((key,))
        return self if found is None else found

    def plain(self) -> Any:
        """The value as plain TOML data."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        return [child.plain() for child in self.value] if isinstance(self.value, list) else self.value

    def moved(self, keys: Keys) -> Node:
        """The same value at another place of the pipeline; where it was written stays."""
        value = self.value
        if isinstance(value, dict):
            value = {key: child.moved((*keys, key)) for key, child in value.items()}
        elif isinstance(value, list):
            value = [child.moved((*keys, index)) for index, child in enumerate(value)]
        return attrs.evolve(self, value=value, keys=keys)

    def without(self, *names: str) -> Node:
        """A table without some of its keys."""
        return attrs.evolve(self, value={key: child for key, child in self.value.items() if key not in names})

    def find(self, keys: Keys) -> Node | None:
        """The node at a place below this one."""
        node: Node = self
        for key in keys:
            inside = node.value
            if isinstance(inside, dict) and key in inside:
                node = inside[str(key)]
            elif isinstance(inside, list) and isinstance(key, int) and key < len(inside):
                node = inside[key]
            else:
                return None
        return node


def merged(low: Node, high: Node, default_types: Mapping[str, str]) -> Node:
    """A later layer over an earlier one: tables merge, anything else is replaced.

    A table that gets another ``type`` replaces the old one whole. Keys keep the place of their first appearance.

    :param default_types: the ``type`` that a top-level table has where none is written.
    """
    if low.table is None or high.table is None or _gets_another_type(low, high, default_types):
        return _without_unset(high)
    if low.keys == ("data",):  # what its tables are unless they say so themselves
        default_types = {**default_types, "data": _type_of(low) or ""}
    entries = dict(low.table)
    for key, node in high.table.items():
        if node.value == UNSET:
            entries.pop(key, None)
        else:
            entries[key] = merged(entries[key], node, default_types) if key in entries else _without_unset(node)
    # A table's header is looked for in a file, so --set for a key in it does not take the table over.
    origin = low.origin if high.origin.file is None else high.origin
    return Node(entries, origin, low.keys)


def _without_unset(node: Node) -> Node:
    if node.table is None:
        return node
    kept = {key: _without_unset(child) for key, child in node.table.items() if child.value != UNSET}
    return attrs.evolve(node, value=kept)


def _gets_another_type(low: Node, high: Node, default_types: Mapping[str, str]) -> bool:
    new, old = _type_of(high), _type_of(low)
    if old is None:
        match low.keys:
            case ("callbacks" | "metrics", str() as name):
                old = name
            case (str() as name,) | ("data" as name, "train" | "eval" | "test", *_):
                old = default_types.get(name) or None
    return new is not None and old is not None and new != old


def _type_of(table: Node) -> str | None:
    written = table.value.get("type")
    return None if written is None else written.text


def over_defaults(default: Node, written: Node) -> Node:
    """What files wrote over ``defaults.toml``: a table with a ``type`` replaces its default whole, also the same type.

    Defaults that no file mentions come first, so what a file writes keeps the file's order.
    """
    if default.table is None or written.table is None or "type" in written.table:
        return written
    entries = {key: node for key, node in default.table.items() if key not in written.table}
    for key, node in written.table.items():
        entries[key] = over_defaults(default.table[key], node) if key in default.table else node
    return attrs.evolve(written, value=entries)
