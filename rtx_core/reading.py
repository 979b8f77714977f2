"""The records of a run: read from their sources, and split where the pipeline asks for it."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rtx_core.config import Pipeline
    from rtx_core.config.pipeline import Split
    from rtx_core.samples import Record


@attrs.frozen(kw_only=True, eq=False)
class Records:
    """Everything that was read."""

    train: Sequence[Record]
    eval: dict[str, Sequence[Record]]
    """By the evaluation set's name; empty for a single one."""
    test: Sequence[Record] | None
    fingerprints: dict[str, str]
    """sha256 of the contents by table (``train``, ``eval``, ``eval.clean``, ``test``)."""


def read_records(pipeline: Pipeline) -> Records:
    """Read every source of a pipeline.

    :raises DataError: a file is missing, empty or malformed.
    """
    data = pipeline.data
    sources = {"train": data.train, **{f"eval.{name}".rstrip("."): source for name, source in data.eval.items()}}
    if data.test is not None:
        sources["test"] = data.test
    fingerprints = {name: source.fingerprint() for name, source in sources.items()}
    train: Sequence[Record] = list(data.train.records())
    evals: dict[str, Sequence[Record]] = {name: list(source.records()) for name, source in data.eval.items()}
    test: Sequence[Record] | None = list(data.test.records()) if data.test is not None else None
    if data.split is not None:
        train, held_out, last = split(train, data.split, seed=pipeline.run.seed, stratum=pipeline.task.stratum)
        if held_out:
            evals[""] = held_out
        if last:
            test = last
    return Records(train=train, eval=evals, test=test, fingerprints=fingerprints)


def split(
    records: Sequence[Record], settings: Split, *, seed: int, stratum: Callable[[Record], str]
) -> tuple[list[Record], list[Record], list[Record]]:
    """Training, evaluation and test records: those with the smallest hashes are held out.

    A pure function of the set of records and the seed, whatever their order. Equal records stay on one side.
    """
    by_label: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_label[stratum(record) if settings.stratify else ""].append(record)
    parts: tuple[list[Record], list[Record], list[Record]] = ([], [], [])
    for members in by_label.values():
        tests, evals = round(settings.test * len(members)), round(settings.eval * len(members))
        # Equal records have equal hashes: a group goes where its first member goes.
        side: dict[bytes, int] = {}
        hashes = [_hash(record, seed) for record in members]
        for place, digest in enumerate(sorted(hashes)):
            side.setdefault(digest, 2 if place < tests else 1 if place < tests + evals else 0)
        for record, digest in zip(members, hashes, strict=True):
            parts[side[digest]].append(record)
    return parts


def _hash(record: Record, seed: int) -> bytes:
    text = json.dumps([seed, record.values], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
