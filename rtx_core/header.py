"""What a run says of itself: the header before its first step, and the summary after its last."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from rtx_core.packing import PackedStore, documents

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from rtx_core.build import Training
    from rtx_core.components import Outputs, Source
    from rtx_core.config import Pipeline
    from rtx_core.model import Model
    from rtx_core.prepare import Prepared
    from rtx_core.registry import Chosen
    from rtx_core.samples import Samples
    from rtx_core.weights import LoadReport

_SHOWN_LABELS = 6
_SHOWN_NAMES = 3


def header(pipeline: Pipeline, prepared: Prepared, training: Training) -> RenderableType:
    """What is about to run and from where, one line for each part that replaces ours."""
    return _aligned(_header_rows(pipeline, prepared, training))


def _header_rows(pipeline: Pipeline, prepared: Prepared, training: Training) -> Iterator[tuple[str, str]]:
    run = training.run
    yield "run", pipeline.run.name
    yield "task", " · ".join((pipeline.chosen["task"].name, *_described(prepared.outputs)))
    yield "data", data_line(prepared)
    yield "model", f"{architecture_line(pipeline)}, {model_line(training.model)}"
    source = pipeline.architecture.from_pretrained
    if source is not None and training.loaded is not None:
        yield "weights", weights_line(source, training.loaded)
    yield "device", device_line(training)
    yield "plan", plan_line(pipeline, prepared)
    yield "folder", shown(run.folder)
    yield from (("replaced", line) for line in replacements(pipeline.chosen))


def architecture_line(pipeline: Pipeline) -> str:
    """The architecture's name, and the family's where it builds many."""
    name, architecture = pipeline.chosen["architecture"].name, pipeline.architecture
    return f"{name} ({architecture.model_type})" if architecture.any_model_type else name


def replacements(parts: Mapping[str, Chosen]) -> list[str]:
    """One line for each part that is taken from another package although rtx-transformers has one of that name."""
    lines = [
        f"{chosen.kind}.{chosen.name} is supplied by {chosen.source} instead of {chosen.replaces}"
        for chosen in parts.values()
        if chosen.replaces is not None
    ]
    return list(dict.fromkeys(lines))


def data_line(prepared: Prepared) -> str:
    """How many samples each set has, and how long they are."""
    train, streamed = prepared.train, prepared.horizon.streamed
    sets: list[tuple[str, Samples]] = [(name or "eval", store) for name, store in prepared.eval.items()]
    if not streamed:
        sets.insert(0, ("training", documents(train)))
    if prepared.test is not None:
        sets.append(("test", prepared.test))
    counts = ", ".join(
        [*(["training streamed"] if streamed else []), *(f"{len(store):,} {name}" for name, store in sets)]
    )
    tokens = "unknown tokens an epoch" if streamed else f"{prepared.horizon.tokens_per_epoch:,} tokens an epoch"
    packed = f" · packed into {packing_line(train)}" if isinstance(train, PackedStore) else ""
    return f"{counts} · {tokens} · at most {prepared.max_length} a sequence{packed}"


def packing_line(store: PackedStore) -> str:
    """How many packed samples there are, and how full they are."""
    return f"{counted(len(store), 'sample')} of {store.capacity}, {store.fill:.1%} full"


def model_line(model: Model) -> str:
    """How many parameters the model has, and where."""
    counts = parameter_counts(model)
    parts = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)
    total, trained = sum(counts.values()), sum(p.numel() for p in model.parameters() if p.requires_grad)
    some = "" if trained == total else f", {trained:,} of them trained"
    return f"{total:,} parameters ({parts}){some}"


def parameter_counts(model: Model) -> dict[str, int]:
    """Parameters of encoder, pooler and head, tied ones once. The pooler is what bears that name, wherever it is."""
    counts = {"encoder": 0, "pooler": 0, "head": 0}
    for name, parameter in model.named_parameters():
        place = "pooler" if "pooler" in name.split(".") else "head" if name.startswith("head.") else "encoder"
        counts[place] += parameter.numel()
    return counts


def weights_line(source: Source, report: LoadReport) -> str:
    """Where the first weights came from, what became of their rows, what the model has beside them, and what it leaves.

    What is resized has other rows than the weights, and some of their values.
    """
    place = shown(Path(source.location)) if source.scheme == "folder" else str(source)
    loaded = counted(len(report.loaded), "tensor")
    resized = f", {_named(report.resized, 'resized')}" if report.resized else ""
    return f"{loaded} from {place}{resized}, {_named(report.new, 'new')}, {_named(report.unused, 'unused')}"


def device_line(training: Training) -> str:
    """Where it computes."""
    import torch

    device = training.run.device
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return f"{device}, {counted(torch.get_num_threads(), 'thread')}"


def plan_line(pipeline: Pipeline, prepared: Prepared) -> str:
    """How many steps, and of what."""
    horizon, training = prepared.horizon, pipeline.training
    same = "" if training.duration.unit == "steps" else f"{training.duration} = "
    size = f"about {training.batch_tokens:,} tokens" if training.batch_size is None else _sequences(training.batch_size)
    return f"{same}{counted(horizon.total, 'step')} of {size}{_pieces(pipeline, prepared)}" + (
        "" if horizon.streamed else f" · {horizon.steps_per_epoch:,} an epoch"
    )


def _sequences(count: int) -> str:
    return counted(count, "sequence")


def _pieces(pipeline: Pipeline, prepared: Prepared) -> str:
    """In how many pieces each process computes a step, where they are more than one."""
    training, cutting = pipeline.training, prepared.cutting
    if training.micro_batch_size == "auto":
        return " in micro-batches as large as the memory allows"
    samples = training.batch_size or -(-prepared.horizon.samples_per_epoch // prepared.horizon.steps_per_epoch)
    pieces = 1 if cutting.micro_batch_size is None else -(-samples // (cutting.micro_batch_size * cutting.processes))
    about = "" if training.batch_size is not None else "about "
    return f" in {about}{pieces} micro-batches" if pieces > 1 else ""


def summary(training: Training, folder: Path, test: Mapping[str, Any], *, resumed: bool = False) -> RenderableType:
    """How the run ended: the best value, the test set's, the time it took, and what can be done with the model.

    :param test: the values of the test set by full name, empty where there is none.
    :param resumed: the time is that of the steps since a checkpoint.
    """
    return _aligned(_summary_rows(training, folder, test, resumed=resumed))


def _summary_rows(
    training: Training, folder: Path, test: Mapping[str, Any], *, resumed: bool
) -> Iterator[tuple[str, str]]:
    run = training.run
    whole, epochs = run.horizon.total, f"{run.epoch:.4g}"
    done = counted(run.step, "step") if run.step == whole else f"{run.step:,} of {counted(whole, 'step')}"
    taken = _time_taken(folder) + (" in this session" if resumed else "")
    steps = f"{done}, {epochs} epoch{'' if epochs == '1' else 's'}{taken}"
    yield "done", f"{steps} · {run.stop_reason}" if run.stop_reason else steps
    if skipped := run.step - run.updates:
        of_all = "all steps, so nothing was learnt" if run.updates == 0 else f"{skipped:,} of them"
        yield "skipped", f"{of_all}: no update was made; metrics.jsonl says why"
    if run.best_value is not None:
        yield "best", f"{run.monitor} {number(run.best_value)} at step {run.best_step:,}"
    if figures := [f"{name} {number(value)}" for name, value in test.items() if isinstance(value, (int, float))]:
        yield "test", ", ".join(figures)
    yield "model", f"{shown(folder / 'model')} (the {'best' if run.best_value is not None else 'last'})"
    if columns := _columns_to_predict(training.run.pipeline):
        yield "try", _predict_command(folder, columns)


def _time_taken(folder: Path) -> str:
    from rtx_core.folder import RunFolder

    started = RunFolder(folder).read_record().get("started")
    if not started:
        return ""
    seconds = (dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(started)).total_seconds()
    return f" in {duration(seconds)}"


def _columns_to_predict(pipeline: Pipeline) -> tuple[str, ...]:
    """What ``predict`` needs; nothing where the outputs are tokens and there is nothing to ask for."""
    return () if pipeline.chosen["task"].name.endswith("_lm") else pipeline.task.columns(targets=False)


def _predict_command(folder: Path, columns: tuple[str, ...]) -> str:
    example = '--text "…"' if len(columns) == 1 else "new.csv --output predicted.csv"
    return f"rtx predict {shown(folder)} {example}"


# --- words ------------------------------------------------------------------------------------------------------------


def counted(count: int, noun: str) -> str:
    """``1 step``, ``1,200 steps``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def number(value: float | None) -> str:
    """A value as people compare it: four digits after the point while it is small."""
    if value is None:
        return "–"
    return f"{value:.4f}" if abs(value) < 1000 else f"{value:.4g}"  # noqa: PLR2004 - where four digits are no use any more


