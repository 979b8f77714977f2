"""Every value that a pipeline uses as plain TOML data, and as the text of ``resolved.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import tomlkit

from rtx_core.components import Component, Source
from rtx_core.config.shapes import settable
from rtx_core.config.tree import Keys, dotted
from rtx_core.lengths import Length

if TYPE_CHECKING:
    from tomlkit.items import AbstractTable

    from rtx_core.config.pipeline import Pipeline


def plain(value: Any, keys: Keys, types: Mapping[str, str]) -> Any:
    """Settings as TOML data: lengths and sources as text, paths absolute, a component with its ``type``; None stays.

    :param keys: the value's place in the pipeline.
    :param types: the ``type`` of each component by dotted key.
    """
    if isinstance(value, Length | Source | Path):
        return str(value)
    if attrs.has(type(value)):
        fields = {field.name: getattr(value, field.name) for field in settable(type(value))}
        named = {"type": types[dotted(keys)]} if isinstance(value, Component) and dotted(keys) in types else {}
        return {**named, **{name: plain(item, (*keys, name), types) for name, item in fields.items()}}
    if isinstance(value, Mapping):
        return {name: plain(item, (*keys, name), types) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item, (*keys, index), types) for index, item in enumerate(value)]
    return value


def resolved_toml(pipeline: Pipeline) -> str:
    """The text of ``resolved.toml``; a value that is None stands as a comment, so that the key is seen."""
    document = tomlkit.document()
    _fill(document, pipeline.resolved)
    return tomlkit.dumps(document)


def _fill(table: tomlkit.TOMLDocument | AbstractTable, data: Mapping[str, Any]) -> None:
    # Plain values first: a key that follows a table's header would belong to that table.
    for key, value in data.items():
        if value is None:
            table.add(tomlkit.comment(f"{key} = (left out)"))
        elif not _is_table(value) and not _is_list_of_tables(value):
            table.add(key, tomlkit.inline_table() if value == {} else value)
    for key, value in data.items():
        if _is_table(value):
            inner = tomlkit.table()
            _fill(inner, value)
            table.add(key, inner)
        elif _is_list_of_tables(value):
            elements = tomlkit.aot()
            for item in value:
                element = tomlkit.table()
                _fill(element, item)
                elements.append(element)
            table.add(key, elements)


def _is_table(value: object) -> bool:
    """What gets a header; an empty one reads better as ``{}``."""
    return isinstance(value, Mapping) and bool(value)


def _is_list_of_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_table(item) for item in value)
