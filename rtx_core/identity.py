"""What the records of a pipeline, and what is made of them, depend on: plain data for the keys of the cache."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from rtx_core.cache import digest, stamps
from rtx_core.config.tree import dotted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rtx_core.components import Component, Data
    from rtx_core.config import Pipeline
    from rtx_core.config.tree import Keys

_NOT_OF_RECORDS = {"files", "weight", "streaming", "shuffle_window"}
"""Keys of a source that say where its files are, which its fingerprint answers for, or how often they are taken."""


@attrs.frozen(eq=False)
class Identities:
    """The identity of each thing that is made of the data."""

    _pipeline: Pipeline
    _fingerprints: Mapping[str, str]
    """By table, as :class:`rtx_core.reading.Records` has them."""

    @property
    def train(self) -> dict[str, Any]:
        """Of the training records."""
        return self._training("train")

    @property
    def test(self) -> dict[str, Any]:
        """Of the test records."""
        source = self._pipeline.data.test
        return self._training("test") if source is None else self._source(("data", "test"), source)

    def eval(self, name: str) -> dict[str, Any]:
        """Of an evaluation set's records; the name is empty for a single one."""
        source = self._pipeline.data.eval.get(name)
        if source is None:
            return self._training("eval")
        return self._source(("data", "eval", name) if name else ("data", "eval"), source)

    def component(self, table: str) -> dict[str, Any]:
        """Of the component of a table."""
        return of_component(self._pipeline, (table,), getattr(self._pipeline, table))

    @property
    def special_tokens(self) -> dict[str, Any]:
        """Of the tokens that the architecture needs."""
        return attrs.asdict(self._pipeline.architecture.special_tokens)

    def _training(self, side: str) -> dict[str, Any]:
        """Of the records of all training sources that are on one side."""
        data = self._pipeline.data
        sources = [self._source(keys, source) for keys, source in data.by_place().items() if keys[1] == "train"]
        if data.split is None and data.folds is None:
            return {"sources": sources}
        split = None if data.split is None else attrs.asdict(data.split)
        chosen = None if split is None else split.pop("seed")
        return {
            "sources": sources,
            "side": side,
            "split": split,
            "folds": None if data.folds is None else attrs.asdict(data.folds),
            "seed": self._pipeline.run.seed if chosen is None else chosen,
            "task": self.component("task"),  # it says which label a record has
        }

    def _source(self, keys: Keys, source: Data) -> dict[str, Any]:
        fingerprint: Any = self._fingerprints[dotted(keys).removeprefix("data.")]
        if keys == ("data", "train") and self._pipeline.data.stream is not None:
            # Their fingerprint is no more than names and sizes.
            fingerprint = [fingerprint, stamps(source)]
        return {**of_component(self._pipeline, keys, source), "fingerprint": fingerprint}


def of_component(pipeline: Pipeline, keys: Keys, component: Component) -> dict[str, Any]:
    """A component with its settings, where it comes from, and its code.

    :param keys: its place in the pipeline.
    """
    chosen = pipeline.chosen.get(dotted(keys))  # none for records that Python handed over
    settings: Any = pipeline.resolved
    for key in keys:
        settings = settings[key]
    return {
        "source": None if chosen is None else f"{chosen.kind}.{chosen.name} of {chosen.source}",
        "code": code_of(type(component)),
        "settings": {name: value for name, value in settings.items() if name not in _NOT_OF_RECORDS},
    }


def code_of(component: type) -> str:
    """Sha256 of the code of a component and of its bases: each class's file, and those beside it in its package.

    A version alone would not do for who works on a plugin, where it stays the same from one try to the next.
    """
    files: set[Path] = set()
    for cls in component.__mro__:
        module = sys.modules.get(cls.__module__)
        source = getattr(module, "__file__", None)
        if source is None or cls.__module__.partition(".")[0] in ("rtx_core", "builtins", "typing"):
            continue
        files |= set(Path(source).parent.glob("*.py")) if getattr(module, "__package__", None) else {Path(source)}
    return digest(sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in files))
