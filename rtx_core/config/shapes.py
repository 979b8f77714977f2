"""What the type of a field is called in messages, and which TOML values have its shape."""

from __future__ import annotations

import datetime as dt
import functools
import json
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Literal

import attrs

from rtx_core.components import KINDS, Component, InputPath, Source
from rtx_core.errors import PluginError
from rtx_core.lengths import Length

_TEXTS: tuple[Any, ...] = (str, InputPath, Path, Source)

_QUOTED = 60
"""How many characters of a text a message quotes."""


def shown(value: object) -> str:
    """A value as a message quotes it, in the words of TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"' if len(value) <= _QUOTED and value.isprintable() else json.dumps(value[:_QUOTED])
    if isinstance(value, dict | Mapping):
        return "a table"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if isinstance(value, dt.date | dt.time):
        return "a date or time"
    return "nothing" if value is None else str(value)


def is_union(kind: Any) -> bool:
    """``X | Y`` or ``Optional[X]``."""
    return typing.get_origin(kind) in (typing.Union, types.UnionType)


def is_literal(kind: Any) -> bool:
    """``Literal["a", "b"]``."""
    return typing.get_origin(kind) is Literal


def is_list(kind: Any) -> bool:
    """``tuple[X, ...]``, ``tuple[X, Y]`` or ``Sequence[X]``; all of them become tuples."""
    return typing.get_origin(kind) in (tuple, Sequence)


def is_mapping(kind: Any) -> bool:
    """``Mapping[str, X]`` or ``dict[str, X]``."""
    return typing.get_origin(kind) in (Mapping, dict)


def is_length(kind: Any) -> bool:
    """:class:`Length` or a class derived from it."""
    return isinstance(kind, type) and issubclass(kind, Length)


def is_kind(kind: Any) -> bool:
    """A field that takes any component of a kind, as ``Scheduler``."""
    return isinstance(kind, type) and issubclass(kind, Component) and KINDS.get(getattr(kind, "kind", "")) is kind


def is_table(kind: Any) -> bool:
    """A table with fixed keys: any other attrs class."""
    return isinstance(kind, type) and attrs.has(kind) and not (is_kind(kind) or is_length(kind) or kind is Source)


def members(kind: Any) -> tuple[Any, ...]:
    """What a value may be: the members of a union without None, or the type itself."""
    return tuple(member for member in typing.get_args(kind) if member is not NoneType) if is_union(kind) else (kind,)


def takes_text(kind: Any) -> bool:
    """Whether ``--set`` may take the text as it stands."""
    return kind in _TEXTS or is_length(kind) or is_literal(kind) or is_kind(kind)


def takes_values(kind: Any) -> bool:
    """Whether ``--set`` may read the text as a TOML value."""
    return not takes_text(kind) or is_literal(kind) or is_kind(kind)


def described(kind: Any) -> str:
    """What to write for a type: "a number", "a list of text", ``"gelu" or "relu"``."""
    if is_union(kind):
        return " or ".join(described(member) for member in members(kind))
    if is_literal(kind):
        return " or ".join(shown(option) for option in typing.get_args(kind))
    if is_list(kind):
        return _described_list(typing.get_args(kind), wanted_length(kind))
    if is_length(kind):
        return 'a length like "500 steps"'
    return f"the name or the table of one {kind.kind}" if is_kind(kind) else _NAMES.get(kind, "a table")


def _described_list(items: Sequence[Any], length: int | None) -> str:
    """As "a list of integers", "two numbers", "a list of 3: text, an integer, a number"."""
    one = described(items[0])
    if length is None:
        return f"a list of {one if items[0] is str else _PLURALS.get(one, one)}"
    if length == 2 and items[0] is items[1] and one in _PLURALS:  # noqa: PLR2004 - as a pair's columns
        return f"two {_PLURALS[one]}"
    return f"a list of {length}: {', '.join(map(described, items))}"


_NAMES: dict[Any, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "text",
    Any: "a value",
    InputPath: "a path",
    Path: "a path",
    Source: 'a folder, "run:NAME" or "hub:ORG/NAME"',
}
_PLURALS = {"text": "texts", "an integer": "integers", "a number": "numbers", "a path": "paths", "a table": "tables"}


def fits(kind: Any, value: Any) -> bool:
    """Whether a TOML value has the shape of a type, without looking inside lists and tables."""
    if is_literal(kind):
        return any(type(value) is type(option) and value == option for option in typing.get_args(kind))
    if kind is Any:
        return True
    return type(value) in _SHAPES.get(kind, ()) or isinstance(value, _shape(kind))


_SHAPES: dict[Any, tuple[type, ...]] = {bool: (bool,), int: (int,), float: (int, float)}
"""Exactly these: a boolean is no integer."""


def _shape(kind: Any) -> tuple[type, ...]:
    if kind in _SHAPES:
        return ()
    if kind in _TEXTS or is_length(kind):
        return (str,)
    if is_list(kind):
        return (list,)
    return (str, dict) if is_kind(kind) else (dict,)


def wanted_length(kind: Any) -> int | None:
    """How many elements a list of this type has; None where it may be any number, or it is no list."""
    items = typing.get_args(kind)
    return len(items) if typing.get_origin(kind) is tuple and items[-1] is not Ellipsis else None


def shown_length(value: Sequence[Any]) -> str:
    """A list that is too long or too short, as a message quotes it."""
    return f"a list of {len(value)}" if value else "an empty list"


def settable(cls: type) -> list[attrs.Attribute[Any]]:
    """The fields that a table of this class may set."""
    return [field for field in attrs.fields(cls) if field.init]


@functools.cache
def field_types(cls: type) -> dict[str, Any]:
    """The resolved type of each field.

    attrs' own resolver asks for every annotation of the class, also of class variables, whose imports need not exist at
    run time; this one asks for the fields alone.

    :raises PluginError: a type is only imported for the type checker, or is none that TOML can give.
    """
    found: dict[str, Any] = {}
    for field in settable(cls):
        owner = _owner(cls, field.name)
        label = f"{owner.__module__}.{owner.__qualname__}: the type of its field {field.name}"
        alone = types.SimpleNamespace(__annotations__={field.name: field.type})
        namespace = vars(sys.modules[owner.__module__]) if owner.__module__ in sys.modules else {}
        try:
            found.update(typing.get_type_hints(alone, globalns=namespace))
        except (NameError, TypeError) as error:
            raise PluginError(
                f"{label} can't be resolved ({error}); import what it names outside `if TYPE_CHECKING`"
            ) from error
        if not _is_known(found[field.name]):
            raise PluginError(f"{label}, {found[field.name]}, is none that a TOML value can be checked against")
    return found


def _owner(cls: type, name: str) -> type:
    """The class of the hierarchy that defines the field."""
    for base in cls.__mro__:
        field = attrs.fields_dict(base).get(name) if attrs.has(base) else None
        if field is not None and not field.inherited:  # type: ignore[attr-defined] # attrs' stubs lack it
            return base
    return cls


def _is_known(kind: Any) -> bool:
    if is_literal(kind) or is_length(kind) or is_kind(kind) or is_table(kind):
        return True
    if is_union(kind):
        return all(_is_known(member) for member in members(kind))
    if is_list(kind):
        return all(_is_known(item) for item in typing.get_args(kind) if item is not Ellipsis)
    if is_mapping(kind):
        key, value = typing.get_args(kind)
        return key is str and _is_known(value)
    return kind in (bool, int, float, Any, *_TEXTS)
