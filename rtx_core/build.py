"""Prepared data → run: model, optimizer and parts, each stage from the one before."""

from __future__ import annotations

import os
import re
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import attrs
import psutil
import torch

from rtx_core import weights
from rtx_core.dataset import Steps
from rtx_core.errors import InputError, PluginError
from rtx_core.groups import parameter_groups
from rtx_core.model import Model, TrainedModule, assemble, initialize, make_model, native_task
from rtx_core.prepare import Prepared, built_part, task_name
from rtx_core.registry import PartHooks
from rtx_core.run import Run
from rtx_core.schedule import build_schedule, idle_at_the_end, refuse_lost_momentum, refuse_other_than_factors
from rtx_core.sources import folder_of, has_weights
from rtx_core.stream import StreamSteps

if TYPE_CHECKING:
    from collections.abc import Sequence

    import tokenizers

    from rtx_core.components import (
        Architecture,
        Backbone,
        Callback,
        Direction,
        LossPart,
        MetricPart,
        Outputs,
        ParameterGroup,
        Schedule,
    )
    from rtx_core.config import Pipeline
    from rtx_core.console import Console

_FREE = re.compile(r"\[unused\d+\]|<unused\d+>|madeupword\d+")
"""Tokens that only keep a row free, as BERT, T5 and RoBERTa call them."""


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
    steps: Steps | StreamSteps
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
    peak_rates: list[float]
    """The peak rate of each of the optimizer's groups."""
    rate_names: list[tuple[int, str]]
    """The groups whose rates rows of metrics name, by number."""
    kept: bool = False
    """Whether the model has the weights that are kept, after training: no part shows others any more."""


def build(pipeline: Pipeline, prepared: Prepared, folder: Path, console: Console) -> Training:
    """Build every part of a run at step 0.

    :raises InputError: a checkpoint doesn't fit the model, or a rule names no parameter.
    :raises PluginError: parts contradict each other.
    """
    strategy = built_part(pipeline, "strategy", pipeline.strategy.build, pipeline.run.device)
    active = _active_callbacks(pipeline, strategy.device, console)
    model, loaded = build_model(pipeline, prepared, working_directory=Path.cwd())
    for note in () if loaded is None else loaded.notes:
        console.warn(note)
    model.to(strategy.device)
    loss = build_loss(pipeline, prepared.outputs)
    module = strategy.wrap(TrainedModule(model, loss).to(strategy.device))
    groups = parameter_groups(model, pipeline.architecture.layer_names(), pipeline.optimizer)
    optimizer = built_part(pipeline, "optimizer", pipeline.optimizer.build, groups)
    _refuse_other_groups(optimizer, groups)
    schedule = built_part(pipeline, "scheduler", build_schedule, pipeline.scheduler, prepared.horizon)
    refuse_other_than_factors(schedule, prepared.horizon.total)
    refuse_lost_momentum(schedule, optimizer)
    if prepared.horizon.steps(pipeline.scheduler.warmup) == prepared.horizon.total:
        console.warn(
            f"all {prepared.horizon.total} steps are warm-up (scheduler.warmup), so the rate never reaches its peak"
        )
    elif idle := idle_at_the_end(schedule, prepared.horizon.total):
        console.warn(
            f"the schedule is at 0 in the last {idle} of {prepared.horizon.total} steps, which learn nothing: it ends "
            "before the run does"
        )
    metrics = build_metrics(pipeline, prepared.outputs)
    callbacks = {name: built_part(pipeline, f"callbacks.{name}", callback.build) for name, callback in active.items()}
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
    steps = build_steps(pipeline, prepared, strategy.rank)
    if isinstance(steps, StreamSteps):
        parts["stream"] = steps  # its position is state, like that of any part
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
        epochs_of_stream=(lambda: steps.epoch) if isinstance(steps, StreamSteps) else None,
    )
    hooks.run = run
    hooks.call.on_build(run=run)
    return Training(
        run=run,
        prepared=prepared,
        model=model,
        loss=loss,
        module=module,
        schedule=schedule,
        groups=groups,
        parameters=[parameter for group in groups for parameter in group.parameters.values()],
        peak_rates=[group.lr for group in groups],
        rate_names=[(number, group.rate_name) for number, group in enumerate(groups) if group.rate_name is not None],
        steps=steps,
        metrics=metrics,
        parts=parts,
        hooks=hooks,
        eval_every=prepared.horizon.exact(pipeline.training.eval_every) if prepared.eval else Fraction(0),
        loaded=loaded,
    )


