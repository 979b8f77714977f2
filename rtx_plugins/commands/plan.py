"""Show what a run would do: parts and where they come from, data, model, steps, rates, and every value used."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from rtx_core import Command, Interval, Length, hookimpl
from rtx_core.arguments import add_no_cache, add_pipeline
from rtx_core.header import counted, parameter_counts
from rtx_core.sources import Hub

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np

    from rtx_core import Horizon, ParameterGroup, Record
    from rtx_core.config import Pipeline
    from rtx_core.config.places import Places
    from rtx_core.model import Model
    from rtx_core.prepare import Prepared
    from rtx_core.registry import Registry
    from rtx_core.samples import Samples

_UNCUT = 1 << 24
"""A length that no text reaches, to see how long texts are before they are cut."""


@attrs.frozen(kw_only=True)
class Plan(Command):
    """Show what a run would do, without training. It reads the data, and builds the model without its memory."""

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """PIPELINE and ``--json``."""
        add_pipeline(parser)
        add_no_cache(parser)
        parser.add_argument("--json", action="store_true", help="print it for a program to read")

    @classmethod
    def main(cls, arguments: argparse.Namespace, registry: Registry) -> int:
        """Check, prepare, print."""
        from rtx_core import config

        hub = Hub(network=True)
        pipeline = config.load(arguments.pipeline, sets=arguments.sets, registry=registry, hub=hub)
        report = plan(pipeline, cache=arguments.cache)
        if arguments.json:
            print(json.dumps(report, indent=2, ensure_ascii=False))
        else:
            print("\n".join(_text(report)))
        for note in pipeline.notes:
            print(f"note: {note}", file=sys.stderr)
        return 0


def plan(pipeline: Pipeline, *, cache: bool = True) -> dict[str, Any]:
    """Everything that is known before the first step, as plain data.

    :param cache: take what earlier starts have encoded, and keep what is encoded now.
    """
    import torch

    from rtx_core import build
    from rtx_core.console import Console
    from rtx_core.groups import parameter_groups
    from rtx_core.prepare import prepare

    prepared = prepare(pipeline, console=Console(quiet=True), cache=cache)
    with torch.device("meta"):
        model, _ = build.build_model(pipeline, prepared, working_directory=Path.cwd())
    groups = parameter_groups(model, pipeline.architecture.layer_names(), pipeline.optimizer)
    origins = Origins(pipeline)
    return {
        "run": pipeline.run.name,
        "parts": _parts(pipeline, origins),
        "data": _data(pipeline, prepared),
        "model": _model(model, prepared),
        "steps": _steps(pipeline, prepared),
        "groups": [_group(group) for group in groups],
        "rates": _rates(pipeline, prepared.horizon),
        "settings": [
            {"key": key, "value": value, "origin": origins.of(key)} for key, value in _flat(pipeline.resolved)
        ],
    }


# --- findings ---------------------------------------------------------------------------------------------------------


class Origins:
    """Where each value was written, as ``pipeline.toml:31``."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._origins = pipeline.origins
        self._files: dict[Path, Places] = {}

    def of(self, key: str) -> str:
        """The origin of a dotted key; of the nearest table around it where it has none of its own."""
        from rtx_core.config.places import Places

        while key and key not in self._origins:
            key = key.rpartition(".")[0]
        if not key:
            return "default"
        origin = self._origins[key]
        if origin.file is None:
            return str(origin)
        if origin.file not in self._files:
            self._files[origin.file] = Places(origin.file.read_text(encoding="utf-8-sig"))
        return f"{origin}:{self._files[origin.file].find(origin.keys, 'key').line}"


def _parts(pipeline: Pipeline, origins: Origins) -> list[dict[str, Any]]:
    return [
        {
            "table": table,
            "part": f"{chosen.kind}.{chosen.name}",
            "from": chosen.source,
            "replaces": chosen.replaces,
            "origin": origins.of(f"{table}.type"),
        }
        for table, chosen in pipeline.chosen.items()
    ]


def _data(pipeline: Pipeline, prepared: Prepared) -> dict[str, dict[str, Any]]:
    from rtx_core.config.pipeline import eval_name
    from rtx_core.packing import documents

    sets: dict[str, tuple[Samples, Iterable[Record]]] = {}
    if pipeline.data.stream is None:
        sets["training"] = (documents(prepared.train), prepared.records.train)
    for name, store in prepared.eval.items():
        sets[eval_name(name)] = (store, prepared.records.eval[name])
    if prepared.test is not None and prepared.records.test is not None:
        sets["test"] = (prepared.test, prepared.records.test)
    task = attrs.evolve(pipeline.task, max_length=None).build(
        prepared.tokenizer,
        prepared.outputs,
        max_length=_UNCUT,
        special_tokens=pipeline.architecture.special_tokens,
    )
    return {
        name: {
            "records": prepared.surveys[name].records,
            "samples": len(store),
            "tokens": store.tokens,
            **_lengths(store.lengths),
            "cut": _share_cut([len(sample.input_ids) for sample in task.samples(records)], store),
        }
        for name, (store, records) in sets.items()
    }


def _lengths(lengths: np.ndarray) -> dict[str, int]:
    import numpy as np

    return {
        "median": int(np.median(lengths)),
        "p95": int(np.percentile(lengths, 95)),
        "longest": int(lengths.max()),
    }


def _share_cut(whole: Sequence[int], store: Samples) -> float | None:
    """The share of samples of which tokens are lost; None where long texts become several samples instead."""
    if len(whole) != len(store):
        return None
    lost = [before > after for before, after in zip(whole, store.lengths.tolist(), strict=True)]
    return lost.count(True) / len(lost)