def duration(seconds: float) -> str:
    """``42 s``, ``3:05 min``, ``2:03:05 h``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02} h"
    return f"{minutes}:{rest:02} min" if minutes else f"{rest} s"


def shown(path: Path) -> str:
    """A path as the person would write it: relative where it is below the working directory."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _described(outputs: Outputs) -> Iterator[str]:
    if outputs.labels is None:
        return
    names = ", ".join(outputs.labels[:_SHOWN_LABELS])
    yield f"{counted(len(outputs.labels), 'label')}: {names}{', …' if len(outputs.labels) > _SHOWN_LABELS else ''}"


def _named(names: Sequence[str], what: str) -> str:
    """``0 new``, ``2 new (a, b)``, ``9 new (a, b, c and 6 more)``."""
    more = f" and {len(names) - _SHOWN_NAMES:,} more" if len(names) > _SHOWN_NAMES else ""
    some = f" ({', '.join(names[:_SHOWN_NAMES])}{more})" if names else ""
    return f"{len(names):,} {what}{some}"


def _aligned(rows: Iterable[tuple[str, str]]) -> Text:
    """Two columns. Text, not a table: in a pipe and in the log a path or a command stays in one piece."""
    rows = list(rows)
    width = max(len(name) for name, _ in rows)
    return Text("\n").join(Text.assemble((name.ljust(width), "bold"), "  ", text) for name, text in rows)
