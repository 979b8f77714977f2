"""Several runs of one pipeline, over seeds or over folds, and what they say together: how sure a figure is.

Each is an ordinary run in a folder of its own (``runs/NAME-seed-17``, ``runs/NAME-fold-1``). What belongs to all of
them goes to ``runs/NAME-seeds`` or ``runs/NAME-folds``.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from rtx_core import inference
from rtx_core.config.pipeline import folder_of
from rtx_core.errors import InputError
from rtx_core.folder import RunFolder, replacing, strict_json, write_text_atomically
from rtx_core.header import counted, number
from rtx_core.reading import read_records
from rtx_core.runner import run_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rtx_core.config import Pipeline
    from rtx_core.console import Console
    from rtx_core.registry import Registry
    from rtx_core.runner import RunOptions

    Load = Callable[[Sequence[str]], Pipeline]


@attrs.frozen
class Member:
    """One run of a series."""

    suffix: str
    """What its name has behind the pipeline's: ``seed-17``."""
    sets: tuple[str, ...]
    """What it changes, as ``--set`` takes it."""


@attrs.frozen(kw_only=True)
class Figure:
    """One value over the runs of a series."""

    mean: float
    sd: float | None
    """Sample standard deviation (n − 1); None of a single run."""
    lowest: float
    highest: float
    runs: int
    """In how many of the runs it is a number."""


@attrs.frozen
class Series:
    """The runs that a pipeline stands for."""

    over: Literal["seeds", "folds"]
    members: tuple[Member, ...]


def series_of(pipeline: Pipeline, seeds: int | None) -> Series | None:
    """One run for each seed, or for each fold; None where the pipeline is a single run.

    :param seeds: how many seeds were asked for.
    :raises InputError: both were asked for.
    """
    folds = pipeline.data.folds
    each_fold = () if folds is None or folds.index is not None else range(1, folds.count + 1)
    if seeds is not None and each_fold:
        raise InputError("--seeds makes a run for each seed, [data] folds one for each fold; take one (data.fold = 1)")
    if each_fold:
        return Series("folds", tuple(Member(f"fold-{fold}", (f"data.fold={fold}",)) for fold in each_fold))
    if seeds is None:
        return None
    split, first = pipeline.data.split, pipeline.run.seed
    # What is split off stays the same, so that the figures are of the same records.
    same = () if split is None or split.seed is not None else (f"data.split.seed={first}",)
    chosen = range(first, first + seeds)
    return Series("seeds", tuple(Member(f"seed-{seed}", (f"run.seed={seed}", *same)) for seed in chosen))


def run_series(series: Series, load: Load, registry: Registry, options: RunOptions, console: Console) -> Path:
    """Make all runs, one after the other, and the folder of what they give together; its path.

    Interrupted, it goes on with ``resume``: finished runs stay as they are.

    :param load: the pipeline with some more ``--set``.
    :raises RtxError: a run was refused, failed or interrupted; those before it stand.
    """
    base = load(())
    if options.steps is not None:
        raise InputError("--steps is a trial of one run; leave --seeds out, or take one fold by --set data.fold=1")
    pipelines = [load((*member.sets, f"run.name={base.run.name}-{member.suffix}")) for member in series.members]
    paths = [_path(base, options, member.suffix) for member in series.members]
    together = _path(base, options, series.over)
    if options.way == "start":
        for path in paths:  # all of them before the first: hours later is too late to be refused
            RunFolder.refuse(path, "start")
    for place, (pipeline, path) in enumerate(zip(pipelines, paths, strict=True), start=1):
        console.say(f"{place} of {counted(len(paths), 'run')}: {pipeline.run.name}")
        run_pipeline(pipeline, registry, attrs.evolve(options, output=path), console)
        console.close_log()
    together.mkdir(parents=True, exist_ok=True)
    summary = {
        "runs": [str(path) for path in paths],
        "figures": {name: attrs.asdict(figure) for name, figure in figures(paths).items()},
    }
    write_text_atomically(together / "summary.json", strict_json(summary, indent=2) + "\n")
    if series.over == "folds":
        _write_out_of_fold(pipelines, paths, together / "predictions.jsonl", registry)
    return together


def _path(pipeline: Pipeline, options: RunOptions, suffix: str) -> Path:
    path = folder_of(pipeline, options.output, Path.cwd())
    return path.with_name(f"{path.name}-{suffix}")


# --- figures ----------------------------------------------------------------------------------------------------------


def figures(paths: Sequence[Path]) -> dict[str, Figure]:
    """Each value of the kept models, by its full name, over the runs in these folders."""
    columns: dict[str, list[float]] = {}
    for path in paths:
        for name, value in _values_of_kept(RunFolder(path)).items():
            columns.setdefault(name, []).append(value)
    return {
        name: Figure(
            mean=statistics.fmean(values),
            sd=statistics.stdev(values) if len(values) > 1 else None,
            lowest=min(values),
            highest=max(values),
            runs=len(values),
        )
        for name, values in columns.items()
    }


def _values_of_kept(folder: RunFolder) -> dict[str, float]:
    """What was measured of the kept model: at its step, and on the test set."""
    record = folder.read_record()
    step = record["kept"]["step"]
    rows = (json.loads(line) for line in folder.metrics.read_text(encoding="utf-8").splitlines())
    values: dict[str, Any] = {}
    for row in rows:
        if row["step"] == step:
            values |= {name: value for name, value in row.items() if name.startswith("eval/")}
    return {name: value for name, value in (values | record["test"]).items() if isinstance(value, int | float)}


def table(together: Path) -> str:
    """The figures of a series for a person: mean ± standard deviation, lowest and highest."""
    summary = json.loads((together / "summary.json").read_text(encoding="utf-8"))
    runs = len(summary["runs"])
    rows = [("", "mean ± sd", "lowest", "highest", "")]
    for name, figure in summary["figures"].items():
        spread = "" if figure["sd"] is None else f" ± {number(figure['sd'])}"
        missing = "" if figure["runs"] == runs else f"of {counted(figure['runs'], 'run')}"
        rows.append(
            (name, number(figure["mean"]) + spread, number(figure["lowest"]), number(figure["highest"]), missing)
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join((f"over {counted(runs, 'run')}:", *lines))


# --- out of fold ------------------------------------------------------------------------------------------------------


def _write_out_of_fold(
    pipelines: Sequence[Pipeline], paths: Sequence[Path], destination: Path, registry: Registry
) -> None:
    """Every training record once, answered by the model of the run that held it out; in the order of the data."""
    rows: list[tuple[str, int, dict[str, Any]]] = []
    for fold, (pipeline, path) in enumerate(zip(pipelines, paths, strict=True), start=1):
        trained = inference.load(path, registry)
        records = list(read_records(pipeline).eval[""])
        answers = trained.answers(records, scores=True)
        rows += [
            (record.file, record.line, {**record.values, **_beside(record.values, {**answer, "fold": fold})})
            for record, answer in zip(records, answers, strict=True)
        ]
    rows.sort(key=lambda row: row[:2])
    with replacing(destination) as stream:
        stream.writelines(f"{strict_json(row, other=str)}\n".encode() for _, _, row in rows)


def _beside(taken: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer under names that the record doesn't have."""
    return {f"{name}_2" if name in taken else name: value for name, value in answer.items()}
