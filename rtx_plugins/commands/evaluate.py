"""Measure the model that a run kept: the same loss and metrics, on the run's own sets or on other data."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from rtx_core import Command, InputError, hookimpl
from rtx_core.arguments import add_sets
from rtx_core.folder import RunFolder, strict_json
from rtx_core.plugin_files import with_plugins_of_run
from rtx_core.python_records import PythonRecords
from rtx_plugins.commands.formats import format_of, open_data
from rtx_plugins.commands.kept import add_device, add_trust, reading_of, run_folder
from rtx_plugins.strategies.single import SinglePart, torch_device

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import torch
    from rich.table import Table

    from rtx_core import Data, Record
    from rtx_core.config import Pipeline
    from rtx_core.evaluation import Evaluator
    from rtx_core.inference import Trained
    from rtx_core.reading import Records
    from rtx_core.registry import Registry

_OTHER = "data"
"""The name of a set that is given on the command line."""
_SETTABLE = ("metrics", "task.threshold", "training.eval_batch_size")
"""What ``--set`` changes, and all inside it; ``data`` too where the sets are the run's own. The rest is the model's."""


@attrs.frozen(kw_only=True)
class Evaluate(Command):
    """Measure the model that a run kept, on its evaluation and test sets or on other data.

    The values are those of the run: with the same eval_batch_size, threads and machine to the bit.
    """

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """RUN, and what to measure it on."""
        parser.add_argument("run", metavar="RUN", help="the run's folder, or run:NAME for runs/NAME")
        parser.add_argument(
            "--data", type=Path, metavar="FILE", help="measure on this file instead; its values are data/…"
        )
        add_sets(parser, example="metrics.f1.average=none")
        parser.add_argument("--json", action="store_true", help="print the values for a program to read")
        add_device(parser)
        add_trust(parser)

    @classmethod
    def main(cls, arguments: argparse.Namespace, registry: Registry) -> int:
        """Refuse what can't work, then read model and data, then measure."""
        folder, path = run_folder(arguments.run), arguments.data
        data = None if path is None else open_data(path, registry, reading_of(folder, format_of(path)))
        with_plugins_of_run(registry, RunFolder(folder), trust=arguments.trust_run_plugins)
        # Only now, since it imports torch.
        from rtx_core import inference

        run = inference.finished(folder)
        pipeline = _pipeline(run, data, arguments.sets, registry)
        values = _measured(run, pipeline, torch_device(arguments.device, "--device"), other=data is not None)
        record = run.read_record()
        if arguments.json:
            step = record.get("kept", {}).get("step")
            print(strict_json({"run": str(folder), "step": step, "values": values}, indent=2))
        elif sys.stdout.isatty():
            _print_table(values, record["outputs"].get("labels"))
        else:
            for name, value in values.items():
                print(name, _shown(value))
        return 0


# --- what is measured -------------------------------------------------------------------------------------------------


def _pipeline(run: RunFolder, data: Data | None, given: Sequence[str], registry: Registry) -> Pipeline:
    """The run's pipeline with the changes of the command line, as far as a finished run still needs it.

    :param data: records to measure on, in place of the run's own sets.
    :raises PipelineError: with every problem.
    """
    from rtx_core import config

    _refuse_sets(given, (*_SETTABLE, *(["data"] if data is None else [])))
    table = _resolved(run)
    # What training started from may be gone; the kept model has all of it. Nothing is monitored any more.
    unset = ["architecture.from_pretrained", "architecture.load", "training.monitor"]
    if data is not None:
        unset += ["data.split", "data.folds", "data.fold", "data.test"]
    sets = [f"{name}=unset" for name in unset if name.partition(".")[2] in table[name.partition(".")[0]]]
    if "path" in table["tokenizer"]:
        sets.append(f"tokenizer.path={run.model}")
    sources: dict[str, Any] = {} if data is None else {"eval": {"": data}}
    if data is not None or not table["data"].keys() & {"split", "folds"}:
        sources["train"] = PythonRecords(name="train", rows=())  # read by nobody, so its files may be gone
    return config.load(run.resolved, sets=[*sets, *given], registry=registry, data=sources)


def _refuse_sets(given: Sequence[str], settable: Sequence[str]) -> None:
    """Say that a setting would change nothing, or measure another model than the one that was kept.

    :raises InputError: it isn't one of these.
    """
    for text in given:
        key = text.partition("=")[0].strip()
        if "=" in text and not f"{key}.".startswith(tuple(f"{name}." for name in settable)):
            raise InputError(f"--set: {key}: evaluate takes it from the run; what can be set is {', '.join(settable)}")


