"""The records of a run: read from their sources, and split where the pipeline asks for it."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import attrs

from rtx_core.config.pipeline import Sources
from rtx_core.config.tree import dotted
from rtx_core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rtx_core.config import Pipeline
    from rtx_core.config.pipeline import Split
    from rtx_core.samples import Record


@attrs.frozen(kw_only=True, eq=False)
class Records:
    """Everything that was read."""

    train: Sequence[Record]
    """Of all sources, one after the other."""
    sizes: tuple[int, ...]
    """How many of the training records are of each source."""
    weights: tuple[float, ...] | None
    """How much of an epoch is of each source; None takes all of each."""
    eval: dict[str, Sequence[Record]]
    """By the evaluation set's name; empty for a single one."""
    test: Sequence[Record] | None
    fingerprints: dict[str, str]
    """sha256 of the contents by table (``train``, ``train[1]``, ``eval``, ``eval.clean``, ``test``)."""


def read_records(pipeline: Pipeline) -> Records:
    """Read every source of a pipeline.

    :raises DataError: a file is missing, empty or malformed.
    """
    data = pipeline.data
    fingerprints = {dotted(keys).removeprefix("data."): one.fingerprint() for keys, one in data.by_place().items()}
    several = data.train if isinstance(data.train, Sources) else None
    sources = [list(one.records()) for one in ((data.train,) if several is None else several.sources)]
    evals: dict[str, Sequence[Record]] = {name: list(source.records()) for name, source in data.eval.items()}
    test: Sequence[Record] | None = list(data.test.records()) if data.test is not None else None
    if data.split is not None:
        sources, held_out, last = split(sources, data.split, seed=pipeline.run.seed, stratum=pipeline.task.stratum)
        if held_out:
            evals[""] = held_out
        if last:
            test = last
    return Records(
        train=list(itertools.chain.from_iterable(sources)),
        sizes=tuple(map(len, sources)),
        weights=None if several is None else several.weights,
        eval=evals,
        test=test,
        fingerprints=fingerprints,
    )


def split(
    sources: Sequence[Sequence[Record]], settings: Split, *, seed: int, stratum: Callable[[Record], str]
) -> tuple[list[list[Record]], list[Record], list[Record]]:
    """The training records of each source, and the evaluation and test records of all: those with the smallest hashes.

    A pure function of the set of records and the seed, whatever their order. Equal records stay on one side, also if
    they are in different sources.

    :raises InputError: a share is so small that it holds out nothing, or nothing is left.
    """
    by_label: dict[str, list[tuple[int, Record]]] = defaultdict(list)
    for number, source in enumerate(sources):
        for record in source:
            by_label[stratum(record) if settings.stratify else ""].append((number, record))
    trains: list[list[Record]] = [[] for _ in sources]
    evals: list[Record] = []
    tests: list[Record] = []
    for members in by_label.values():
        for_test, for_eval = round(settings.test * len(members)), round(settings.eval * len(members))
        hashes = [_hash(record, seed) for _, record in members]
        side = _sides(Counter(hashes), for_test, for_eval)
        for (number, record), digest in zip(members, hashes, strict=True):
            (trains[number], evals, tests)[side[digest]].append(record)
    total = sum(map(len, sources))
    for name, share, part in (("eval", settings.eval, evals), ("test", settings.test, tests)):
        if share and not part:
            within = " of each label" if settings.stratify else ""
            raise InputError(
                f"data.split.{name}: a share of {share:g}{within} holds out none of the {total} records; "
                "give a larger share or more data"
            )
    if not any(trains):
        raise InputError(f"data.split: of {total} records, equal ones taken together, none is left to train on")
    return trains, evals, tests


_TRAIN, _EVAL, _TEST = range(3)


def _sides(groups: Mapping[bytes, int], for_test: int, for_eval: int) -> dict[bytes, int]:
    """Where each group of equal records goes, by its hash: a side takes what still fits, the smallest hashes first.

    A group that is larger than what is held out stays in training, so that the shares are kept.
    """
    side: dict[bytes, int] = {}
    for digest, size in sorted(groups.items()):
        if size <= for_test:
            side[digest], for_test = _TEST, for_test - size
        elif size <= for_eval:
            side[digest], for_eval = _EVAL, for_eval - size
        else:
            side[digest] = _TRAIN
    return side


def _hash(record: Record, seed: int) -> bytes:
    text = json.dumps([seed, record.values], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