def _refuse_other_groups(optimizer: torch.optim.Optimizer, groups: Sequence[ParameterGroup]) -> None:
    """The loop writes the rate of each group into the optimizer's group of the same place.

    :raises PluginError: the groups are others, or in another order.
    """
    theirs = [[id(p) for p in group["params"]] for group in getattr(optimizer, "param_groups", ())]
    if theirs != [[id(p) for p in group.parameters.values()] for group in groups]:
        raise PluginError(
            f"optimizer: the param_groups of {type(optimizer).__name__} are not the groups that build() was given, "
            "in their order"
        )


def _active_callbacks(pipeline: Pipeline, device: torch.device, console: Console) -> dict[str, Callback]:
    """Those that have something to do on the device; of the others it is said why not, unless they were only tried."""
    active: dict[str, Callback] = {}
    for name, callback in pipeline.callbacks.items():
        why = callback.inactive_on(device)
        if why is None:
            active[name] = callback
        elif why:
            console.warn(f"callbacks.{name} is inactive: {why}")
    return active


def build_loss(pipeline: Pipeline, outputs: Outputs) -> LossPart:
    """The loss for these outputs.

    :raises InputError: a setting doesn't fit them, or the loss can't do what ``[training]`` asks of it.
    """
    loss = built_part(pipeline, "loss", pipeline.loss.build, outputs)
    if pipeline.training.no_duplicates_in_batch:
        leave_out_duplicates = getattr(loss, "leave_out_duplicates", None)
        if leave_out_duplicates is None:
            raise InputError("training.no_duplicates_in_batch: this loss can't leave out duplicates")
        leave_out_duplicates()
    return loss


def build_metrics(pipeline: Pipeline, outputs: Outputs) -> dict[str, MetricPart]:
    """Every metric by the name of its table."""
    return {
        name: built_part(pipeline, f"metrics.{name}", metric.build, outputs)
        for name, metric in pipeline.metrics.items()
    }


def build_steps(pipeline: Pipeline, prepared: Prepared, rank: int) -> Steps | StreamSteps:
    """The batches of each step for one process."""
    stream, training = pipeline.data.stream, pipeline.training
    if stream is None:
        return stored_steps(pipeline, prepared, rank)
    return StreamSteps(
        source=pipeline.data.train,
        task=prepared.task,
        cutting=prepared.cutting,
        batch_size=training.batch_size or 1,
        window=stream.shuffle_window,
        packing=training.packing,
        max_length=prepared.max_length,
        seed=pipeline.run.seed,
        rank=rank,
    )


def stored_steps(pipeline: Pipeline, prepared: Prepared, rank: int) -> Steps:
    """The same for training data that are encoded as a whole."""
    if prepared.batches is None:
        raise ValueError("streamed training data have no batches that are known beforehand")
    return Steps(prepared.train, prepared.task, prepared.batches, prepared.cutting, seed=pipeline.run.seed, rank=rank)


