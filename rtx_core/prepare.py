"""Pipeline → data ready for training: records, tokenizer, encoded samples, and the length of the run in steps.

Everything here needs no model.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

from rtx_core.cache import Cache, default_folder
from rtx_core.components import Outputs
from rtx_core.config.pipeline import eval_name
from rtx_core.encoding import SetEncoding, in_lists, rows_needed
from rtx_core.epochs import plan_epochs, streamed_epochs
from rtx_core.errors import InputError
from rtx_core.folder import write_text_atomically
from rtx_core.identity import Identities, of_component
from rtx_core.lint import TRAINING, Survey, Surveyor, oddities
from rtx_core.packing import documents
from rtx_core.reading import Records, read_records
from rtx_core.registry import built

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import tokenizers

    from rtx_core.batches import Batches, Cutting
    from rtx_core.components import Architecture, TaskPart
    from rtx_core.config import Pipeline
    from rtx_core.console import Console
    from rtx_core.lengths import Horizon
    from rtx_core.lint import Oddity
    from rtx_core.reading import RecordSet
    from rtx_core.samples import Record, Samples
    from rtx_core.store import SampleStore

T = TypeVar("T")
Part = TypeVar("Part")

_DEFAULT_MAX_LENGTH = 512
_SHOWN_AT_ONCE = 100


@attrs.frozen(kw_only=True, eq=False)
class Prepared:
    """The data of a run, encoded, and its length in steps; no model yet."""

    records: Records
    tokenizer: tokenizers.Tokenizer
    outputs: Outputs
    task: TaskPart
    train: Samples
    """As steps take them: packed, if that was asked for; none where they are streamed."""
    eval: dict[str, SampleStore]
    """By the evaluation set's name; empty for a single one."""
    test: SampleStore | None
    surveys: Mapping[str, Survey]
    """What was counted of each set: ``training`` unless it is streamed, ``eval``, ``eval/clean``, ``test``."""
    oddities: Sequence[Oddity]
    """What was told of the data, the loudest first."""
    batches: Batches | None
    """Which training samples each step has; None where they are streamed."""
    cutting: Cutting
    horizon: Horizon
    max_length: int
    """Tokens of the longest sequence that is kept."""
    vocab_size: int
    """Rows of the token table."""

    @property
    def stores(self) -> dict[str, Samples]:
        """The samples of each set that was surveyed, by the same names; those of training before they are packed."""
        evals: dict[str, Samples] = {eval_name(name): store for name, store in self.eval.items()}
        training: dict[str, Samples] = {} if self.horizon.streamed else {TRAINING: documents(self.train)}
        return training | evals | ({} if self.test is None else {"test": self.test})

    @property
    def fingerprint(self) -> str:
        """sha256 of the tokenizer."""
        return fingerprint_of(self.tokenizer)


def prepare(
    pipeline: Pipeline, *, console: Console, tokenizer_folder: Path | None = None, cache: bool = True
) -> Prepared:
    """Read the data, make the tokenizer, encode, and count the steps; what an earlier start has made is taken as it is.

    :param tokenizer_folder: where a tokenizer of an earlier start of this run is kept, and a new one is written.
    :param cache: take what is in the cache, and keep there what is made.
    :raises InputError: data, tokenizer, task and architecture don't fit together.
    """
    kept = Cache(default_folder() if cache else None, console.warn)
    records = read_records(
        pipeline, lambda keys, source: kept.fingerprint(source, of_component(pipeline, keys, source))
    )
    identities = Identities(pipeline, records.fingerprints)
    tokenizer = _tokenizer(pipeline, records.train, identities, kept, folder=tokenizer_folder, console=console)
    vocab_size = _table_rows(pipeline.architecture, tokenizer)
    _refuse_another_padding_token(pipeline.architecture, tokenizer)
    max_length = _max_length(pipeline)
    outputs = _outputs(pipeline, records.train, identities, kept, vocab_size=vocab_size, console=console)
    task = _built_task(pipeline, tokenizer, outputs, max_length)
    key = {
        "task": identities.component("task"),
        "tokenizer": fingerprint_of(tokenizer),
        "outputs": attrs.asdict(outputs),
        "max_length": max_length,
        "special_tokens": identities.special_tokens,
    }
    surveys: dict[str, Survey] = {}

    def surveyor() -> Surveyor:
        unknown = pipeline.architecture.special_tokens.unk
        return Surveyor(pipeline.task, tokenizer, unknown=unknown, max_length=max_length)

    def encoded(name: str, sources: Sequence[RecordSet], identity: Mapping[str, object]) -> SampleStore:
        store = kept.samples({**key, "set": identity}, SetEncoding(task, sources, name, console, surveyor))
        for note in store.about["notes"]:
            console.say(f"{name}: {note}")
        surveys[name] = Survey.from_json(store.about["survey"])
        return store

    if pipeline.data.stream is None:
        store = encoded(TRAINING, records.sources, identities.train)
        epochs = plan_epochs(
            pipeline, store, store.about["sources"], weights=records.weights, outputs=outputs, max_length=max_length
        )
    else:
        epochs = streamed_epochs(pipeline)
    evals = {name: encoded(eval_name(name), [rows], identities.eval(name)) for name, rows in records.eval.items()}
    test = None if records.test is None else encoded("test", [records.test], identities.test)
    odd = oddities(surveys, pipeline.data.lint)
    _tell(odd, console)
    return Prepared(
        records=records,
        tokenizer=tokenizer,
        outputs=outputs,
        task=task,
        train=epochs.train,
        eval=evals,
        test=test,
        surveys=surveys,
        oddities=odd,
        batches=epochs.batches,
        cutting=epochs.cutting,
        horizon=epochs.horizon,
        max_length=max_length,
        vocab_size=vocab_size,
    )


