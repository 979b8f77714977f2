"""Answer for new records with the model that a run kept."""

from __future__ import annotations

import csv
import itertools
import json
import math
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import attrs
import tomli

from rtx_core import Command, InputError, Record, hookimpl
from rtx_core.errors import RtxError
from rtx_core.folder import RunFolder
from rtx_core.plugin_files import with_plugins_of_run
from rtx_plugins.commands.formats import format_of, open_data

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rtx_core import Data, Task
    from rtx_core.registry import Registry

    Answer = Callable[[Iterable[Record]], Iterator[dict[str, Any]]]

_DELIMITERS = {".csv": ",", ".tsv": "\t", ".jsonl": None, ".ndjson": None}
"""By the ending of an output file; None for JSON lines."""
_NOT_A_FORMAT = frozenset({"type", "files", "limit", "columns", "weight"})


@attrs.frozen(kw_only=True)
class Predict(Command):
    """Answer for new records with the model that a run kept. Columns and order stay, the answers are added."""

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """RUN, and what to answer for."""
        parser.add_argument("run", metavar="RUN", help="the run's folder, or run:NAME for runs/NAME")
        parser.add_argument(
            "input", nargs="?", type=Path, metavar="INPUT", help="a .csv, .tsv, .jsonl or .txt file, also with .gz"
        )
        parser.add_argument(
            "--text", action="append", default=[], metavar="TEXT", help="answer for this text instead; may repeat"
        )
        parser.add_argument(
            "--output", type=Path, metavar="OUT", help="a .csv, .tsv or .jsonl file; JSON lines on stdout without one"
        )
        parser.add_argument("--scores", action="store_true", help="add the probability of each label")
        parser.add_argument(
            "--trust-run-plugins", action="store_true", help="use the --plugin files that the run's folder has kept"
        )

    @classmethod
    def main(cls, arguments: argparse.Namespace, registry: Registry) -> int:
        """Refuse what can't work, then read the model, then answer."""
        if bool(arguments.input) == bool(arguments.text):
            raise InputError("rtx predict: give either INPUT or --text")
        folder = run_folder(arguments.run)
        _refuse_output(arguments.output, arguments.input)
        data = _open_input(arguments.input, folder, registry) if arguments.input else None
        with_plugins_of_run(registry, RunFolder(folder), trust=arguments.trust_run_plugins)
        # Only now, since it imports torch.
        from rtx_core import inference

        trained = inference.load(folder.absolute(), registry)
        source = _texts(arguments.text, trained.settings) if data is None else _fitting(data, trained.settings).records
        answered = Answered(source, lambda records: trained.answers(records, scores=arguments.scores))
        for name, other in answered.renamed.items():
            print(f'note: the input has a column "{name}"; the answer is in "{other}"', file=sys.stderr)
        if arguments.output is None:
            _print_lines(answered.rows())
        else:
            count = write_file(answered, arguments.output)
            print(f"wrote {count:,} rows to {arguments.output}", file=sys.stderr)
        return 0


def run_folder(text: str) -> Path:
    """The folder that a command line means by a run.

    :raises InputError: there is no such folder.
    """
    scheme, colon, name = text.partition(":")
    folder = Path("runs", name) if colon and scheme == "run" else Path(text)
    if not folder.is_dir():
        hint = f'; for the run of this name write "run:{text}"' if Path("runs", text).is_dir() else ""
        raise InputError(f"{folder}: no such folder{hint}")
    return folder


# --- what to answer for -----------------------------------------------------------------------------------------------


def _open_input(path: Path, folder: Path, registry: Registry) -> Data:
    return open_data(path, registry, _reading_of(folder, format_of(path)))


def _reading_of(folder: Path, kind: str) -> dict[str, Any]:
    """How the run read its training data (delimiter, other names of columns, …), if they had the same format."""
    try:
        table = tomli.loads(RunFolder(folder).resolved.read_text(encoding="utf-8"))["data"]["train"]
    except (OSError, ValueError, KeyError):  # no run's folder: said when the model is read
        return {}
    sources = table if isinstance(table, list) else [table]
    source: dict[str, Any] = next((source for source in sources if source["type"] == kind), {})
    return {key: value for key, value in source.items() if key not in _NOT_A_FORMAT}


def _fitting(data: Any, task: Task) -> Any:
    """Plain text has one column; where the task wants one by another name, it is this."""
    columns = task.columns(targets=False)
    if format_of(data.files[0]) == "text" and len(columns) == 1 and columns[0] not in ("text", *data.rename.values()):
        return attrs.evolve(data, rename={"text": columns[0]})
    return data


