"""One run from a checked pipeline to its folder: claim it, build or restore, train, keep the best, record the end."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import platform
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import attrs

from rtx_core import build, checkpoint, saving
from rtx_core.components import Source
from rtx_core.config import ModelParts, resolved_toml
from rtx_core.config.pipeline import folder_of
from rtx_core.errors import InputError, RtxError, RunError, RunInterruptedError
from rtx_core.evaluation import evaluate, evaluating, evaluator, shown_tensors
from rtx_core.folder import RunFolder, write_text_atomically
from rtx_core.header import header, number, summary
from rtx_core.loop import train
from rtx_core.micro_batch import with_size
from rtx_core.prepare import prepare, task_name, with_outputs
from rtx_core.publish import publish
from rtx_core.signals import Signals
from rtx_core.sources import fetch_weights
from rtx_core.sources import folder_of as folder_of_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rtx_core.build import Training
    from rtx_core.checkpoint import Checkpoint
    from rtx_core.config import Pipeline
    from rtx_core.console import Console
    from rtx_core.folder import Way
    from rtx_core.registry import Registry
    from rtx_core.run import Run

_PACKAGES = ("rtx-transformers", "torch", "tokenizers", "safetensors", "numpy", "attrs", "cattrs", "pluggy")


@attrs.frozen(kw_only=True)
class RunOptions:
    """How a run begins and how far it goes."""

    output: Path | None = None
    """The run's folder; None: ``runs/<name>`` in the working directory."""
    resume: bool = False
    overwrite: bool = False
    new: bool = False
    steps: int | None = None
    """Stop after so many steps of the unchanged plan, in ``runs/<name>-smoke``."""
    cache: bool = True
    """Take the encoded data of earlier starts, and keep what is encoded now."""

    @property
    def way(self) -> Way:
        """How the folder is claimed.

        :raises InputError: more than one way was asked for.
        """
        ways: dict[Way, bool] = {"resume": self.resume, "overwrite": self.overwrite, "new": self.new}
        asked = [way for way, wanted in ways.items() if wanted]
        if len(asked) > 1:
            raise InputError(f"--{asked[0]} and --{asked[1]} exclude each other")
        if asked:
            return asked[0]
        # Only the folder of a trial, which rtx named itself, is replaced without being asked.
        return "overwrite" if self.steps is not None and self.output is None else "start"


def run_pipeline(pipeline: Pipeline, registry: Registry, options: RunOptions, console: Console) -> Path:
    """Train, or go on with a run, and leave the finished folder; its path.

    :raises RtxError: the run was refused, failed or interrupted; run.json says which.
    """
    if pipeline.data.folds is not None and pipeline.data.folds.index is None:
        raise InputError("data.folds: this is a run for each fold; take one by data.fold, or all by the command run")
    path = folder_of(pipeline, options.output, Path.cwd())
    if options.steps is not None and options.output is None:
        path = path.with_name(f"{path.name}-smoke")
    for note in pipeline.notes:
        console.say(f"note: {note}")
    threads = build.set_up_process(pipeline)
    if options.way == "resume":
        return _resume(pipeline, registry, options, console, path=path, threads=threads)
    # Everything is built before the folder is touched: bad data or weights must not cost the run that is there.
    RunFolder.refuse(path, options.way)
    if options.way == "overwrite":
        _refuse_to_lose_the_start(pipeline, path)
    _fetch_weights(pipeline, console)
    training = build.build(pipeline, prepare(pipeline, console=console, cache=options.cache), path, console)
    with RunFolder.claim(path, options.way) as folder:
        training.run.folder = folder.path
        _begin(training, folder, registry)
        _go(training, folder, registry, threads, end=_end_of(training, options))
    return folder.path


