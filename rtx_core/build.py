"""Prepared data → run: model, optimizer and parts, each stage from the one before."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import psutil
import torch

from rtx_core import weights
from rtx_core.dataset import Steps
from rtx_core.errors import InputError
from rtx_core.groups import parameter_groups
from rtx_core.model import Model, TrainedModule, initialize, make_model
from rtx_core.prepare import Prepared, built_part, task_name
from rtx_core.registry import PartHooks
from rtx_core.run import Run
from rtx_core.schedule import build_schedule, refuse_lost_momentum
from rtx_core.stream import StreamSteps

if TYPE_CHECKING:
    from collections.abc import Sequence

    import tokenizers

    from rtx_core.components import Callback, Direction, LossPart, MetricPart, Outputs, ParameterGroup, Schedule
    from rtx_core.config import Pipeline
    from rtx_core.console import Console


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
    kept: bool = False
    """Whether the model has the weights that are kept, after training: no part shows others any more."""

    @property
    def peak_rates(self) -> list[float]:
        """The peak rate of each of the optimizer's groups."""
        return [group.lr for group in self.groups]


def build(pipeline: Pipeline, prepared: Prepared, folder: Path, console: Console) -> Training:
    """Build every part of a run at step 0.

    :raises InputError: a checkpoint doesn't fit the model, or a rule names no parameter.
    :raises PluginError: parts contradict each other.
    """
    strategy = built_part(pipeline, "strategy", pipeline.strategy.build, pipeline.run.device)
    active = _active_callbacks(pipeline, strategy.device, console)
    model, loaded = build_model(pipeline, prepared, working_directory=Path.cwd())
    model.to(strategy.device)
    loss = build_loss(pipeline, prepared.outputs)
    module = strategy.wrap(TrainedModule(model, loss).to(strategy.device))
    groups = parameter_groups(model, pipeline.architecture.layer_names(), pipeline.optimizer)
    optimizer = built_part(pipeline, "optimizer", pipeline.optimizer.build, groups)
    schedule = built_part(pipeline, "scheduler", build_schedule, pipeline.scheduler, prepared.horizon)
    refuse_lost_momentum(schedule, optimizer)
    if prepared.horizon.steps(pipeline.scheduler.warmup) == prepared.horizon.total:
        console.warn(
            f"all {prepared.horizon.total} steps are warm-up (scheduler.warmup), so the rate never reaches its peak"
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
        steps=steps,
        metrics=metrics,
        parts=parts,
        hooks=hooks,
        eval_every=prepared.horizon.exact(pipeline.training.eval_every) if prepared.eval else Fraction(0),
        loaded=loaded,
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
