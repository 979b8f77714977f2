"""Pipeline → run: data, tokenizer, model, optimizer and parts, each stage from the one before.

:func:`prepare` is everything that needs no model; :func:`build` adds the model and what trains it.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import psutil
import torch

from rtx_core import weights
from rtx_core.config.pipeline import eval_name
from rtx_core.dataset import SampleStore, Steps
from rtx_core.errors import DataError, InputError
from rtx_core.folder import write_text_atomically
from rtx_core.groups import parameter_groups
from rtx_core.lengths import Horizon
from rtx_core.model import Model, TrainedModule, initialize, make_model
from rtx_core.order import Cutting, EpochOrder, MixedOrder, Order, shares
from rtx_core.reading import Records, read_records
from rtx_core.registry import PartHooks, built
from rtx_core.run import Run
from rtx_core.schedule import build_schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import tokenizers

    from rtx_core.components import (
        Architecture,
        Direction,
        LossPart,
        MetricPart,
        Outputs,
        ParameterGroup,
        Schedule,
        TaskPart,
    )
    from rtx_core.config import Pipeline
    from rtx_core.console import Console
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


@attrs.define(kw_only=True, eq=False)
class Training:
    """A run with everything that its loop needs."""

    run: Run
    prepared: Prepared
    model: Model
    loss: LossPart
    module: torch.nn.Module
    """Model and loss, as the strategy wrapped them."""
    schedule: Schedule
    groups: Sequence[ParameterGroup]
    steps: Steps
    metrics: dict[str, MetricPart]
    parts: dict[str, Any]
    """Every built part by its name in messages and checkpoints, as ``callback.early_stopping``."""
    hooks: PartHooks
    eval_every: Fraction
    """In steps, with a fraction of a step."""
    loaded: weights.LoadReport | None
    """What came from a checkpoint and what is new; None for a start from the seed."""

    parameters: list[torch.nn.Parameter]
    """What the optimizer updates."""

    @property
    def peak_rates(self) -> list[float]:
        """The peak rate of each of the optimizer's groups."""
        return [group.lr for group in self.groups]


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
    task = _built(
        pipeline, "task", pipeline.task.build, tokenizer, outputs, max_length=max_length, special_tokens=special_tokens
    )
    train, sizes = _encoded_sources(task, records, console)
    order = _order(pipeline.run.seed, sizes, records.weights)
    evals = {name: _encoded(task, rows, eval_name(name), console) for name, rows in records.eval.items()}
    test = None if records.test is None else _encoded(task, records.test, "test", console)
    cutting = _cutting(pipeline, order.size)
    return Prepared(
        records=records,
        tokenizer=tokenizer,
        outputs=outputs,
        task=task,
        train=train,
        eval=evals,
        test=test,
        cutting=cutting,
        horizon=_horizon(pipeline, cutting, _tokens_per_epoch(train, order)),
        order=order,
        max_length=max_length,
        vocab_size=vocab_size,
    )


