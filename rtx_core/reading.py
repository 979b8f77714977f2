"""The records of a run: where they are read from, and which of them a split holds out. None is kept in memory."""

from __future__ import annotations

import array
import hashlib
import itertools
import json
from functools import cached_property
from typing import TYPE_CHECKING

import attrs
import numpy as np

from rtx_core.config.pipeline import Sources, Split
from rtx_core.config.tree import dotted
from rtx_core.errors import DataError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rtx_core.components import Data, Task
    from rtx_core.config import Pipeline
    from rtx_core.config.pipeline import DataSettings, Folds
    from rtx_core.config.tree import Keys
    from rtx_core.samples import Record

_TRAIN, _EVAL, _TEST = range(3)


@attrs.frozen(eq=False)
class RecordSet:
    """Records of one source or of several, one after the other; each iteration reads them again."""

    _sources: tuple[Data, ...]
    _numbers: tuple[int, ...]
    """The number of each source among the training sources; of no use without a division."""
    _division: Division | None = None
    _side: int = _TRAIN

    def __iter__(self) -> Iterator[Record]:
        for number, source in zip(self._numbers, self._sources, strict=True):
            records = source.records()
            if self._division is None:
                yield from records
            else:
                yield from _those_on(self._side, records, self._division.sides[number])


@attrs.frozen(kw_only=True, eq=False)
class Records:
    """Everything that can be read."""

    sources: tuple[RecordSet, ...]
    """The training records of each source."""
    train: RecordSet
    """The training records of all sources, one after the other."""
    weights: tuple[float, ...] | None
    """How much of an epoch is of each source; None takes all of each."""
    eval: dict[str, RecordSet]
    """By the evaluation set's name; empty for a single one."""
    test: RecordSet | None
    fingerprints: dict[str, str]
    """sha256 of the contents by table (``train``, ``train[1]``, ``eval``, ``eval.clean``, ``test``)."""


def read_records(pipeline: Pipeline, fingerprint: Callable[[Keys, Data], str] | None = None) -> Records:
    """Look at every source of a pipeline.

    :param fingerprint: that of a source, by its place in the pipeline; None takes each anew.
    :raises DataError: a file is missing or can't be read.
    """
    data = pipeline.data
    taken = fingerprint or (lambda _keys, source: source.fingerprint())
    fingerprints = {
        dotted(keys).removeprefix("data."): names_and_sizes(source)
        if keys == ("data", "train") and data.stream is not None
        else taken(keys, source)
        for keys, source in data.by_place().items()
    }
    several = data.train if isinstance(data.train, Sources) else None
    sources = (data.train,) if several is None else several.sources
    evals = {name: RecordSet((source,), (0,)) for name, source in data.eval.items()}
    test = None if data.test is None else RecordSet((data.test,), (0,))
    division, numbers = None, tuple(range(len(sources)))
    if data.split is not None or data.folds is not None:
        division = Division(sources, data, pipeline.run.seed, pipeline.task)
        if division.split.eval or data.folds is not None:
            evals[""] = RecordSet(sources, numbers, division, _EVAL)
        if division.split.test:
            test = RecordSet(sources, numbers, division, _TEST)
    return Records(
        sources=tuple(RecordSet((source,), (number,), division) for number, source in enumerate(sources)),
        train=RecordSet(sources, numbers, division),
        weights=None if several is None else several.weights,
        eval=evals,
        test=test,
        fingerprints=fingerprints,
    )