def _model(model: Model, prepared: Prepared) -> dict[str, int]:
    counts = parameter_counts(model)
    return {**counts, "total": sum(counts.values()), "vocab_size": prepared.vocab_size}


def _steps(pipeline: Pipeline, prepared: Prepared) -> dict[str, Any]:
    from rtx_core.packing import PackedStore

    horizon, cutting, training = prepared.horizon, prepared.cutting, pipeline.training
    epochs = None if horizon.streamed else horizon.total / horizon.steps_per_epoch
    return {
        "total": horizon.total,
        "per_epoch": None if epochs is None else horizon.steps_per_epoch,
        "epochs": epochs,
        "samples_per_epoch": None if epochs is None else horizon.samples_per_epoch,
        "fill": prepared.train.fill if isinstance(prepared.train, PackedStore) else None,
        "batch_size": training.batch_size,
        "batch_tokens": training.batch_tokens,
        "micro_batch_size": "auto" if training.micro_batch_size == "auto" else cutting.micro_batch_size,
        "processes": cutting.processes,
        "tokens": None if epochs is None else round(horizon.tokens_per_epoch * epochs),
        "evaluations": times(horizon, training.eval_every) + training.eval_at_start if prepared.eval else 0,
        "checkpoints": _checkpoints(pipeline, horizon),
    }


def times(horizon: Horizon, every: Length) -> int:
    """How often something happens that falls on every multiple of a length, and after the last step in any case."""
    exact = horizon.exact(every)
    if not exact:
        return 1
    # Multiples below a step fall on the same step.
    on_schedule = min(horizon.total, int(horizon.total / exact))
    return on_schedule + (not horizon.due(exact, horizon.total))


def _checkpoints(pipeline: Pipeline, horizon: Horizon) -> int | str:
    """How many the plan asks for; a new best adds one each."""
    every = getattr(pipeline.callbacks.get("checkpoint"), "every", None)
    if not isinstance(every, Length):
        return 1
    if isinstance(every, Interval) and every.seconds is not None:
        return f"every {every}"
    return times(horizon, every)


def _group(group: ParameterGroup) -> dict[str, Any]:
    return {
        "role": group.role,
        "layer": group.layer,
        "lr": group.lr,
        "weight_decay": group.weight_decay,
        "tensors": len(group.parameters),
        "parameters": sum(parameter.numel() for parameter in group.parameters.values()),
    }


def _rates(pipeline: Pipeline, horizon: Horizon) -> dict[str, Any]:
    """The rate at a few updates, counted from 0: where it turns, at each quarter, and at the last."""
    from rtx_core.schedule import build_schedule

    schedule, warmup = build_schedule(pipeline.scheduler, horizon), horizon.steps(pipeline.scheduler.warmup)
    last = horizon.total - 1
    updates = sorted({0, min(warmup, last), *(last * quarter // 4 for quarter in range(1, 5))})
    return {
        "warmup": warmup,
        "updates": [{"update": i, "lr": pipeline.optimizer.lr * schedule.factor(i)} for i in updates],
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


# --- text -------------------------------------------------------------------------------------------------------------


def _text(report: Mapping[str, Any]) -> Iterator[str]:
    yield f"run {report['run']}"
    yield from _table("parts", ["table", "part", "from", "written in"], _part_rows(report["parts"]))
    headings = ["set", "records", "samples", "tokens", "median", "95 %", "longest", "cut off"]
    yield from _table("data", headings, [[name, *map(_cell, row.values())] for name, row in report["data"].items()])
    yield from _table("model", list(report["model"]), [list(map(_cell, report["model"].values()))])
    yield from _table("steps", *_turned(report["steps"]))
    groups = [[_cell(value) for value in group.values()] for group in report["groups"]]
    yield from _table("parameter groups", list(report["groups"][0]), groups)
    rates = [[f"{row['update']:,}", f"{row['lr']:.4g}"] for row in report["rates"]["updates"]]
    warmup = counted(report["rates"]["warmup"], "step")
    yield from _table(f"rate, with {warmup} of warm-up", ["update", "lr"], rates)
    settings = [[row["key"], _toml(row["value"]), row["origin"]] for row in report["settings"]]
    yield from _table("settings", ["key", "value", "from"], settings)


def _part_rows(parts: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    rows = []
    for part in parts:
        instead = f" instead of {part['replaces']}" if part["replaces"] else ""
        rows.append([part["table"], part["part"], part["from"] + instead, part["origin"]])
    return rows


def _turned(steps: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    return [name.replace("_", " ") for name in steps], [[_cell(value) for value in steps.values()]]


def _table(title: str, headings: list[str], rows: list[list[str]]) -> Iterator[str]:
    """A title, and columns as wide as they need to be; numbers to the right."""
    yield f"\n{title}"
    for cells in (headings, *rows):
        aligned = []
        for place, cell in enumerate(cells):
            column = [row[place] for row in rows]
            width = max(map(len, [headings[place], *column]))
            aligned.append(cell.rjust(width) if all(map(_is_number, column)) else cell.ljust(width))
        yield f"  {'  '.join(aligned)}".rstrip()


def _is_number(cell: str) -> bool:
    return cell[:1].isdigit() or cell in ("–", "")


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _toml(value: Any) -> str:
    return "(left out)" if value is None else json.dumps(value, ensure_ascii=False)


@hookimpl
def command() -> dict[str, type[Command]]:
    """Offer it as ``plan``."""
    return {"plan": Plan}