def _resolved(run: RunFolder) -> dict[str, Any]:
    """The settings that the run used, as they stand in its folder.

    :raises InputError: they are missing or damaged.
    """
    table = run.read_resolved()
    if missing := [name for name in ("architecture", "data", "tokenizer", "training") if name not in table]:
        raise InputError(f"{run.resolved}: no table [{missing[0]}]; rtx didn't write it")
    return table


def _measured(run: RunFolder, pipeline: Pipeline, device: torch.device, *, other: bool) -> dict[str, Any]:
    """Every value of every set by its full name, as ``eval/accuracy``.

    :param other: the records are not the run's.
    :raises InputError: there is nothing to measure on, or the settings don't fit the model.
    """
    import torch

    from rtx_core import build, inference
    from rtx_core.config import ModelParts
    from rtx_core.prepare import task_name
    from rtx_core.store import SampleStore

    records = _records(run, pipeline, other=other)
    sets = dict(_sets(records, other=other))
    if not sets:
        raise InputError(f"{run.path} has neither evaluation nor test data; give some by --data")
    build.set_up_process(pipeline)
    parts = ModelParts(
        task_name=task_name(pipeline), task=pipeline.task, architecture=pipeline.architecture, head=pipeline.head
    )
    trained = inference.restored(run, parts, device=device)
    evaluator = _evaluator(pipeline, trained)
    values: dict[str, Any] = {}
    for name, of_set in sets.items():
        store = SampleStore(trained.task.samples(of_set))
        for note in trained.task.notes():
            print(f"note: {name}: {note}", file=sys.stderr)
        with torch.inference_mode():
            values |= {f"{name}/{key}": value for key, value in evaluator.values(store).items()}
    return values


def _records(run: RunFolder, pipeline: Pipeline, *, other: bool) -> Records:
    """The records of each set; a note where they aren't those of the run any more."""
    from rtx_core.reading import read_records

    def fingerprint(_: object, source: Data) -> str:
        return "" if other or isinstance(source, PythonRecords) else source.fingerprint()

    records = read_records(pipeline, fingerprint)
    before = run.read_record().get("fingerprints", {})
    for name, now in records.fingerprints.items():
        if now and before.get(name) != now:
            print(f"note: the contents of data.{name} have changed since the run", file=sys.stderr)
    return records


def _sets(records: Records, *, other: bool) -> Iterator[tuple[str, Iterable[Record]]]:
    from rtx_core.config.pipeline import eval_name

    for name, of_set in records.eval.items():
        yield _OTHER if other else eval_name(name), of_set
    if records.test is not None:
        yield "test", records.test


def _evaluator(pipeline: Pipeline, trained: Trained) -> Evaluator:
    """As the run had it, without anything that trains."""
    import torch

    from rtx_core import build
    from rtx_core.epochs import cutting, evaluation_size
    from rtx_core.evaluation import Evaluator

    loss = build.build_loss(pipeline, trained.outputs)
    if isinstance(loss, torch.nn.Module):
        loss.to(trained.device).eval()
    return Evaluator(
        model=trained.model,
        loss=loss,
        task=trained.task,
        outputs=trained.outputs.size,
        metrics=build.build_metrics(pipeline, trained.outputs),
        strategy=SinglePart(trained.device),
        seed=pipeline.run.seed,
        batch_size=evaluation_size(pipeline, cutting(pipeline), trained.max_length),
        whole_step=pipeline.training.batch_size if pipeline.loss.whole_step else None,
    )


# --- what is shown ----------------------------------------------------------------------------------------------------


def _print_table(values: Mapping[str, Any], labels: Sequence[str] | None) -> None:
    """A column for each set, a row for each value; of a list by label a row for each of these."""
    import rich.console
    import rich.table

    cells: dict[str, dict[str, str]] = {}
    for full, value in values.items():
        name, _, short = full.rpartition("/")
        for row, one in _by_label(short, value, labels):
            cells.setdefault(row, {})[name] = _shown(one)
    sets = list(dict.fromkeys(name.rpartition("/")[0] for name in values))
    table: Table = rich.table.Table(box=None)
    table.add_column("")
    for name in sets:
        table.add_column(name, justify="right")
    for row, of_sets in cells.items():
        table.add_row(row, *(of_sets.get(name, "") for name in sets))
    rich.console.Console(markup=False, highlight=False).print(table)


def _by_label(name: str, value: Any, labels: Sequence[str] | None) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list) and labels is not None and len(value) == len(labels):
        yield from ((f"{name} {label}", one) for label, one in zip(labels, value, strict=True))
    else:
        yield name, value


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else json.dumps(value)


@hookimpl
def command() -> dict[str, type[Command]]:
    """Offer it as ``evaluate``."""
    return {"evaluate": Evaluate}
