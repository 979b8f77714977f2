"""Pipeline → data ready for training: records, tokenizer, encoded samples, and the length of the run in steps.

Everything here needs no model.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import TYPE_CHECKING, TypeVar

import attrs

from rtx_core import epochs
from rtx_core.config.pipeline import eval_name
from rtx_core.dataset import SampleStore
from rtx_core.errors import DataError, InputError
from rtx_core.folder import write_text_atomically
from rtx_core.reading import Records, read_records
from rtx_core.registry import built

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    import tokenizers

    from rtx_core.components import Architecture, Outputs, TaskPart
    from rtx_core.config import Pipeline
    from rtx_core.console import Console
    from rtx_core.lengths import Horizon
    from rtx_core.order import Cutting, EpochOrder
    from rtx_core.samples import Record, Sample

Part = TypeVar("Part")

_DEFAULT_MAX_LENGTH = 512


@attrs.frozen(kw_only=True, eq=False)
class Prepared:
    """The data of a run, encoded, and its length in steps; no model yet."""

    records: Records
    tokenizer: tokenizers.Tokenizer
    outputs: Outputs
    task: TaskPart
    train: SampleStore
    eval: dict[str, SampleStore]
    """By the evaluation set's name; empty for a single one."""
    test: SampleStore | None
    order: EpochOrder
    """Which training samples an epoch has."""
    cutting: Cutting
    horizon: Horizon
    max_length: int
    """Tokens of the longest sequence that is kept."""
    vocab_size: int
    """Rows of the token table."""

    @property
    def fingerprint(self) -> str:
        """sha256 of the tokenizer."""
        return hashlib.sha256(self.tokenizer.to_str().encode()).hexdigest()


def prepare(pipeline: Pipeline, *, console: Console, tokenizer_folder: Path | None = None) -> Prepared:
    """Read the data, make the tokenizer, encode, and count the steps.

    :param tokenizer_folder: where a tokenizer of an earlier start of this run is kept, and a new one is written.
    :raises InputError: data, tokenizer, task and architecture don't fit together.
    """
    records = read_records(pipeline)
    tokenizer = _tokenizer(pipeline, records.train, tokenizer_folder)
    vocab_size = _table_rows(pipeline.architecture, tokenizer)
    max_length = _max_length(pipeline)
    outputs = pipeline.task.outputs(records.train, vocab_size)
    special_tokens = pipeline.architecture.special_tokens
    task = built_part(
        pipeline, "task", pipeline.task.build, tokenizer, outputs, max_length=max_length, special_tokens=special_tokens
    )
    train, sizes = _encoded_sources(task, records, console)
    order = epochs.order(pipeline.run.seed, sizes, records.weights)
    evals = {name: _encoded(task, rows, eval_name(name), console) for name, rows in records.eval.items()}
    test = None if records.test is None else _encoded(task, records.test, "test", console)
    cutting = epochs.cutting(pipeline, order.size)
    return Prepared(
        records=records,
        tokenizer=tokenizer,
        outputs=outputs,
        task=task,
        train=train,
        eval=evals,
        test=test,
        cutting=cutting,
        horizon=epochs.horizon(pipeline, cutting, epochs.tokens_per_epoch(train, order)),
        order=order,
        max_length=max_length,
        vocab_size=vocab_size,
    )


def built_part(
    pipeline: Pipeline, table: str, build: Callable[..., Part], *arguments: object, **settings: object
) -> Part:
    """The part of a table (``callbacks.ema``); an error says whose it is.

    :raises PluginError: there is none.
    """
    kind, dot, name = table.partition(".")
    chosen = pipeline.chosen.get(table)
    source = "" if chosen is None else chosen.source
    return built(f"{kind.removesuffix('s')}.{name}" if dot else table, source, build, *arguments, **settings)


def task_name(pipeline: Pipeline) -> str:
    """The name of the pipeline's task, as ``masked_lm``."""
    return pipeline.chosen["task"].name


def _tokenizer(pipeline: Pipeline, records: Sequence[Record], folder: Path | None) -> tokenizers.Tokenizer:
    import tokenizers

    kept = None if folder is None else folder / "tokenizer.json"
    if kept is not None and kept.is_file():
        return tokenizers.Tokenizer.from_file(str(kept))
    texts = (text for record in records for text in pipeline.task.texts(record))
    tokenizer = built_part(pipeline, "tokenizer", pipeline.tokenizer.build, texts, pipeline.architecture.special_tokens)
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(kept, tokenizer.to_str(pretty=True))
    return tokenizer


def _table_rows(architecture: Architecture, tokenizer: tokenizers.Tokenizer) -> int:
    tokens = tokenizer.get_vocab_size(with_added_tokens=True)
    rows = architecture.vocab_size or tokens
    if tokens > rows:
        raise InputError(
            f"the tokenizer has {tokens} tokens, but the token table has only {rows} rows (architecture.vocab_size); "
            "take the tokenizer that belongs to the weights, or a larger table"
        )
    return rows


def _max_length(pipeline: Pipeline) -> int:
    usable, wanted = pipeline.architecture.usable_positions, pipeline.task.max_length
    if wanted is not None and usable is not None and wanted > usable:
        raise InputError(f"task.max_length: {wanted}, but the architecture has only {usable} usable positions")
    return wanted or usable or _DEFAULT_MAX_LENGTH


def _encoded(task: TaskPart, records: Sequence[Record], what: str, console: Console) -> SampleStore:
    return _stored(task.samples(records), task, records, what, console)


def _stored(
    samples: Iterable[Sample], task: TaskPart, records: Sequence[Record], what: str, console: Console
) -> SampleStore:
    store = SampleStore(samples)
    if not len(store):
        file = records[0].file if records else what
        raise DataError(file, None, f"gives no sample for {what}")
    for note in task.notes():
        console.say(f"{what}: {note}")
    return store


def _encoded_sources(task: TaskPart, records: Records, console: Console) -> tuple[SampleStore, list[int]]:
    """The training samples, and how many of them are of each source: a record may give several."""
    sizes: list[int] = []
    samples: list[Sample] = []
    rows = iter(records.train)
    for size in records.sizes:
        before = len(samples)
        samples += task.samples(itertools.islice(rows, size))
        sizes.append(len(samples) - before)
    return _stored(samples, task, records.train, "training", console), sizes