def build_model(
    pipeline: Pipeline, prepared: Prepared, *, working_directory: Path
) -> tuple[Model, weights.LoadReport | None]:
    """The model on the current default device: from the seed, or from a checkpoint where the pipeline names one.

    On the meta device, where there are no values, a checkpoint is compared and not loaded.
    """
    architecture, seed = pipeline.architecture, pipeline.run.seed
    source = architecture.from_pretrained
    model = (make_model if source is None else assemble)(
        architecture,
        pipeline.head,
        task=task_name(pipeline),
        outputs=prepared.outputs.size,
        vocab_size=prepared.vocab_size,
        seed=seed,
    )
    if source is None:
        return model, None
    parameters = model.parameters_by_name()
    folder, planned = folder_of(source, working_directory), next(model.parameters()).is_meta
    if planned and not has_weights(folder):
        return model, None  # they are fetched when it runs
    _refuse_other_numbers(folder, prepared.tokenizer)
    wears = native_task(architecture, pipeline.head, task_name(pipeline))
    context = load_context(model, architecture, prepared.outputs, task=wears)
    if planned:
        return model, weights.compare(folder, parameters, context)
    return model, weights.load(folder, parameters, context, lambda names: initialize(model, names, seed))


def load_context(
    model: Model, architecture: Architecture, outputs: Outputs, *, task: str | None
) -> weights.LoadContext:
    """What loading has to know of the model beyond its parameters.

    :param task: whose native head the model wears; None: another's.
    """
    parameters = model.parameters_by_name()
    backbone = {model.public_name(f"backbone.{name}") for name, _ in model.backbone.named_parameters()}
    table = cast("Backbone", model.backbone).input_embeddings
    of_tokens = {name for name, parameter in parameters.items() if parameter is table}
    if outputs.labels is None and outputs.size == len(table):
        decoding = parameters.keys() - backbone
        of_tokens |= {name for name in decoding if parameters[name].shape[:1] == table.shape[:1]}
    usable = architecture.usable_positions
    rows = next((len(p) for name, p in parameters.items() if name.endswith(".position_embeddings.weight")), usable)
    return weights.LoadContext(
        base_prefix=model.public_name("backbone."),
        head=parameters.keys() - backbone,
        tied=model.tied_names(),
        vocabulary=of_tokens,
        layers=architecture.layer_names(),
        reserved_positions=0 if rows is None or usable is None else max(0, rows - usable),
        config={} if task is None else architecture.hf_config(task, outputs),
        labels=outputs.labels,
        labels_are_written=outputs.scheme is None,
        rules=architecture.load,
    )


def _refuse_other_numbers(folder: Path, tokenizer: tokenizers.Tokenizer) -> None:
    """A token table is of use only with the numbers that its rows were trained for.

    Tokens may come on top, and may take the places of rows that are free, ``[unused7]`` in a BERT's vocabulary.

    :raises InputError: the folder has a tokenizer that gives a token another number than ours does, or a number to
        another token.
    """
    file = folder / "tokenizer.json"
    if not file.is_file():
        return  # then there is nothing to compare with
    ours, theirs = tokenizer.get_vocab(), _vocabulary(file)
    trained_with = f"in {file}, which the weights were trained with; leave [tokenizer] out to take theirs"
    for token, number in sorted(theirs.items(), key=lambda entry: entry[1]):
        if ours.get(token, number) != number:
            raise InputError(f'tokenizer: "{token}" has number {ours[token]}, but {number} {trained_with}')
    by_number = {number: token for token, number in theirs.items()}
    for token, number in sorted(ours.items(), key=lambda entry: entry[1]):
        meant = by_number.get(number, token)
        if meant != token and not _FREE.fullmatch(meant):
            raise InputError(f'tokenizer: number {number} is "{token}", but "{meant}" {trained_with}')


def _vocabulary(file: Path) -> dict[str, int]:
    """The numbers of a tokenizer's tokens.

    :raises InputError: the file is damaged.
    """
    import tokenizers

    try:
        return tokenizers.Tokenizer.from_file(str(file)).get_vocab()
    except Exception as error:  # the library raises Exception itself
        raise InputError(f"{file} can't be read: {error}") from error


def set_up_process(pipeline: Pipeline) -> int:
    """Set threads and determinism for this process, and return the number of threads."""
    training = pipeline.training
    threads = training.threads or int(os.environ.get("OMP_NUM_THREADS", "0")) or _physical_cores()
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(training.deterministic)
    return threads


def _physical_cores() -> int:
    return psutil.cpu_count(logical=False) or os.cpu_count() or 1


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
