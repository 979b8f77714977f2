"""Turn the tree into checked objects, strictly: nothing is coerced, and every mistake is found, not only the first.

cattrs chooses the hook for a type; the hooks are ours. Each returns the value or :data:`FAILED`, and adds what is wrong
to ``findings``, so one bad value never hides another.
"""

from __future__ import annotations

import math
import re
import typing
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

import attrs
import cattrs
import tomli

from rtx_core.components import KINDS, Component, InputPath, Source
from rtx_core.config import shapes
from rtx_core.config.findings import Finding
from rtx_core.config.rules import broken_rules
from rtx_core.config.suggest import Suggestion, Suggestions
from rtx_core.config.tree import Node, Origin, Unread, dotted
from rtx_core.errors import InputError, PluginError
from rtx_core.sources import Hub, folder_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rtx_core.registry import Chosen, Registry

FAILED: Final = object()
"""In place of a value that could not be made; the findings say why."""


class Structurer:
    """Makes values of the types that settings are declared with."""

    def __init__(self, registry: Registry, working_directory: Path, hub: Hub) -> None:
        self.findings: list[Finding] = []
        self.unknown: list[Finding] = []
        """Sources that can't be looked into here, and with them a part of what the file means."""
        self.notes: list[str] = []
        """What could not be checked, one sentence each."""
        self.origins: dict[str, Origin] = {}
        """Where each value came from, by dotted key."""
        self.chosen: dict[str, Chosen] = {}
        """The plugin behind each table, by dotted key."""
        self.types: dict[str, str] = {}
        """The type of each table as it was written, ``distribution:name`` where it was pinned, by dotted key."""
        self.use(registry)
        self.hub = hub
        self._working_directory = working_directory
        self._converter = self._hooks()

    def use(self, registry: Registry) -> None:
        """Take components from this registry from now on."""
        self.registry = registry
        self.suggestions = Suggestions(registry)

    def _hooks(self) -> cattrs.BaseConverter:
        converter = cattrs.BaseConverter()
        for kind in (bool, int, float, str):
            converter.register_structure_hook(kind, self._scalar)
        for path in (Path, InputPath):
            converter.register_structure_hook(path, self._path)
        for predicate, hook in (
            (shapes.is_table, self._table),
            (shapes.is_kind, self._component),
            (shapes.is_length, self._length),
            (shapes.is_literal, self._literal),
            (shapes.is_union, self._union),
            (shapes.is_list, self._list),
            (shapes.is_mapping, self._mapping),
            (lambda kind: kind is Source, self._source),
            (lambda kind: kind is Any, self._anything),
        ):
            converter.register_structure_hook_func(predicate, hook)
        return converter

    # --- what others call ---------------------------------------------------------------------------------------------

    def value(self, node: Node, kind: Any) -> Any:
        """A value of a type, or :data:`FAILED`."""
        read = self.read(node, kind)
        if read is None:
            return FAILED
        self.origins[dotted(read.keys)] = read.origin
        return self._converter.structure(read, kind)

    def read(self, node: Node, kind: Any) -> Node | None:
        """Settle what the text of a ``--set`` is: text as it stands for a string or a length, else a TOML value."""
        if not isinstance(node.value, Unread):
            return node
        text, options = node.value.text, shapes.members(kind)
        for value in _toml_value(text):
            if any(shapes.takes_values(option) and shapes.fits(option, value) for option in options):
                return Node.of(value, node.origin, node.keys)
        if any(shapes.takes_text(option) for option in options):
            return attrs.evolve(node, value=text)
        value = next(_toml_value(text), text)
        self.findings.append(Finding.at(node, f"expected {shapes.described(kind)}, got {shapes.shown(value)}"))
        return None

    def as_table(self, node: Node) -> Node | None:
        """The node if it is a table, None if it is something else, which is reported."""
        read = self.read(node, Mapping[str, Any])
        if read is not None and read.table is None:
            self.findings.append(Finding.at(read, f"expected a table, got {shapes.shown(read.value)}"))
            return None
        return read

    def component(self, kind: str, node: Node, *, fallback: str | None = None) -> Any:
        """A component of a kind, from its name or its table.

        :param fallback: the ``type`` of a table that has none.
        """
        chosen = self.choose(kind, node, fallback=fallback)
        if chosen is None:
            return FAILED
        table = node.without("type") if node.table is not None else attrs.evolve(node, value={})
        return self.table(table, chosen.component, owner=chosen)

    def choose(self, kind: str, node: Node, *, fallback: str | None = None) -> Chosen | None:
        """The component that a name or a table's ``type`` means, loaded; noted in ``chosen``."""
        written = node if node.table is None else node.table.get("type")
        if written is None and fallback is None:
            if not self.report_misspelt(node, ("type",)):
                known = ", ".join(self.registry.names(kind))
                self.findings.append(Finding.missing(node, "type", f"missing; it names the {kind}: {known}"))
            return None
        name = fallback if written is None else written.text
        if name is None:
            self._expected(written or node, KINDS[kind] if node.table is None else str)
            return None
        try:
            chosen = self.registry.find(kind, name)
        except PluginError as error:
            message, likely = self.suggestions.name(kind, name, error)
            if written is None:  # the table's own name is the type
                self.findings.append(Finding.at(node, message, spot="key", replacement=likely))
            else:
                self.findings.append(Finding.at(written, message, replacement=likely and f'"{likely}"'))
            return None
        self.chosen[dotted(node.keys)] = chosen
        self.types[dotted(node.keys)] = name
        self.origins[dotted(node.keys)] = node.origin
        self.origins[dotted((*node.keys, "type"))] = (written or node).origin
        return chosen

    def table(self, node: Node, cls: type, *, owner: Chosen | None = None, complete: bool = True) -> Any:
        """An attrs object from a table; every key, every field and every rule is checked on its own.

        :param owner: the component that the table belongs to, for messages.
        :param complete: False where keys should come from what can't be had; then only the findings are of use, and
            rules across fields have nothing to say.
        """
        likely = self._unknown_keys(node, cls, owner)
        nodes = self._written(node, cls)
        values: dict[str, Any] = {}
        for field in shapes.settable(cls):
            if field.name in nodes:
                place = nodes[field.name]
                values[field.name] = FAILED if place is None else self.value(place, shapes.field_types(cls)[field.name])
            elif field.default is attrs.NOTHING:
                values[field.name] = FAILED
                if complete and field.name not in likely:
                    self.findings.append(Finding.missing(node, field.name, f"missing; it is required{_of(owner)}"))
            else:
                default = Origin("default" if owner is None else f"default of {owner.kind}.{owner.name}")
                self.origins.setdefault(dotted((*node.keys, field.name)), default)
        self._obey(cls, values, nodes)
        if not complete or any(value is FAILED for value in values.values()):
            return FAILED
        # With what --set wrote taken apart, so that a rule across fields is placed inside it.
        return self._assembled(attrs.evolve(node, value=nodes), cls, values)

    def likely_keys(self, node: Node, names: tuple[str, ...]) -> list[tuple[Node, Suggestion]]:
        """The entries of a table that are probably meant to be one of these keys."""
        found = []
        for key, child in (node.table or {}).items():
            suggestion = self.suggestions.key(key, names, dotted(node.origin.keys))
            if suggestion.meant is not None:
                found.append((child, suggestion))
        return found

    def report_misspelt(self, node: Node, names: tuple[str, ...]) -> bool:
        """Report the keys that are probably meant to be one of these, which the table lacks; False if there is none."""
        likely = self.likely_keys(node, names)
        for child, suggestion in likely:
            message = f"unknown key; {suggestion.message}"
            self.findings.append(Finding.at(child, message, spot="key", replacement=suggestion.replacement))
        return bool(likely)

    # --- tables -------------------------------------------------------------------------------------------------------

    def _table(self, node: Node, cls: Any) -> Any:
        return self._expected(node, cls) if node.table is None else self.table(node, cls)

    def _component(self, node: Node, cls: Any) -> Any:
        if node.table is None and node.text is None:
            return self._expected(node, cls)
        return self.component(cls.kind, node)

    def _written(self, node: Node, cls: type) -> dict[str, Node | None]:
        types = shapes.field_types(cls)
        return {name: self.read(child, types[name]) for name, child in node.value.items() if name in types}

    def _unknown_keys(self, node: Node, cls: type, owner: Chosen | None) -> set[str]:
        """Report keys that the table doesn't have; the result is what they were probably meant to be."""
        own = [field.name for field in shapes.settable(cls)]
        likely = set()
        for key, child in node.value.items():
            if key in own:
                continue
            suggestion = self.suggestions.key(key, own, dotted(child.origin.keys[:-1]))
            message = f"unknown key; {suggestion.message}{_of(owner)}"
            self.findings.append(Finding.at(child, message, spot="key", replacement=suggestion.replacement))
            likely.add(suggestion.meant or "")
        return likely

    def _obey(self, cls: type, values: dict[str, Any], nodes: Mapping[str, Node | None]) -> None:
        """Run every rule of every field that has a value of the right type; where one is broken, the value fails."""
        draft = _draft(cls, values)
        for field in shapes.settable(cls):
            node, value = nodes.get(field.name), values.get(field.name, FAILED)
            if node is None or value is FAILED:
                continue
            broken = [] if field.metadata.get("finite") is False else list(_not_finite(value, node))
            broken = broken or list(broken_rules(field, draft, value, node)) or list(_too_large(value, node))
            self.findings += [Finding.at(place, message) for place, message in broken]
            if broken:
                values[field.name] = FAILED

    def _assembled(self, node: Node, cls: type, values: Mapping[str, Any]) -> Any:
        aliases = {field.name: field.alias or field.name for field in shapes.settable(cls)}
        try:
            part = cls(**{aliases[name]: value for name, value in values.items()})
        except (ValueError, TypeError) as error:
            self.findings.append(Finding.at(node, str(error), spot="header"))
            return FAILED
        if not isinstance(part, Component):
            return part
        broken = list(part.check())
        for name, message in broken:
            child = node.find(tuple(int(key) if key.isdigit() else key for key in re.findall(r"[^.\[\]]+", name)))
            self.findings.append(Finding.missing(node, name, message) if child is None else Finding.at(child, message))
        return FAILED if broken else part

    # --- single values ------------------------------------------------------------------------------------------------

    def _expected(self, node: Node, kind: Any) -> Any:
        """Say what was expected instead of a value of another shape."""
        mended = _mended(node.plain(), kind)
        hint = "" if mended is None else f"; write {mended}"
        message = f"expected {shapes.described(kind)}, got {shapes.shown(node.value)}{hint}"
        self.findings.append(Finding.at(node, message, replacement=mended))
        return FAILED

    def _scalar(self, node: Node, kind: Any) -> Any:
        if not shapes.fits(kind, node.value):
            return self._expected(node, kind)
        try:
            return float(node.value) if kind is float else node.value
        except OverflowError:
            self.findings.append(Finding.at(node, "is too large for a number"))
            return FAILED

    def _anything(self, node: Node, _: Any) -> Any:
        if isinstance(node.value, list):
            return self._list(node, list[Any])
        return node.value if node.table is None else self._mapping(node, dict[str, Any])

    def _length(self, node: Node, kind: Any) -> Any:
        if isinstance(node.value, int | float) and not isinstance(node.value, bool):
            return self._wrong(node, kind.question(node.value))
        if not isinstance(node.value, str):
            return self._expected(node, kind)
        try:
            return kind.parse(node.value)
        except ValueError as error:
            return self._wrong(node, str(error))

    def _literal(self, node: Node, kind: Any) -> Any:
        if shapes.fits(kind, node.value):
            return node.value
        options = [option for option in typing.get_args(kind) if isinstance(option, str)]
        near = self.suggestions.near(node.value, options) if isinstance(node.value, str) else None
        if near is None:
            return self._expected(node, kind)
        message = f'expected {shapes.described(kind)}, got {shapes.shown(node.value)}; did you mean "{near}"?'
        self.findings.append(Finding.at(node, message, replacement=f'"{near}"'))
        return FAILED

    def _path(self, node: Node, kind: Any) -> Any:
        if not isinstance(node.value, str):
            return self._expected(node, kind)
        if not node.value:
            return self._wrong(node, "expected a path, got an empty text")
        return node.origin.folder(self._working_directory) / node.value

    def _source(self, node: Node, kind: Any) -> Any:
        if not isinstance(node.value, str):
            return self._expected(node, kind)
        try:
            source = Source.parse(node.value, node.origin.folder(self._working_directory))
        except ValueError as error:
            return self._wrong(node, str(error))
        if node.keys[0] == "data":  # data say themselves what they read
            return source
        try:
            return self._found(node, source)
        except InputError as error:
            return self._wrong(node, str(error))

    def _found(self, node: Node, source: Source) -> Source:
        """The source with its commit, if it has one."""
        if source.scheme != "hub":
            folder_of(source, self._working_directory)
            return source
        pinned = self.hub.pinned(source)
        if pinned is None:
            message = f"{source} is not in the cache yet; config, tokenizer and weights are looked at when it runs"
            self.unknown.append(Finding.at(node, message))
        return pinned or source

    def _wrong(self, node: Node, message: str) -> Any:
        self.findings.append(Finding.at(node, message))
        return FAILED

    # --- several values -----------------------------------------------------------------------------------------------

    def _union(self, node: Node, kind: Any) -> Any:
        if node.value is None and NoneType in typing.get_args(kind):
            return None
        options = shapes.members(kind)
        fitting = options if len(options) == 1 else [option for option in options if shapes.fits(option, node.value)]
        if not fitting:
            return self._expected(node, kind)
        if len(fitting) == 1 and isinstance(node.value, list):
            length = shapes.wanted_length(fitting[0])
            if length not in (None, len(node.value)):
                return self._wrong(node, f"expected {shapes.described(kind)}, got {shapes.shown_length(node.value)}")
        before = len(self.findings)
        value = self.value(node, fitting[0])
        for option in fitting[1:]:
            if len(self.findings) == before:
                break
            attempt = len(self.findings)
            other = self.value(node, option)
            if len(self.findings) == attempt:
                del self.findings[before:]
                return other
            del self.findings[attempt:]  # what is wrong with the first is what the user is told
        return value

    def _list(self, node: Node, kind: Any) -> Any:
        if not isinstance(node.value, list):
            return self._expected(node, kind)
        items = typing.get_args(kind)
        if len(items) == 1 or items[-1] is Ellipsis:
            items = (items[0],) * len(node.value)
        if len(items) != len(node.value):
            return self._wrong(node, f"expected {shapes.described(kind)}, got {shapes.shown_length(node.value)}")
        values = tuple(self.value(child, item) for child, item in zip(node.value, items, strict=True))
        return FAILED if any(value is FAILED for value in values) else values

    def _mapping(self, node: Node, kind: Any) -> Any:
        if node.table is None:
            return self._expected(node, kind)
        item = typing.get_args(kind)[1]
        values = {key: self.value(child, item) for key, child in node.table.items()}
        return FAILED if any(value is FAILED for value in values.values()) else values


