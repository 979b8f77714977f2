"""``[data]``: sources of records for each set, with the table's own keys as their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from rtx_core.components import Component
from rtx_core.config.findings import Finding
from rtx_core.config.pipeline import DataSettings, Sources, Split
from rtx_core.config.resolved import plain
from rtx_core.config.structure import FAILED
from rtx_core.config.tree import dotted

if TYPE_CHECKING:
    from rtx_core.config.structure import Structurer
    from rtx_core.config.tree import Node

SETS = ("train", "eval", "test")
FROM_PYTHON = "python"
"""The ``type`` that resolved.toml gives to records that were handed over in Python; no file can say where they are."""


@attrs.frozen(kw_only=True)
class Weight:
    """The key that the core adds to each of several sources."""

    weight: float | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.gt(0.0)))
    """How much of an epoch is of this source."""


def data_settings(node: Node, make: Structurer, given: Mapping[str, Any]) -> Any:
    """The sources of ``[data]``, or :data:`FAILED`.

    :param given: sources from Python by set, in place of what the file says; of ``eval`` a mapping of names.
    """
    table = make.as_table(node)
    if table is None:
        return FAILED
    defaults = table.without(*SETS, "split")
    written = [name for name in SETS if name in table.value and name not in given]
    values = {**{name: _set(table.value[name], defaults, make) for name in written}, **given}
    if "train" not in values:
        make.findings.append(Finding.missing(table, "train", "missing table; it says where the records are"))
        return FAILED
    if "split" in table.value:
        values["split"] = make.value(table.value["split"], Split)
    if isinstance(values.get("eval"), Component):
        values["eval"] = {"": values["eval"]}
    if any(value is FAILED for value in values.values()):
        return FAILED
    settings = DataSettings(**values)
    make.types |= {dotted(keys): FROM_PYTHON for keys in settings.by_place() if keys[1] in given}
    return settings


def resolved_data(settings: DataSettings, types: Mapping[str, str]) -> dict[str, Any]:
    """The table as plain data that gives the same sources again."""

    def table(*keys: str | int) -> Any:
        source = sources[keys]
        # What was handed over in Python has no settings that a file could hold.
        return {"type": FROM_PYTHON} if types[dotted(keys)] == FROM_PYTHON else plain(source, keys, types)

    sources, train = settings.by_place(), settings.train
    resolved: dict[str, Any] = {}
    if isinstance(train, Sources):
        weights = train.weights or (None,) * len(train.sources)
        resolved["train"] = [
            {**table("data", "train", index), "weight": weight} for index, weight in enumerate(weights)
        ]
    else:
        resolved["train"] = table("data", "train")
    if "" in settings.eval:
        resolved["eval"] = table("data", "eval")
    else:
        resolved["eval"] = {name: table("data", "eval", name) for name in settings.eval} or None
    resolved["test"] = None if settings.test is None else table("data", "test")
    return {**resolved, "split": plain(settings.split, ("data", "split"), types)}


def eval_names(tree: Node, data: DataSettings | None) -> list[str] | None:
    """The names of the evaluation sets, also of those with a mistake in them; None where they can't be told."""
    if data is not None:
        return list(data.eval) or ([""] if data.split is not None and data.split.eval else [])
    node = tree.find(("data", "eval"))
    if node is None or node.table is None:
        return None
    return list(node.table) if _is_several(node) else [""]


def _set(node: Node, defaults: Node, make: Structurer) -> Any:
    """The records of ``train``, ``eval`` or ``test``: a component, or several evaluation sets by name."""
    read = make.read(node, Mapping[str, Any] | tuple[Mapping[str, Any], ...])
    if read is None:
        return FAILED
    if isinstance(read.value, list):
        return _several(read, defaults, make)
    table = make.as_table(read)
    if table is None:
        return FAILED
    if table.keys == ("data", "eval") and _is_several(table):
        sets = {name: _records(child, defaults, make) for name, child in table.value.items()}
        return FAILED if any(value is FAILED for value in sets.values()) else sets
    return _records(table, defaults, make)


def _several(node: Node, defaults: Node, make: Structurer) -> Any:
    """Several sources of training records, each with a weight or none with one."""
    if node.keys != ("data", "train"):
        hint = "; several evaluation sets have names: [data.eval.NAME]" if node.keys == ("data", "eval") else ""
        make.findings.append(Finding.at(node, f"only train has several sources, give one table{hint}", spot="key"))
        return FAILED
    if not node.value:
        make.findings.append(Finding.at(node, "expected at least one source, got an empty list"))
        return FAILED
    tables = [make.as_table(child) for child in node.value]
    found = [(FAILED, FAILED) if table is None else _weighted(table, defaults, make) for table in tables]
    if any(FAILED in pair for pair in found):
        return FAILED
    sources, weights = zip(*found, strict=True)
    if None not in weights:
        return Sources(sources=sources, weights=weights)
    without = [table for table, weight in zip(tables, weights, strict=True) if weight is None]
    if len(without) < len(weights):
        message = "missing; other sources have one: give every source a weight, or none"
        make.findings += [Finding.missing(table, "weight", message) for table in without if table is not None]
        return FAILED
    return Sources(sources=sources)


def _weighted(table: Node, defaults: Node, make: Structurer) -> tuple[Any, Any]:
    """A source and its weight."""
    source = _records(table.without("weight"), defaults, make)
    own = attrs.evolve(table, value={key: child for key, child in table.value.items() if key == "weight"})
    weight = make.table(own, Weight)
    return source, FAILED if weight is FAILED else weight.weight


def _is_several(node: Node) -> bool:
    """Whether ``[data.eval]`` holds nothing but tables: the evaluation sets."""
    return bool(node.value) and all(child.table is not None for child in node.value.values())


def _records(node: Node, defaults: Node, make: Structurer) -> Any:
    """One source of records. The keys of ``[data]`` are its defaults, unless it is of another type."""
    written, default = node.value.get("type"), defaults.value.get("type")
    if written is not None and written.text == FROM_PYTHON:
        message = "these records came from Python: Pipeline.load(…, data={…}) hands them over again"
        make.findings.append(Finding.at(written, message))
        return FAILED
    entries = node.value
    if written is None or (default is not None and written.text == default.text):
        entries = {key: child.moved((*node.keys, key)) for key, child in defaults.value.items()} | entries
    return make.component("data", attrs.evolve(node, value=entries))