def _texts(texts: Sequence[str], task: Task) -> Callable[[], list[Record]]:
    columns = task.columns(targets=False)
    if len(columns) != 1:
        raise InputError(f"--text: this run's task takes the columns {', '.join(columns)}; give them in a file")
    of_words = getattr(task, "words", None) == columns[0]
    values: list[Any] = [text.split() for text in texts] if of_words else list(texts)
    return lambda: [Record({columns[0]: value}, "--text", number) for number, value in enumerate(values, start=1)]


# --- answers ----------------------------------------------------------------------------------------------------------


class Answered:
    """Records and their answers, in order and in constant memory."""

    def __init__(self, source: Callable[[], Iterable[Record]], answer: Answer) -> None:
        """Read all records once, so that a bad line is found before the work, and every column is known.

        :param source: gives the records from the beginning, each time it is called.
        :param answer: the columns to add to each record.
        """
        self._source, self._answer = source, answer
        self.columns: list[str] = list(dict.fromkeys(name for record in source() for name in record.values))
        """Every column that some record has."""
        first = next(answer(itertools.islice(source(), 1)), {})
        self.renamed = {name: _free(name, self.columns) for name in first if name in self.columns}
        """Answers whose name the input has already, and the name that they get."""

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each record's columns, then its answers."""
        asked, kept = itertools.tee(self._source())
        for record, answer in zip(kept, self._answer(asked), strict=True):
            yield {**record.values, **{self.renamed.get(name, name): value for name, value in answer.items()}}


def _free(name: str, taken: Sequence[str]) -> str:
    return next(other for number in itertools.count(2) if (other := f"{name}_{number}") not in taken)


# --- output -----------------------------------------------------------------------------------------------------------


def _refuse_output(path: Path | None, source: Path | None) -> None:
    if path is None:
        return
    if path.suffix.lower() not in _DELIMITERS:
        raise InputError(f"{path}: the name must end in one of {', '.join(_DELIMITERS)}, so that its format is known")
    if path.is_dir():
        raise InputError(f"{path}: is a folder, not a file")
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}")
    if source is not None and path.exists() and source.exists() and path.samefile(source):
        raise InputError(f"{path}: is the input too; write the answers to another file")


def write_file(answered: Answered, path: Path) -> int:
    """Write all rows, or leave what was there; returns how many.

    :raises InputError: the file can't be written.
    """
    delimiter = _DELIMITERS[path.suffix.lower()]
    with _replaced(path) as stream:
        if delimiter is None:
            return write_lines(answered.rows(), stream)
        return write_table(answered, stream, delimiter)


def _print_lines(rows: Iterable[Mapping[str, Any]]) -> None:
    """JSON lines on stdout.

    :raises RtxError: it can't be written.
    """
    for row in rows:
        line = _json(row)
        try:
            print(line)
        except BrokenPipeError:  # whoever read them has enough
            raise
        except OSError as error:
            raise RtxError(f"stdout can't be written: {error.strerror or error}") from error


def write_lines(rows: Iterable[Mapping[str, Any]], stream: TextIO) -> int:
    """JSON lines; returns how many."""
    count = 0
    for row in rows:
        stream.write(_json(row) + "\n")
        count += 1
    return count


def write_table(answered: Answered, stream: TextIO, delimiter: str) -> int:
    """A table with a header; returns how many rows. Scores have a column for each label (``scores.LABEL``)."""
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    count = 0
    header: list[str] = []
    for row in answered.rows():
        flat = _flat(row, answered.columns)
        if not header:
            header = [*answered.columns, *(name for name in flat if name not in answered.columns)]
            writer.writerow(header)
        writer.writerow([_cell(flat.get(name)) for name in header])
        count += 1
    return count


def _flat(row: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping) and name not in columns:
            flat |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            flat[name] = value
    return flat


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    """Strict JSON: a table has values that JSON lacks; a date or a decimal becomes its text, NaN and infinity null."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def _replaced(path: Path) -> Iterator[TextIO]:
    """A file beside the wanted one, which takes its place when all is written."""
    staging = path.with_name(f".tmp-{path.name}")
    try:
        with staging.open("w", encoding="utf-8", newline="") as stream:
            yield stream
        staging.replace(path)
    except OSError as error:
        raise InputError(f"{path}: can't be written: {error.strerror}") from error
    finally:
        staging.unlink(missing_ok=True)


@hookimpl
def command() -> dict[str, type[Command]]:
    """Offer it as ``predict``."""
    return {"predict": Predict}