def _refuse_to_lose_the_start(pipeline: Pipeline, path: Path) -> None:
    """What a run starts from has to stay until it has ended: an interrupted one couldn't go on.

    :raises InputError: weights or tokenizer are those of the folder that is replaced.
    """
    for table, part in (("architecture", pipeline.architecture), ("tokenizer", pipeline.tokenizer)):
        for name, source in attrs.asdict(part, recurse=False).items():
            if not isinstance(source, Source) or source.scheme == "hub":
                continue
            if path.resolve() in folder_of_source(source, Path.cwd()).resolve().parents:
                raise InputError(
                    f"{table}.{name}: {source} is in {path}, which --overwrite deletes; start beside it with --new"
                )


def _resume(
    pipeline: Pipeline, registry: Registry, options: RunOptions, console: Console, *, path: Path, threads: int
) -> Path:
    """Go on from the newest good checkpoint; without one, begin and say so."""
    with RunFolder.claim(path, "resume") as folder:
        saved = checkpoint.newest(folder.checkpoints, console.warn)
        if saved is None:
            console.say(f"{folder.path} has no checkpoint: starting from the beginning")
        elif pipeline.training.micro_batch_size == "auto":
            pipeline = with_size(pipeline, saving.saved_settings(saved)["training.micro_batch_size"])
        _fetch_weights(pipeline, console)
        prepared = prepare(pipeline, console=console, tokenizer_folder=folder.tokenizer, cache=options.cache)
        training = build.build(pipeline, prepared, folder.path, console)
        if saved is None:
            _begin(training, folder, registry)
            _go(training, folder, registry, threads, end=_end_of(training, options))
            return folder.path
        saving.restore(training, saved)
        run, end = training.run, _end_of(training, options)
        finished = run.step >= end or run.stop_reason is not None
        if finished and folder.model.exists():
            _end_once(folder, run)
            console.say(f"{folder.path} is finished ({run.stop_reason or f'{run.step} steps'}); nothing to do")
            return folder.path
        console.open_log(folder.log)
        _go(training, folder, registry, threads, end=run.step if finished else end, saved=saved)
    return folder.path


def _fetch_weights(pipeline: Pipeline, console: Console) -> None:
    """First of all: the network or the disk may refuse, and then no time has been spent on the data."""
    source = pipeline.architecture.from_pretrained
    if source is not None:
        fetch_weights(source, console)


def _end_of(training: Training, options: RunOptions) -> int:
    """The step after which the run ends."""
    total = training.run.horizon.total
    return total if options.steps is None else min(options.steps, total)


def _begin(training: Training, folder: RunFolder, registry: Registry) -> None:
    """Write what was asked for into a new folder."""
    pipeline = training.run.pipeline
    training.run.console.open_log(folder.log)
    write_text_atomically(folder.pipeline, pipeline.text)
    write_text_atomically(folder.resolved, resolved_toml(pipeline))
    folder.tokenizer.mkdir(exist_ok=True)
    write_text_atomically(folder.tokenizer / "tokenizer.json", training.prepared.tokenizer.to_str(pretty=True))
    for file in registry.files:
        folder.plugins.mkdir(exist_ok=True)
        write_text_atomically(folder.plugins / file.name, file.path.read_text(encoding="utf-8"))


def _go(
    training: Training,
    folder: RunFolder,
    registry: Registry,
    threads: int,
    *,
    end: int,
    saved: Checkpoint | None = None,
) -> None:
    """Train from where the run is, and let run.json and log.txt say how it ended."""
    console = training.run.console
    with _status(folder):
        _record(folder, training, registry, threads)
        console.say(header(training.run.pipeline, training.prepared, training))
        if saved is not None:
            checkpoint.set_aside(folder.checkpoints, saved.step)
            folder.cut_metrics(saved.step)
            # That of a trial, or of an end that the run goes back from: with it the run would look finished.
            checkpoint.remove(folder.model)
            console.say(f"resumed from {saved.folder.name}")
        _train_and_keep(training, folder, end=end, resumed=saved is not None)


@contextmanager
def _status(folder: RunFolder) -> Iterator[None]:
    """Let run.json and log.txt say how this ended if it fails."""
    try:
        yield
    except BaseException as error:
        interrupted = isinstance(error, (RunInterruptedError, KeyboardInterrupt))
        told = str(error) if isinstance(error, RtxError) else f"{type(error).__name__}: {error}"
        _end(folder, "interrupted" if interrupted else "failed", told)
        with folder.log.open("a", encoding="utf-8") as log:
            log.write(f"{told}\n")
        raise