def _tell(found: Sequence[Oddity], console: Console) -> None:
    """Say what is odd.

    :raises InputError: for some of it the pipeline asked for that.
    """
    errors = [one for one in found if one.level == "error"]
    if errors:
        raise InputError("\n".join(f"{one.message} (data.lint.{one.name})" for one in errors))
    for one in found:
        if one.level == "warning":
            console.warn(one.message)
        else:
            console.say(f"note: {one.message}")


def with_outputs(pipeline: Pipeline, prepared: Prepared, outputs: Outputs) -> Prepared:
    """The same data for a task that is built anew with what was chosen since."""
    task = _built_task(pipeline, prepared.tokenizer, outputs, prepared.max_length)
    return attrs.evolve(prepared, outputs=outputs, task=task)


def _built_task(pipeline: Pipeline, tokenizer: tokenizers.Tokenizer, outputs: Outputs, max_length: int) -> TaskPart:
    special_tokens = pipeline.architecture.special_tokens
    return built_part(
        pipeline, "task", pipeline.task.build, tokenizer, outputs, max_length=max_length, special_tokens=special_tokens
    )


def fingerprint_of(tokenizer: tokenizers.Tokenizer) -> str:
    """sha256 of a tokenizer."""
    return hashlib.sha256(tokenizer.to_str().encode()).hexdigest()


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


class _Watched(Generic[T]):
    """Items that know whether anybody has looked at them, and show how far it has come."""

    def __init__(self, items: Iterable[T], what: str, console: Console) -> None:
        self._items, self._what, self._console = items, what, console
        self.read = False

    def __iter__(self) -> Iterator[T]:
        self.read = True
        with self._console.progress(self._what) as advance:
            for some in in_lists(self._items, _SHOWN_AT_ONCE):
                yield from some
                advance(len(some))


def _tokenizer(
    pipeline: Pipeline,
    records: Iterable[Record],
    identities: Identities,
    cache: Cache,
    *,
    folder: Path | None,
    console: Console,
) -> tokenizers.Tokenizer:
    """The run's own, or that of an equal run, or a new one."""
    import tokenizers

    own = None if folder is None else folder / "tokenizer.json"
    if own is not None and own.is_file():
        return tokenizers.Tokenizer.from_file(str(own))
    special_tokens = pipeline.architecture.special_tokens
    for note in pipeline.tokenizer.notes(special_tokens):
        console.say(f"tokenizer: {note}")
    key = {
        "set": identities.train,
        "task": identities.component("task"),
        "tokenizer": identities.component("tokenizer"),
        "special_tokens": identities.special_tokens,
    }
    text = cache.text("tokenizer", key)
    if text is None:
        found = (text for record in records for text in pipeline.task.texts(record))
        texts = _Watched(found, "training the tokenizer: texts", console)
        tokenizer = built_part(pipeline, "tokenizer", pipeline.tokenizer.build, texts, special_tokens)
        # One that is loaded depends on files that the key knows nothing of.
        if texts.read:
            cache.keep("tokenizer", key, tokenizer.to_str())
    else:
        tokenizer = tokenizers.Tokenizer.from_str(text)
    if own is not None:
        own.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(own, tokenizer.to_str(pretty=True))
    return tokenizer


def _outputs(
    pipeline: Pipeline,
    records: Iterable[Record],
    identities: Identities,
    cache: Cache,
    *,
    vocab_size: int,
    console: Console,
) -> Outputs:
    """What the task predicts, as an equal run has found out, or from all training records."""
    key = {"set": identities.train, "task": identities.component("task"), "vocab_size": vocab_size}
    text = cache.text("outputs", key)
    if text is not None:
        found = json.loads(text).items()
        fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in found}
        return Outputs(**fields)
    watched = _Watched(records, "reading targets: records", console)
    outputs = pipeline.task.outputs(watched, vocab_size)
    if watched.read:
        cache.keep("outputs", key, json.dumps(attrs.asdict(outputs)))
    return outputs


def _table_rows(architecture: Architecture, tokenizer: tokenizers.Tokenizer) -> int:
    tokens = rows_needed(tokenizer)
    rows = architecture.vocab_size or tokens
    if tokens > rows:
        instead = "leave that out, which makes a row for each token"
        if architecture.from_pretrained is not None and not architecture.load.resize:
            instead = (
                "take the tokenizer that belongs to the weights, or write [architecture.load] resize = true to add a "
                "row for each further token"
            )
        raise InputError(
            f"the tokenizer has {tokens} tokens, but the token table has only {rows} rows (architecture.vocab_size); "
            f"{instead}"
        )
    return rows


def _refuse_another_padding_token(architecture: Architecture, tokenizer: tokenizers.Tokenizer) -> None:
    """See that tokenizer and model mean the same token by padding: its row isn't trained, and positions may follow it.

    :raises InputError: they don't.
    """
    token, theirs = architecture.special_tokens.pad, architecture.pad_token_id
    number = tokenizer.token_to_id(token)
    if number is None or theirs is None or number == theirs:
        return
    instead = f"write pad_token_id = {number}"
    if architecture.from_pretrained is not None:
        instead = f"take the tokenizer that belongs to the weights, or, if their config.json is wrong, {instead}"
    raise InputError(
        f'architecture.pad_token_id: {theirs}, but the tokenizer gives the padding token, "{token}", number {number}; '
        f"{instead}"
    )


def _max_length(pipeline: Pipeline) -> int:
    usable, wanted = pipeline.architecture.usable_positions, pipeline.task.longest
    if wanted is not None and usable is not None and wanted > usable:
        raise InputError(f"task.max_length: {wanted}, but the architecture has only {usable} usable positions")
    return wanted or usable or _DEFAULT_MAX_LENGTH
