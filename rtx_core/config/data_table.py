"""``[data]``: sources of records for each set, with the table's own keys as their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from rtx_core.components import Component
from rtx_core.config.findings import Finding
from rtx_core.config.pipeline import DataSettings, Folds, Lint, Sources, Split, Stream
from rtx_core.config.resolved import plain
from rtx_core.config.structure import FAILED
from rtx_core.config.tree import dotted

if TYPE_CHECKING:
    from rtx_core.config.structure import Structurer
    from rtx_core.config.tree import Node

SETS = ("train", "eval", "test")
_FOLD_KEYS = ("folds", "fold")
_STREAM_KEYS = ("streaming", "shuffle_window")
_SHUFFLE_WINDOW = 10_000
_count_of_folds = attrs.validators.and_(attrs.validators.ge(2), attrs.validators.le(1000))  # each fold is a run
FROM_PYTHON = "python"
"""The ``type`` that resolved.toml gives to records that were handed over in Python; no file can say where they are."""


@attrs.frozen(kw_only=True)
class Weight:
    """The key that the core adds to each of several sources."""

    weight: float | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.gt(0.0)))
    """How much of an epoch is of this source."""


@attrs.frozen(kw_only=True)
class FoldKeys:
    """The keys that the core takes for cross-validation."""

    folds: int | None = attrs.field(default=None, validator=attrs.validators.optional(_count_of_folds))
    """Parts of the training data."""
    fold: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(1)))
    """The one that is held out."""


@attrs.frozen(kw_only=True)
class StreamKeys:
    """The keys that the core adds to the training source."""

    streaming: bool = False
    """Read and encode the records as they are needed, instead of all before the first step."""
    shuffle_window: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(1)))
    """Records that are shuffled together; None: 10,000."""


def data_settings(node: Node, make: Structurer, given: Mapping[str, Any]) -> Any:
    """The sources of ``[data]``, or :data:`FAILED`.

    :param given: sources from Python by set, in place of what the file says; of ``eval`` a mapping of names.
    """
    table = make.as_table(node)
    if table is None:
        return FAILED
    defaults = table.without(*SETS, "split", "lint", *_FOLD_KEYS)
    written = [name for name in SETS if name in table.value and name not in given]
    stream = None
    if "train" in written and table.value["train"].table is not None:
        stream = _stream(table.value["train"], make)
        table = attrs.evolve(table, value={**table.value, "train": table.value["train"].without(*_STREAM_KEYS)})
    values = {**{name: _set(table.value[name], defaults, make) for name in written}, **given, "stream": stream}
    if "train" not in values:
        make.findings.append(Finding.missing(table, "train", "missing table; it says where the records are"))
        return FAILED
    for name, cls in (("split", Split), ("lint", Lint)):
        if name in table.value:
            values[name] = make.value(table.value[name], cls)
    values["folds"] = _folds(table, make)
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
        resolved["train"] = {**table("data", "train"), **_resolved_stream(settings.stream)}
    if "" in settings.eval:
        resolved["eval"] = table("data", "eval")
    else:
        resolved["eval"] = {name: table("data", "eval", name) for name in settings.eval} or None
    resolved["test"] = None if settings.test is None else table("data", "test")
    folds = settings.folds
    return {
        **resolved,
        "split": plain(settings.split, ("data", "split"), types),
        "folds": None if folds is None else folds.count,
        "fold": None if folds is None else folds.index,
        "lint": plain(settings.lint, ("data", "lint"), types),
    }


def _stream(train: Node, make: Structurer) -> Any:
    """How the training source is streamed, None where it is not, or :data:`FAILED`."""
    written = {name: node for name, node in train.value.items() if name in _STREAM_KEYS}
    keys = make.table(attrs.evolve(train, value=written), StreamKeys)
    if keys is FAILED:
        return FAILED
    if keys.streaming:
        return Stream(shuffle_window=_SHUFFLE_WINDOW if keys.shuffle_window is None else keys.shuffle_window)
    if keys.shuffle_window is not None:
        message = "only what is streamed is shuffled in windows; write streaming = true beside it, or leave it out"
        make.findings.append(Finding.at(written["shuffle_window"], message, spot="key"))
        return FAILED
    return None


def _resolved_stream(stream: Stream | None) -> dict[str, Any]:
    return {} if stream is None else {"streaming": True, "shuffle_window": stream.shuffle_window}


def _folds(table: Node, make: Structurer) -> Any:
    """The parts for cross-validation, or None, or :data:`FAILED`."""
    written = {name: node for name, node in table.value.items() if name in _FOLD_KEYS}
    keys = make.table(attrs.evolve(table, value=written), FoldKeys)
    if keys is FAILED:
        return FAILED
    problem = None
    if keys.folds is None and keys.fold is not None:
        problem = "there are no folds; write folds = 5 beside it"
    elif keys.fold is not None and keys.fold > keys.folds:
        problem = f"there are only {keys.folds} folds"
    if problem is not None:
        make.findings.append(Finding.at(written["fold"], problem))
        return FAILED
    return None if keys.folds is None else Folds(count=keys.folds, index=keys.fold)


def eval_names(tree: Node, data: DataSettings | None) -> list[str] | None:
    """The names of the evaluation sets, also of those with a mistake in them; None where they can't be told."""
    if data is not None:
        return data.eval_names
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