def _train_and_keep(training: Training, folder: RunFolder, *, end: int, resumed: bool) -> None:
    """Train to a step, which may be done already, then write the kept model."""
    run, started_at = training.run, training.run.step
    try:
        with Signals() as signals:
            train(
                training,
                save=lambda live: _save(live, folder),
                rewind=lambda live: _rewind(live, folder),
                signals=signals,
                end=end,
                resumed=resumed,
            )
        values = _keep(training, folder)
        _end_well(folder, run)
        run.console.say(summary(training, folder.path, values, resumed=resumed))
    except InputError as error:
        if run.step == started_at:
            raise
        # Steps were made: this is no refusal any more, but a run that failed.
        raise RunError(f"{error} (after step {run.step}; --resume goes on from the newest checkpoint)") from error
    finally:
        training.hooks.call.on_run_end(run=run)
    if training.hooks.failures:
        raise training.hooks.failures[0]


def _rewind(training: Training, folder: RunFolder) -> None:
    """Put a live run where its newest checkpoint was taken, as a resume would; what is left out stays so.

    :raises RunError: there is no checkpoint yet.
    """
    run, hooks = training.run, training.hooks
    saved = checkpoint.newest(folder.checkpoints, run.console.warn)
    if saved is None:
        raise RunError(f"there is no checkpoint to go back to before step {run.step}")
    hooks.call.on_run_end(run=run)
    if hooks.failures:
        raise hooks.failures[0]
    left_out, rewinds, failed_at = run.left_out, run.rewinds, run.step
    saving.restore(training, saved)
    run.left_out, run.rewinds = left_out, rewinds + 1
    checkpoint.set_aside(folder.checkpoints, saved.step)
    folder.cut_metrics(saved.step)
    run.console.say(f"went back from step {failed_at} to {saved.folder.name}")


def _save(training: Training, folder: RunFolder) -> None:
    run = training.run
    if run.rank == 0:
        saving.save(training, folder.checkpoints)
        folder.write_record({"best": _best(training)})
    run.strategy.barrier()
    training.hooks.call.on_checkpoint(run=run, folder=folder.checkpoints / f"step-{run.step:08d}")


def _keep(training: Training, folder: RunFolder) -> dict[str, Any]:
    """Write ``model/`` from the best checkpoint, or the last, and read the test set with it; the test set's values."""
    run, prepared, pipeline = training.run, training.prepared, training.run.pipeline
    _forget_best_if_lost(run, folder)
    step = run.step if run.best_step is None else run.best_step
    _put_kept_weights(training, folder, step)
    _refuse_not_finite(training)
    if pipeline.task.tuned_field is not None:
        _tune(training)
        prepared = training.prepared
    values = {} if prepared.test is None else evaluate(training, "test", prepared.test)
    record = {"kept": {"step": step, "is": "last" if run.best_step is None else "best"}, "best": _best(training)}
    folder.write_record({**record, "outputs": attrs.asdict(prepared.outputs), "test": values})
    if run.rank == 0:
        publish(folder, _model_parts(pipeline), folder.model, tensors=training.model.tensors(), step=step, replace=True)
    return values


def _model_parts(pipeline: Pipeline) -> ModelParts:
    return ModelParts(
        task_name=task_name(pipeline), task=pipeline.task, architecture=pipeline.architecture, head=pipeline.head
    )


def _put_kept_weights(training: Training, folder: RunFolder, step: int) -> None:
    """Give the model the weights that were measured at a step; from now on no part shows others."""
    if step == training.run.step:
        tensors = shown_tensors(training)
    else:
        saved = next(c for c in checkpoint.listing(folder.checkpoints) if c.step == step)
        tensors = saving.kept_tensors(saved)
    if tensors is not None:
        training.model.load_tensors(tensors)
    training.kept = True