def _of(owner: Chosen | None) -> str:
    return "" if owner is None else f" ({owner.kind}.{owner.name} of {owner.distribution} {owner.version})"


def _draft(cls: type, values: Mapping[str, Any]) -> object:
    """An object with the values that are valid so far, for rules that look at other fields; none is run to make it."""
    draft: object = object.__new__(cls)
    for name, value in values.items():
        if value is not FAILED:
            object.__setattr__(draft, name, value)
    return draft


def _not_finite(value: Any, node: Node) -> Iterator[tuple[Node, str]]:
    """The floats of a field that are nan or infinite; a field that takes them has ``metadata={"finite": False}``."""
    for place, number in _single(value, node):
        if isinstance(number, float) and not math.isfinite(number):
            yield place, f"expected a finite number, got {number}"


def _too_large(value: Any, node: Node) -> Iterator[tuple[Node, str]]:
    """The integers of a field beyond 64 bits: TOML has none, but Python reads them, and libraries break on them."""
    for place, number in _single(value, node):
        if isinstance(number, int) and not -(2**63) <= number < 2**63:
            yield place, "is too large for an integer of 64 bits"


def _single(value: Any, node: Node) -> Iterator[tuple[Node, Any]]:
    """Every single value in a field's, with its place."""
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _single(item, node.part(index))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _single(item, node.part(key))
    else:
        yield node, value


def _toml_value(text: str) -> Iterator[Any]:
    """The TOML value that a text is, if it is one."""
    try:
        table = tomli.loads(f"value = {text}")
    except (tomli.TOMLDecodeError, RecursionError, ValueError):
        return
    if set(table) == {"value"}:
        yield table["value"]


def _mended(value: Any, kind: Any) -> str | None:
    """How a value of another shape was probably meant: without its quotes, with them, or as a list."""
    for option in shapes.members(kind):
        if isinstance(value, str):
            for read in _toml_value(value):
                if not isinstance(read, str | dict) and shapes.fits(option, read):
                    return value
            if shapes.is_list(option) and typing.get_args(option)[0] in (str, InputPath, Path):
                return f"[{shapes.shown(value)}]"
        if option is str and isinstance(value, int | float):
            return f'"{shapes.shown(value)}"'
        if option is int and isinstance(value, float) and value.is_integer():
            return str(int(value))
    return None
