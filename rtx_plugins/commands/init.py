"""Propose a pipeline for a file of data: look at its columns, write a commented TOML file, and run it if asked to."""

from __future__ import annotations

import csv
import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import tomli

from rtx_core import Command, InputError, hookimpl
from rtx_plugins.commands.columns import look
from rtx_plugins.commands.formats import format_of, open_data
from rtx_plugins.commands.proposal import Files, propose
from rtx_plugins.data.common import lines, unpacked_name

if TYPE_CHECKING:
    import argparse

    from rtx_core.registry import Registry

_LINES_LOOKED_AT = 2000
_HEADER_LOOKED_AT = 100_000
"""Characters; the csv module refuses a field of more than 131,072."""
_LINES_OF_A_PARAGRAPH = 1.5
"""From this many lines between blank ones on, a line is a piece of a paragraph rather than a text of its own."""


@attrs.frozen(kw_only=True)
class Init(Command):
    """Propose a pipeline for a file of data, with a reason for each choice, and run it if asked to."""

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """DATA."""
        parser.add_argument(
            "data", type=Path, metavar="DATA", help="a .csv or .tsv file with a header, a .jsonl or a .txt file"
        )
        parser.add_argument(
            "--output", type=Path, metavar="FILE", help="the pipeline to write (default: DATA's name with .toml)"
        )
        parser.add_argument("--run", action="store_true", help="run it at once")

    @classmethod
    def main(cls, arguments: argparse.Namespace, registry: Registry) -> int:
        """Look, write, check what was written, run."""
        from rtx_core import config

        data: Path = arguments.data
        output: Path = arguments.output or data.with_name(f"{data.name.partition('.')[0]}.toml")
        _refuse(output, data)
        settings = _settings(data, registry)
        table = look(open_data(data, registry, settings).records())
        proposal = propose(Files(data=data, type=format_of(data), settings=settings, output=output), table)
        _write(output, proposal.text)
        if proposal.note is not None:
            print(f"note: {proposal.note}", file=sys.stderr)
        print(f"wrote {output}; it says why each value was chosen", file=sys.stderr)
        pipeline = config.load(output, sets=[], registry=registry)
        if not arguments.run:
            print(f"rtx run {output}")
            return 0
        from rtx_core.console import Console
        from rtx_core.runner import RunOptions, run_pipeline

        with Console() as console:
            run_pipeline(pipeline, registry, RunOptions(), console)
        return 0


def _refuse(output: Path, data: Path) -> None:
    if output.suffix != ".toml":
        raise InputError(f"{output}: a pipeline's name ends in .toml")
    if output.exists():
        if _is_for(output, data):
            raise InputError(f"{output} exists already; run it with rtx run {output}, or name another with --output")
        raise InputError(f"{output} exists already, and not for {data}; name another pipeline with --output")
    if not output.parent.is_dir():
        raise InputError(f"{output}: there is no folder {output.parent}")


def _is_for(pipeline: Path, data: Path) -> bool:
    """Whether a pipeline trains on this file alone."""
    try:
        files = tomli.loads(pipeline.read_text(encoding="utf-8"))["data"]["train"]["files"]
        return [(pipeline.parent / name).resolve() for name in files] == [data.resolve()]
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _write(output: Path, text: str) -> None:
    try:
        with output.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise InputError(f"{output}: can't be written: {error.strerror}; name another place with --output") from error


def _settings(data: Path, registry: Registry) -> dict[str, str]:
    """Further settings of the data plugin: what stands between columns, whether a text is a line or a paragraph."""
    if format_of(data) == "csv":
        return _delimiter(data)
    if format_of(data) != "text":
        return {}
    records = open_data(data, registry).records()
    numbers = [record.line for record in itertools.islice(records, _LINES_LOOKED_AT)]
    # Lines that are blank are no records, so a paragraph's end is a gap between the numbers.
    gaps = sum(later - earlier > 1 for earlier, later in itertools.pairwise(numbers))
    return {"unit": "paragraph" if len(numbers) > _LINES_OF_A_PARAGRAPH * gaps > 0 else "line"}


def _delimiter(data: Path) -> dict[str, str]:
    """The character that cuts the header into the most columns, unless the file's name says so already."""
    if not data.is_file():
        return {}
    usual = "\t" if unpacked_name(data).endswith(".tsv") else ","
    header = next((text for _, text in lines(data) if text), "")[:_HEADER_LOOKED_AT]
    columns = {mark: len(next(csv.reader([header], delimiter=mark), [])) for mark in (usual, ",", "\t", ";", "|")}
    best = max(columns, key=columns.__getitem__)  # of equals the first
    return {} if best == usual else {"delimiter": best}


@hookimpl
def command() -> dict[str, type[Command]]:
    """Offer it as ``init``."""
    return {"init": Init}