def _tune(training: Training) -> None:
    """Choose thresholds for the model as it is on the first evaluation set, and go by them from now on."""
    prepared, console = training.prepared, training.run.console
    store = next(iter(prepared.eval.values()))
    with evaluating(training):
        logits, targets = evaluator(training).logits(store)
    chosen: Sequence[float] = cast("Any", prepared.task).thresholds(logits, targets)
    for note in prepared.task.notes():
        console.say(f"thresholds: {note}")
    training.prepared = with_outputs(
        training.run.pipeline, prepared, attrs.evolve(prepared.outputs, thresholds=tuple(chosen))
    )
    named = zip(prepared.outputs.labels or (), chosen, strict=False)
    console.say(f"thresholds: {', '.join(f'{label} {number(threshold)}' for label, threshold in named)}")


def _refuse_not_finite(training: Training) -> None:
    """A model with NaN or infinities answers nothing; the run that made it has not succeeded.

    :raises RunError: with the first tensor that has some.
    """
    for name, tensor in training.model.tensors().items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise RunError(
                f"training diverged: {name} holds NaN or infinities, so no model is kept; lower optimizer.lr or "
                "lengthen scheduler.warmup (metrics.jsonl shows from which step on)"
            )


def _forget_best_if_lost(run: Run, folder: RunFolder) -> None:
    """A best checkpoint that was damaged since can't be kept; the last step's model is better than none."""
    if run.best_step is None or run.best_step == run.step:
        return
    best = next((c for c in checkpoint.listing(folder.checkpoints) if c.step == run.best_step), None)
    problem = "it is gone" if best is None else best.problem()
    if problem is not None:
        run.console.warn(f"the best checkpoint, step {run.best_step}, can't be used: {problem}; the last is kept")
        run.best_step = run.best_value = None


def _best(training: Training) -> dict[str, Any] | None:
    run = training.run
    if run.best_step is None:
        return None
    return {"monitor": run.monitor, "value": run.best_value, "step": run.best_step}


def _record(folder: RunFolder, training: Training, registry: Registry, threads: int) -> None:
    """What runs, on what: all that predict and a reader need to know."""
    pipeline, prepared = training.run.pipeline, training.prepared
    folder.write_record(
        {
            "status": "running",
            "why": None,
            "name": pipeline.run.name,
            "command": sys.argv[1:],
            "started": _now(),
            "ended": None,
            "components": {
                path: {
                    "component": f"{chosen.kind}.{chosen.name}",
                    "distribution": chosen.distribution,
                    "version": chosen.version,
                    "replaces": chosen.replaces,
                }
                for path, chosen in pipeline.chosen.items()
            },
            "plugins": [{"file": file.name, "sha256": file.sha256} for file in registry.files],
            "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
            "python": platform.python_version(),
            "machine": f"{platform.system()} {platform.machine()}",
            "device": str(training.run.device),
            "implementations": {
                name: part.implementation for name, part in training.parts.items() if hasattr(part, "implementation")
            },
            "threads": threads,
            "outputs": attrs.asdict(prepared.outputs),
            "vocab_size": prepared.vocab_size,
            "max_length": prepared.max_length,
            "commits": dict(pipeline.commits),
            "data": {
                name: {"records": survey.records, "samples": survey.samples, "tokens": survey.tokens}
                for name, survey in prepared.surveys.items()
            },
            "fingerprints": {**prepared.records.fingerprints, "tokenizer": prepared.fingerprint},
        }
    )


def _end_once(folder: RunFolder, run: Run) -> None:
    """Say in run.json that the run is finished, where a kill right after its last file kept it from saying so."""
    if folder.read_record().get("ended") is None:
        _end_well(folder, run)


def _end_well(folder: RunFolder, run: Run) -> None:
    _end(folder, "stopped_early" if run.stop_reason else "finished", run.stop_reason or f"{run.step} steps")


def _end(folder: RunFolder, status: str, why: str) -> None:
    folder.write_record({"status": status, "why": why, "ended": _now()})


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
