"""``[data]``: one source of records for each set, with the table's own keys as their defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from rtx_core.components import Component
from rtx_core.config.findings import Finding
from rtx_core.config.pipeline import DataSettings, Split
from rtx_core.config.structure import FAILED

if TYPE_CHECKING:
    from rtx_core.config.structure import Structurer
    from rtx_core.config.tree import Node

SETS = ("train", "eval", "test")


def data_settings(node: Node, make: Structurer) -> Any:
    """The sources of ``[data]``, or :data:`FAILED`."""
    table = make.as_table(node)
    if table is None:
        return FAILED
    defaults = table.without(*SETS, "split")
    values = {name: _set(table.value[name], defaults, make) for name in SETS if name in table.value}
    if "train" not in values:
        make.findings.append(Finding.missing(table, "train", "missing table; it says where the records are"))
        return FAILED
    if "split" in table.value:
        values["split"] = make.value(table.value["split"], Split)
    if isinstance(values.get("eval"), Component):
        values["eval"] = {"": values["eval"]}
    return FAILED if any(value is FAILED for value in values.values()) else DataSettings(**values)


def eval_names(tree: Node, data: DataSettings | None) -> list[str] | None:
    """The names of the evaluation sets, also of those with a mistake in them; None where they can't be told."""
    node = tree.find(("data", "eval"))
    if node is not None:
        if node.table is None:
            return None
        return list(node.table) if _is_several(node) else [""]
    if data is None:
        return None
    return [""] if data.split is not None and data.split.eval else []


def _set(node: Node, defaults: Node, make: Structurer) -> Any:
    """The records of ``train``, ``eval`` or ``test``: a component, or several evaluation sets by name."""
    if isinstance(node.value, list):
        message = "several sources are not supported yet; give one table"
        make.findings.append(Finding.at(node, message, spot="key"))
        return FAILED
    table = make.as_table(node)
    if table is None:
        return FAILED
    if table.keys == ("data", "eval") and _is_several(table):
        sets = {name: _records(child, defaults, make) for name, child in table.value.items()}
        return FAILED if any(value is FAILED for value in sets.values()) else sets
    return _records(table, defaults, make)


def _is_several(node: Node) -> bool:
    """Whether ``[data.eval]`` holds nothing but tables: the evaluation sets."""
    return bool(node.value) and all(child.table is not None for child in node.value.values())


def _records(node: Node, defaults: Node, make: Structurer) -> Any:
    """One source of records. The keys of ``[data]`` are its defaults, unless it is of another type."""
    written, default = node.value.get("type"), defaults.value.get("type")
    entries = node.value
    if written is None or (default is not None and written.text == default.text):
        entries = {key: child.moved((*node.keys, key)) for key, child in defaults.value.items()} | entries
    return make.component("data", attrs.evolve(node, value=entries))
