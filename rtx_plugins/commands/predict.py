"""Answer for new records with the model that a run kept."""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from rtx_core import Command, DataError, InputError, Record, hookimpl
from rtx_core.errors import RtxError, RunError
from rtx_core.folder import RunFolder
from rtx_core.header import counted
from rtx_core.plugin_files import with_plugins_of_run
from rtx_plugins.commands.answered import ERROR, Answered
from rtx_plugins.commands.formats import format_of, open_data
from rtx_plugins.commands.kept import add_device, add_trust, reading_of, run_folder
from rtx_plugins.commands.output import line, refuse_output, write_file
from rtx_plugins.data.text import Text
from rtx_plugins.strategies.single import torch_device
from rtx_plugins.tasks.common import value_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rtx_core import Data, Task
    from rtx_core.inference import Trained
    from rtx_core.registry import Registry

_STDIN = Path("/dev/stdin")


@attrs.frozen(kw_only=True)
class Predict(Command):
    """Answer for new records with the model that a run kept. Columns and order stay, the answers are added."""

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """RUN, and what to answer for."""
        parser.add_argument("run", metavar="RUN", help="the run's folder, or run:NAME for runs/NAME")
        parser.add_argument(
            "input",
            nargs="?",
            type=Path,
            metavar="INPUT",
            help="a .csv, .tsv, .jsonl or .txt file, also with .gz or .zst, a .parquet or .arrow file, or - for stdin",
        )
        parser.add_argument(
            "--format", choices=("jsonl", "csv", "text"), help="what INPUT holds, where its name doesn't say it"
        )
        parser.add_argument(
            "--text", action="append", default=[], metavar="TEXT", help="answer for this text instead; may repeat"
        )
        parser.add_argument(
            "--output",
            type=Path,
            metavar="OUT",
            help="a .csv, .tsv or .jsonl file, also with .gz or .zst, or a .parquet file; "
            "without it, or with -, JSON lines on stdout",
        )
        parser.add_argument("--scores", action="store_true", help="add the probability of each label")
        parser.add_argument(
            "--threshold",
            action="append",
            default=[],
            metavar="[LABEL=]X",
            help="predict a label above this probability instead of the run's; may repeat with labels",
        )
        parser.add_argument(
            "--strict", action="store_true", help="refuse an input with a row that can't be read, and write nothing"
        )
        add_device(parser)
        add_trust(parser)

    @classmethod
    def main(cls, arguments: argparse.Namespace, registry: Registry) -> int:
        """Refuse what can't work, then read the model, then answer."""
        if bool(arguments.input) == bool(arguments.text):
            raise InputError("rtx predict: give either INPUT or --text")
        folder, threshold = run_folder(arguments.run), _threshold(arguments.threshold)
        output = None if arguments.output == Path("-") else arguments.output
        if output is not None:
            refuse_output(output, arguments.input)
        data = _open_input(arguments, folder, registry) if arguments.input else None
        with_plugins_of_run(registry, RunFolder(folder), trust=arguments.trust_run_plugins)
        # Only now, since it imports torch.
        from rtx_core import inference

        device = torch_device(arguments.device, "--device")
        trained = inference.load(folder.absolute(), registry, device=device, threshold=threshold)
        source = _texts(arguments.text, trained.settings) if data is None else _fitting(data, trained.settings)
        answered = _answered(source, trained, arguments)
        for name, other in answered.names.items():
            if name != other:
                theirs = next(column for column in answered.columns if f"{column}.".startswith(f"{name}."))
                print(f'note: the input has a column "{theirs}"; the answer is in "{other}"', file=sys.stderr)
        if output is None:
            _print_lines(answered)
        else:
            write_file(answered, output)
            print(f"wrote {counted(answered.count, 'row')} to {output}", file=sys.stderr)
        return _status(answered)


def _status(answered: Answered) -> int:
    """0, or 1 and a line on stderr where rows have no answers."""
    if answered.first_failure is None:
        return 0
    print(
        f"{answered.failures:,} of {counted(answered.count, 'row')} could not be read and have no answers; the column "
        f'"{answered.names[ERROR]}" says why; the first: {answered.first_failure}',
        file=sys.stderr,
    )
    return 1


# --- what to answer for -----------------------------------------------------------------------------------------------


def _place(path: Path) -> Path:
    return _STDIN if path == Path("-") else path