def names_and_sizes(source: Data) -> str:
    """What tells whether streamed data changed without reading them: names and sizes of their files, in order.

    :raises DataError: a file is missing.
    """
    paths = source.paths()
    if paths is None:
        return source.fingerprint()
    total = hashlib.sha256()
    for path in paths:
        try:
            total.update(f"{path.name}\0{path.stat().st_size}\n".encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise DataError(path, None, f"can't be read: {error.strerror}") from error
    return total.hexdigest()


@attrs.frozen(eq=False, slots=False)
class Division:
    """Which of the training records are held out, by a split or as a fold; decided when it is first asked for."""

    _sources: tuple[Data, ...]
    _data: DataSettings
    _seed: int
    """The run's; a split may have its own."""
    _task: Task

    @property
    def split(self) -> Split:
        """The shares; folds alone take none."""
        return self._data.split or Split()

    @cached_property
    def sides(self) -> list[bytes]:
        """The side of each record, a byte each, by source."""
        by_label = self.split.stratify or (self._data.folds is not None and self._task.has_stratum)
        return divide(
            [source.records() for source in self._sources],
            self.split,
            seed=self._seed if self.split.seed is None else self.split.seed,
            stratum=self._task.stratum if by_label else None,
            folds=self._data.folds,
        )


def _those_on(side: int, records: Iterable[Record], sides: bytes) -> Iterator[Record]:
    for number, record in enumerate(records):
        if number >= len(sides):
            raise DataError(record.file, record.line, "the data have more records than a moment ago")
        if sides[number] == side:
            yield record


def divide(
    sources: Sequence[Iterable[Record]],
    settings: Split,
    *,
    seed: int,
    stratum: Callable[[Record], str] | None = None,
    folds: Folds | None = None,
) -> list[bytes]:
    """The side of each record of each source, a byte each: 0 to train on, 1 evaluation, 2 test.

    Held out are those with the smallest hashes of all sources: a pure function of the set of records and the seed,
    whatever their order. Equal records are on one side, also if they are in different sources. Keeps 20 bytes a record.

    :param stratum: the label whose shares are kept; None keeps those of the whole.
    :param folds: one part of what the shares leave is held out for evaluation.
    :raises InputError: a share is so small that it holds out nothing, or nothing is left.
    """
    hashes, strata, sizes = bytearray(), array.array("l"), [0]
    numbers: dict[str, int] = {}
    for source in sources:
        for record in source:
            hashes += _hash(record, seed)
            name = "" if stratum is None else stratum(record)
            strata.append(numbers.setdefault(name, len(numbers)))
        sizes.append(len(strata))
    of_records = np.frombuffer(hashes, ">u8").reshape(-1, 2)
    sides, filled = _sides(of_records, np.array(strata, np.int64), settings, folds)
    _refuse_empty(sides, of_records, settings, stratified=stratum is not None)
    # Whichever is held out now, so that a series doesn't train its first folds only to find that a later one is empty.
    empty = () if folds is None else [fold for fold in range(1, folds.count + 1) if fold not in filled]
    if folds is not None and empty:
        raise InputError(f"data.folds: fold {empty[0]} of {folds.count} has no record; take fewer folds")
    return [sides[start:stop].tobytes() for start, stop in itertools.pairwise(sizes)]


def _sides(hashes: np.ndarray, strata: np.ndarray, settings: Split, folds: Folds | None) -> tuple[np.ndarray, set[int]]:
    """The side of each record, from its hash ``[N, 2]`` and the number of its stratum ``[N]``, and the folds, from 1,
    that have a record.
    """
    sides, filled = np.full(len(strata), _TRAIN, np.uint8), set[int]()
    order = np.lexsort((hashes[:, 1], hashes[:, 0], strata))
    ordered = strata[order]
    new_stratum = np.flatnonzero(np.diff(ordered, prepend=-1))
    for start, stop in zip(new_stratum, np.append(new_stratum[1:], len(order)), strict=True):
        members = order[start:stop]
        for_test, for_eval = round(settings.test * len(members)), round(settings.eval * len(members))
        changes = (hashes[members][1:] != hashes[members][:-1]).any(axis=1)
        begins = np.concatenate(([0], np.flatnonzero(changes) + 1, [len(members)]))
        # A side takes what still fits, the smallest hashes first. A group of equal records that is larger than what is
        # held out stays in training, so that the shares are kept.
        for begin, end in itertools.pairwise(begins):
            if not for_test and not for_eval:
                break
            size = int(end - begin)
            if size <= for_test:
                sides[members[begin:end]], for_test = _TEST, for_test - size
            elif size <= for_eval:
                sides[members[begin:end]], for_eval = _EVAL, for_eval - size
        if folds is not None:
            left = [(b, e) for b, e in itertools.pairwise(begins) if sides[members[b]] == _TRAIN]
            filled |= _hold_out(sides, members, left, folds)
    return sides, filled


def _hold_out(sides: np.ndarray, members: np.ndarray, groups: list[tuple[int, int]], folds: Folds) -> set[int]:
    """Put one of the folds of these groups of equal records on the side of evaluation; all that get a group."""
    total, before, filled = sum(end - begin for begin, end in groups), 0, set[int]()
    for begin, end in groups:
        fold = before * folds.count // total + 1
        filled.add(fold)
        if fold == (folds.index or 1):
            sides[members[begin:end]] = _EVAL
        before += end - begin
    return filled


def _refuse_empty(sides: np.ndarray, hashes: np.ndarray, settings: Split, *, stratified: bool) -> None:
    total = len(sides)
    for name, share, side in (("eval", settings.eval, _EVAL), ("test", settings.test, _TEST)):
        if share and side not in sides:
            within = " of each label" if stratified else ""
            different = len(np.unique(hashes, axis=0))
            equal = "" if different == total else f", of which {different} are different (equal ones stay together)"
            raise InputError(
                f"data.split.{name}: a share of {share:g}{within} holds out none of the {total} records{equal}; "
                "give a larger share or more data"
            )
    if _TRAIN not in sides:
        raise InputError(f"data.split: of {total} records, equal ones taken together, none is left to train on")


def _hash(record: Record, seed: int) -> bytes:
    text = json.dumps([seed, record.values], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