def build(pipeline: Pipeline, prepared: Prepared, folder: Path, console: Console) -> Training:
    """Build every part of a run at step 0.

    :raises InputError: a checkpoint doesn't fit the model, or a rule names no parameter.
    :raises PluginError: parts contradict each other.
    """
    strategy = _built(pipeline, "strategy", pipeline.strategy.build, pipeline.run.device)
    model, loaded = build_model(pipeline, prepared, working_directory=Path.cwd())
    model.to(strategy.device)
    loss = _built(pipeline, "loss", pipeline.loss.build, prepared.outputs)
    module = strategy.wrap(TrainedModule(model, loss).to(strategy.device))
    groups = parameter_groups(model, pipeline.architecture.layer_names(), pipeline.optimizer)
    optimizer = _built(pipeline, "optimizer", pipeline.optimizer.build, groups)
    schedule = _built(pipeline, "scheduler", build_schedule, pipeline.scheduler, prepared.horizon)
    if prepared.horizon.steps(pipeline.scheduler.warmup) == prepared.horizon.total:
        console.warn(
            f"all {prepared.horizon.total} steps are warm-up (scheduler.warmup), so the rate never reaches its peak"
        )
    metrics = {
        name: _built(pipeline, f"metrics.{name}", metric.build, prepared.outputs)
        for name, metric in pipeline.metrics.items()
    }
    callbacks = {
        name: _built(pipeline, f"callbacks.{name}", callback.build) for name, callback in pipeline.callbacks.items()
    }
    parts: dict[str, Any] = {
        **{f"callback.{name}": callback for name, callback in callbacks.items()},
        "optimizer": optimizer,
        "scheduler": schedule,
        "loss": loss,
        **{f"metric.{name}": metric for name, metric in metrics.items()},
        "task": prepared.task,
        "architecture": model.backbone,
        "head": model.head,
        "strategy": strategy,
    }
    hooks = PartHooks(parts, default="strategy")
    monitor, direction = _monitor(pipeline, prepared)
    run = Run(
        pipeline=pipeline,
        folder=folder,
        model=model,
        optimizer=optimizer,
        strategy=strategy,
        console=console,
        horizon=prepared.horizon,
        monitor=monitor,
        monitor_direction=direction,
        threads=torch.get_num_threads(),
        parts=parts,
    )
    hooks.run = run
    return Training(
        run=run,
        prepared=prepared,
        model=model,
        loss=loss,
        module=module,
        schedule=schedule,
        groups=groups,
        parameters=[parameter for group in groups for parameter in group.parameters.values()],
        steps=Steps(
            prepared.train,
            prepared.task,
            prepared.cutting,
            seed=pipeline.run.seed,
            rank=strategy.rank,
            order=prepared.order,
        ),
        metrics=metrics,
        parts=parts,
        hooks=hooks,
        eval_every=prepared.horizon.exact(pipeline.training.eval_every),
        loaded=loaded,
    )


def _built(pipeline: Pipeline, table: str, build: Callable[..., Part], *arguments: object, **settings: object) -> Part:
    """The part of a table (``callbacks.ema``); an error says whose it is.

    :raises PluginError: there is none.
    """
    kind, dot, name = table.partition(".")
    chosen = pipeline.chosen.get(table)
    source = "" if chosen is None else chosen.source
    return built(f"{kind.removesuffix('s')}.{name}" if dot else table, source, build, *arguments, **settings)


def build_model(
    pipeline: Pipeline, prepared: Prepared, *, working_directory: Path
) -> tuple[Model, weights.LoadReport | None]:
    """The model on the current default device: from the seed, or from a checkpoint where the pipeline names one."""
    architecture = pipeline.architecture
    model = make_model(
        architecture,
        pipeline.head,
        task=task_name(pipeline),
        outputs=prepared.outputs.size,
        vocab_size=prepared.vocab_size,
        seed=pipeline.run.seed,
    )
    source = architecture.from_pretrained
    if source is None or next(model.parameters()).is_meta:
        initialize(model, model.parameters_by_name().keys(), pipeline.run.seed)
        return model, None
    parameters = model.parameters_by_name()
    context = weights.LoadContext(
        base_prefix=model.public_name("backbone."),
        head={name for name in parameters if name not in _backbone_names(model)},
        tied=model.tied_names(),
        rules=architecture.load,
    )
    folder = weights.source_folder(source, working_directory)
    _refuse_other_numbers(folder, prepared.tokenizer)
    report = weights.load(folder, parameters, context)
    initialize(model, report.new, pipeline.run.seed)
    return model, report