def _open_input(arguments: argparse.Namespace, folder: Path, registry: Registry) -> Data:
    path, kind = _place(arguments.input), arguments.format
    if kind is None and path == _STDIN:
        raise InputError("-: --format says what stdin holds: jsonl, csv or text")
    kind = kind or format_of(path)
    return open_data(path, registry, reading_of(folder, kind), kind=kind)


def _fitting(data: Any, task: Task) -> Callable[[], Iterable[Record]]:
    """The records. Plain text has one column; where the task wants one by another name, it is this."""
    columns = task.columns(targets=False)
    if isinstance(data, Text) and len(columns) == 1 and columns[0] not in ("text", *data.rename.values()):
        data = attrs.evolve(data, rename={"text": columns[0]})
    records: Callable[[], Iterable[Record]] = data.records
    return records


def _texts(texts: Sequence[str], task: Task) -> Callable[[], list[Record]]:
    columns = task.columns(targets=False)
    if len(columns) != 1:
        raise InputError(f"--text: this run's task takes the columns {', '.join(columns)}; give them in a file")
    of_words = getattr(task, "words", None) == columns[0]
    values: list[Any] = [text.split() for text in texts] if of_words else list(texts)
    return lambda: [Record({columns[0]: value}, "--text", number) for number, value in enumerate(values, start=1)]


def _threshold(given: Sequence[str]) -> float | dict[str, float] | None:
    """What ``--threshold`` says: a number, or one for each name, or nothing.

    :raises InputError: it is no number, or says several things.
    """
    named: dict[str, float] = {}
    for text in given:
        name, _, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise InputError(f'--threshold: expected a number, or LABEL=NUMBER, got "{text}"') from None
        if name in named:
            raise InputError(f"--threshold: {f'{name} has' if name else 'there is'} one already; give one of them")
        named[name] = value
    if "" in named and len(named) > 1:
        raise InputError("--threshold: give one number for all labels, or LABEL=NUMBER for some")
    return named.get("", named or None)


# --- answers ----------------------------------------------------------------------------------------------------------


def _answered(source: Callable[[], Iterable[Record]], trained: Trained, arguments: argparse.Namespace) -> Answered:
    """The records with their answers.

    :raises DataError: the input lacks a column that the task needs, or, where that is strict, a value.
    """
    scores, strict = arguments.scores, arguments.strict
    columns = trained.settings.columns(targets=False)

    def attempt(records: Iterable[Record]) -> Iterator[Mapping[str, Any] | DataError]:
        return trained.attempts(records, scores=scores)

    def example() -> Mapping[str, Any]:
        return _example(trained, columns, scores=scores)

    from_pipe = arguments.input is not None and not _place(arguments.input).is_file()
    if from_pipe:
        answered = Answered.of_stream(source(), attempt, example=example, strict=strict)
    else:
        answered = Answered.of_file(source, attempt, example=example, strict=strict)
    for column in columns:
        if column not in answered.columns:
            value_of(next(iter(answered.known())), column)
    if strict and not from_pipe:
        # Before anything is written: on stdout nothing could be taken back.
        deque(trained.task.samples(source(), targets=False), maxlen=0)
    return answered


def _example(trained: Trained, columns: Sequence[str], *, scores: bool) -> Mapping[str, Any]:
    """The answer to a text of one letter, or to a list of one word, whichever the task takes."""
    for value in ("a", ["a"]):
        record = Record(dict.fromkeys(columns, value), "example", 1)
        (answer,) = trained.attempts([record], scores=scores)
        if not isinstance(answer, DataError):
            return answer
    return {}


def _print_lines(answered: Answered) -> None:
    """JSON lines on stdout.

    :raises RtxError: it can't be written, or a pipe brought bad data after rows were printed.
    """
    try:
        for row in answered.rows():
            _print(line(row))
    except DataError as error:
        if answered.count:
            raise RunError(f"{error} (after {counted(answered.count, 'row')})") from error
        raise


def _print(text: str) -> None:
    try:
        print(text)
    except BrokenPipeError:  # whoever read them has enough
        raise
    except OSError as error:
        raise RtxError(f"stdout can't be written: {error.strerror or error}") from error


@hookimpl
def command() -> dict[str, type[Command]]:
    """Offer it as ``predict``."""
    return {"predict": Predict}
