"""What a component's settings are, for people: name, type, default, range and docstring of each field."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import re
import textwrap
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union

import attrs

from rtx_core.components import Component, InputPath, Source
from rtx_core.config.shapes import field_types, settable
from rtx_core.lengths import Interval, Length

if TYPE_CHECKING:
    from collections.abc import Iterator

_RULE = re.compile(r"<Validator for x (?P<rule>[<>]=? [^>]+)>|<(?:min|max)_len validator for (?P<size>\d+)>")
_PLAIN: dict[Any, str] = {
    bool: "true or false",
    int: "integer",
    float: "number",
    str: "text",
    Length: 'length, as "3 epochs"',
    Interval: 'length, as "3 epochs" or "20 minutes"',
    Source: 'folder, "run:NAME" or "hub:ORG/NAME"',
    InputPath: "path",
    Path: "path",
    Any: "any value",
}


@attrs.frozen(kw_only=True)
class Field:
    """One setting of a component."""

    name: str
    type: str
    """In words: what may be written in TOML."""
    required: bool
    default: str | None
    """As TOML writes it; None where the key is required, or where leaving it out is a value of its own."""
    rules: tuple[str, ...]
    """Bounds, as ``> 0.0``."""
    doc: str
    """The docstring under the field, on one line."""


def describe(component: type) -> list[Field]:
    """Every setting in the order of the class, those of its kind first."""
    docs, kinds = field_docs(component), field_types(component)
    return [
        Field(
            name=field.name,
            type=in_words(kinds[field.name]),
            required=field.default is attrs.NOTHING,
            default=_default(field),
            rules=tuple(match["rule"] for match in _RULE.finditer(repr(field.validator)) if match["rule"]),
            doc=docs.get(field.name, ""),
        )
        for field in settable(component)
    ]


def field_docs(component: type) -> dict[str, str]:
    """The docstring under each field, of base classes too; a class that says nothing anew keeps its base's."""
    docs: dict[str, str] = {}
    for base in reversed(component.__mro__):
        if attrs.has(base):
            docs.update(_docs_in(base))
    return docs


def _docs_in(component: type) -> Iterator[tuple[str, str]]:
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(component))).body[0]
    except (OSError, TypeError, SyntaxError):  # its source is not there (a notebook, a compiled module)
        return
    statements = getattr(body, "body", [])
    for field, below in itertools.pairwise(statements):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, " ".join(text.split())


def in_words(kind: Any) -> str:
    """What may be written for a type.

    >>> in_words(tuple[str, ...] | None)
    'list of text'
    """
    if kind in _PLAIN:
        return _PLAIN[kind]
    if typing.get_origin(kind) is not None:
        return _generic_in_words(typing.get_origin(kind), typing.get_args(kind))
    if inspect.isclass(kind) and issubclass(kind, Component):
        return f"{kind.kind} (its name, or a table with a type)"
    if attrs.has(kind):
        return f"table of {', '.join(field.name for field in attrs.fields(kind))}"
    return str(getattr(kind, "__name__", kind))


def _generic_in_words(origin: Any, arguments: tuple[Any, ...]) -> str:
    if origin is Literal:
        return " | ".join(_shown(argument) for argument in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(in_words(argument) for argument in arguments if argument is not type(None))
    if origin is tuple:
        return _list_in_words(arguments)
    if issubclass(origin, Mapping):
        return f"table of {in_words(arguments[1])}"
    return str(origin.__name__)


def _list_in_words(arguments: tuple[Any, ...]) -> str:
    if len(arguments) == 2 and arguments[1] is Ellipsis:  # noqa: PLR2004 - tuple[X, ...]
        return f"list of {in_words(arguments[0])}"
    return f"[{', '.join(in_words(argument) for argument in arguments)}]"


def _default(field: attrs.Attribute[Any]) -> str | None:
    default: Any = field.default
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        default = None if default.takes_self else default.factory()
    if default is attrs.NOTHING or default is None:
        return None
    return _shown(default)


def _shown(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, Length)):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_shown, value))}]"
    if attrs.has(type(value)):
        value = {field.name: inner for field in attrs.fields(type(value)) if (inner := getattr(value, field.name))}
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {_shown(inner)}' for key, inner in value.items())} }}" if value else "{}"
    return str(value)