def _refuse_other_numbers(folder: Path, tokenizer: tokenizers.Tokenizer) -> None:
    """A token table is of use only with the numbers that its rows were trained for.

    :raises InputError: the folder has a tokenizer that gives a token another number than ours does.
    """
    import tokenizers

    file = folder / "tokenizer.json"
    if not file.is_file():
        return  # then there is nothing to compare with
    ours = tokenizer.get_vocab()
    for token, number in tokenizers.Tokenizer.from_file(str(file)).get_vocab().items():
        if ours.get(token, number) != number:
            raise InputError(
                f'tokenizer: "{token}" has number {ours[token]}, but {number} in {file}, which the weights were '
                "trained with; leave [tokenizer] out to take theirs"
            )


def _backbone_names(model: Model) -> set[str]:
    return {model.public_name(f"backbone.{name}") for name, _ in model.backbone.named_parameters()}


def task_name(pipeline: Pipeline) -> str:
    """The name of the pipeline's task, as ``masked_lm``."""
    return pipeline.chosen["task"].name


def set_up_process(pipeline: Pipeline) -> int:
    """Set threads and determinism for this process, and return the number of threads."""
    training = pipeline.training
    threads = training.threads or int(os.environ.get("OMP_NUM_THREADS", "0")) or _physical_cores()
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(training.deterministic)
    return threads


def _physical_cores() -> int:
    return psutil.cpu_count(logical=False) or os.cpu_count() or 1


def _tokenizer(pipeline: Pipeline, records: Sequence[Record], folder: Path | None) -> tokenizers.Tokenizer:
    import tokenizers

    kept = None if folder is None else folder / "tokenizer.json"
    if kept is not None and kept.is_file():
        return tokenizers.Tokenizer.from_file(str(kept))
    texts = (text for record in records for text in pipeline.task.texts(record))
    tokenizer = _built(pipeline, "tokenizer", pipeline.tokenizer.build, texts, pipeline.architecture.special_tokens)
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


def _order(seed: int, sizes: Sequence[int], weights: Sequence[float] | None) -> EpochOrder:
    """Each sample once an epoch, or by the weights of the sources.

    :raises InputError: a source with a weight has no sample.
    """
    if weights is None:
        return Order(seed, sum(sizes))
    if 0 in sizes:
        raise InputError(f"data.train[{sizes.index(0)}]: gives no sample for training, so nothing can be drawn from it")
    return MixedOrder(seed, shares(sizes, weights))


def _tokens_per_epoch(train: SampleStore, order: EpochOrder) -> int:
    """Tokens of an epoch; where it takes a part of a source, as many as that part has on average."""
    if not isinstance(order, MixedOrder):
        return train.tokens
    total, start = Fraction(0), 0
    for source in order.sources:
        tokens = int(train.lengths[start : start + source.size].sum())
        total += Fraction(tokens * source.drawn, source.size)
        start += source.size
    return round(total)


def _cutting(pipeline: Pipeline, samples: int) -> Cutting:
    training, processes = pipeline.training, pipeline.strategy.processes()
    return Cutting(
        samples=samples,
        batch_size=training.batch_size,
        micro_batch_size=training.micro_batch_size or -(-training.batch_size // processes),
        processes=processes,
    )


def _horizon(pipeline: Pipeline, cutting: Cutting, tokens_per_epoch: int) -> Horizon:
    epoch = Horizon(
        total=0,
        run_total=0,
        steps_per_epoch=cutting.steps_per_epoch,
        samples_per_epoch=cutting.samples,
        tokens_per_epoch=tokens_per_epoch,
    )
    total = epoch.steps(pipeline.training.duration)
    return attrs.evolve(epoch, total=total, run_total=total)


def _monitor(pipeline: Pipeline, prepared: Prepared) -> tuple[str | None, Direction]:
    """What best goes by, and which way is better; None where nothing is evaluated."""
    if not prepared.eval:
        return None, "min"
    values = pipeline.evaluated
    way = values.get(pipeline.monitor)
    if way is None:
        usable = ", ".join(name for name, direction in values.items() if direction is not None)
        raise InputError(f'training.monitor: no evaluation gives "{pipeline.monitor}"; there are {usable}')
    return pipeline.monitor, way
