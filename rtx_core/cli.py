"""The command line: ``run`` and ``check`` are its own, every other command is a plugin of kind ``command``.

Results go to stdout, messages to stderr. What rtx can explain is one line without a traceback; the exit status is the
error's. A plugin's module is imported only for the command that was asked for, and torch only by what computes.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib.metadata
import json
import os
import re
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO, cast

import attrs

from rtx_core.arguments import add_no_cache, add_pipeline
from rtx_core.components import Command
from rtx_core.errors import InputError, PipelineError, PluginError, RtxError
from rtx_core.folder import RunFolder, commits_of
from rtx_core.plugin_files import with_plugins_of_run
from rtx_core.registry import OURS, Registry, nearest, supplier
from rtx_core.sources import Hub

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rtx_core.config import Checked, Pipeline
    from rtx_core.errors import Problem
    from rtx_core.prepare import Prepared

_BAD_INPUT = 2
_INTERRUPTED = 130
_STDERR = 2
_CLOSED_PIPE = 141  # as a shell reports a program that SIGPIPE ended
_REFUSALS_OF_THE_SYSTEM = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.ENAMETOOLONG,
    errno.EMFILE,
}
_PART_IN_NOTE = re.compile(r"in (?P<hook>\w+) of (?P<part>[\w-]+(?:\.[\w./:-]+)?)(?: \((?P<source>[^()]+)\))?")


def entry_point() -> int:
    """The command ``rtx``."""
    _open_closed_streams()
    return main(sys.argv[1:])


def main(argv: Sequence[str]) -> int:
    """Do what the arguments say.

    :returns: 0 done, 1 failed while running, 2 bad input or refused, 130 or 143 interrupted.
    """
    try:
        status = _command(list(argv))
        _flush_results()
    except SystemExit as end:  # argparse ends --help like this
        status = _status_of(end)
    except PipelineError as error:
        _complain(*_rendered(error.problems))
        status = error.exit_status
    except RtxError as error:
        _complain(str(error))
        status = error.exit_status
    except KeyboardInterrupt:
        _complain("interrupted")
        status = _INTERRUPTED
    except BrokenPipeError:
        # Python flushes stdout once more at its end, but what read it is gone.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = _CLOSED_PIPE
    except Exception as error:  # noqa: BLE001 - the last to see it
        _complain(_unexpected(error))
        status = 1
    for stream in (sys.stdout, sys.stderr):
        _give_up_if_full(stream)
    return status


# --- streams ----------------------------------------------------------------------------------------------------------


def _open_closed_streams() -> None:
    """Where the caller closed stdout or stderr (``2>&-``), send it nowhere.

    Otherwise the next file that is opened gets its number, and what a library says on stderr ends up in a checkpoint.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(number)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open as long as Python


def _flush_results() -> None:
    """What is still in stdout's buffer belongs to the command: if it can't be written, the command has failed."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RtxError(f"stdout can't be written: {error.strerror or error}") from error


def _give_up_if_full(stream: TextIO) -> None:
    """Python flushes once more at its end, and would end with another status where that fails."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _status_of(end: SystemExit) -> int:
    """As Python itself takes ``sys.exit(…)``: a text is a complaint, nothing is success."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    _complain(str(end.code))
    return 1


# --- which command ----------------------------------------------------------------------------------------------------


def _command(argv: list[str]) -> int:
    files, rest = _plugin_files(argv)
    wanted = next((word for word in rest if not word.startswith("-")), None)
    if wanted is None and "--version" in rest:
        print(f"{OURS} {_version()}")
        return 0
    try:
        registry = Registry.discover(files)
    except PluginError as error:
        if wanted is not None:
            raise
        # A person who asks for help gets what there is, and learns why it is not more.
        registry = Registry(entries=())
        _complain(str(error))
    if wanted is None:
        parser = _overview(registry)
        parser.parse_args(rest)  # --help ends here, anything else that is no command is refused
        parser.print_help(sys.stderr)
        return _BAD_INPUT
    return _do(wanted, rest, registry)


def _plugin_files(argv: list[str]) -> tuple[list[Path], list[str]]:
    """Every ``--plugin FILE``, before or after the command, which it may itself bring; and the other arguments."""
    parser = _Parser(prog="rtx", add_help=False)
    _add_plugin_option(parser)
    found, rest = parser.parse_known_args(argv)
    return found.plugin, rest


def _names(registry: Registry) -> list[str]:
    """Every command that there is, ours first."""
    return [*_OWN, *(name for name in registry.names("command") if name not in _OWN)]


def _load(name: str, registry: Registry) -> type[Command]:
    if name not in _names(registry):
        raise InputError(_no_such_command(name, _names(registry)))
    if name in _OWN:
        return _OWN[name]
    return cast("type[Command]", registry.find("command", name).component)


def _summary(name: str, registry: Registry) -> str:
    """A command's line in the help, found without importing it."""
    if name in _OWN:
        text = _OWN[name].__doc__ or ""
    else:
        try:
            text = registry.entry("command", name).summary()
        except PluginError:
            text = "Supplied by several packages; [plugins] prefer takes one."
    return text.partition("\n")[0].rstrip(".").replace("``", "")


def _do(name: str, argv: list[str], registry: Registry) -> int:
    command = _load(name, registry)
    front = _Parser(prog="rtx", add_help=False)
    parser = front.add_subparsers(required=True, parser_class=_Parser).add_parser(name, description=command.__doc__)
    _add_plugin_option(parser)  # for its help; it was taken out before
    command.arguments(parser)
    arguments, unknown = front.parse_known_args(argv)
    if unknown:
        parser.error(_unknown_argument(unknown[0], parser))
    return command.main(arguments, registry)


def _no_such_command(wanted: str, names: Iterable[str]) -> str:
    near = f"run {wanted}" if wanted.endswith(".toml") else nearest(wanted, names)
    hint = f'did you mean "rtx {near}"?' if near else f"there are: {', '.join(names)}"
    return f'no command "{wanted}"; {hint}'


def _unknown_argument(argument: str, parser: argparse.ArgumentParser) -> str:
    if not argument.startswith("-"):
        return f'unexpected argument "{argument}"'
    name = argument.partition("=")[0]
    near = nearest(name, set(re.findall(r"--[a-z][a-z-]*", parser.format_help())))
    return f"unknown option {name}" + (f"; did you mean {near}?" if near else "")


# --- parsers ----------------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """Refuses in one line, like every other mistake, and takes no abbreviations."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{self.prog}: {message}; {self.prog} --help shows what it takes")


def _overview(registry: Registry) -> argparse.ArgumentParser:
    """The parser behind ``rtx --help``; its commands take no arguments yet, so that none has to be imported."""
    parser = _Parser(prog="rtx", description="Trains transformers from one TOML file; every part is a plugin.")
    parser.add_argument("--version", action="store_true", help="print the version")
    _add_plugin_option(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)
    for name in _names(registry):
        commands.add_parser(name, help=_summary(name, registry).replace("%", "%%"))
    parser.epilog = "rtx COMMAND --help explains a command."
    return parser


def _add_plugin_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--plugin",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="take the components of this Python file, before any that is installed; may repeat",
    )


# --- run and check ----------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class RunCommand(Command):
    """Train what a pipeline file describes."""

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """PIPELINE, and what to do about a folder that exists."""
        add_pipeline(parser)
        parser.add_argument("--output", type=Path, metavar="DIR", help="the run's folder (default: runs/NAME)")
        existing = parser.add_mutually_exclusive_group()
        existing.add_argument("--resume", action="store_true", help="go on from the newest checkpoint in the folder")
        existing.add_argument("--overwrite", action="store_true", help="delete the run in the folder and start again")
        existing.add_argument("--new", action="store_true", help="start again in a new folder beside it (NAME-2)")
        parser.add_argument(
            "--steps", type=_positive, metavar="N", help="a trial: stop after N steps of the plan, in runs/NAME-smoke"
        )
        parser.add_argument(
            "--seeds",
            type=_positive,
            metavar="N",
            help="N runs from run.seed on, in runs/NAME-seed-…, and their spread",
        )
        parser.add_argument(
            "--trust-run-plugins",
            action="store_true",
            help="resume with the --plugin files that the run's folder has kept",
        )
        add_no_cache(parser)
        parser.add_argument("--quiet", action="store_true", help="say nothing but errors; log.txt has it all")

    @classmethod
    def main(cls, arguments: argparse.Namespace, registry: Registry) -> int:
        """Check, then run."""
        from rtx_core import config
        from rtx_core.console import Console

        commits: Mapping[str, str] = {}
        if arguments.resume:
            earlier = arguments.output or Path("runs", config.run_name(arguments.pipeline, sets=arguments.sets))
            with_plugins_of_run(registry, RunFolder(earlier), trust=arguments.trust_run_plugins)
            commits = commits_of(earlier)
        hub = Hub(network=True, commits=commits)  # one for all runs of a series

        def load(sets: Sequence[str]) -> Pipeline:
            return config.load(arguments.pipeline, sets=(*arguments.sets, *sets), registry=registry, hub=hub)

        pipeline = load(())
        # Only now, since it imports torch: a mistake in the file is reported at once.
        from rtx_core.runner import RunOptions, run_pipeline
        from rtx_core.series import run_series, series_of, table

        options = RunOptions(
            output=arguments.output,
            resume=arguments.resume,
            overwrite=arguments.overwrite,
            new=arguments.new,
            steps=arguments.steps,
            cache=arguments.cache,
        )
        series = series_of(pipeline, arguments.seeds)
        with Console(quiet=arguments.quiet) as console:
            if series is None:
                run_pipeline(pipeline, registry, options, console)
            else:
                print(table(run_series(series, load, registry, options, console)))
        return 0


@attrs.frozen(kw_only=True)
class CheckCommand(Command):
    """Report every mistake in a pipeline file, without running anything."""

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """PIPELINE."""
        add_pipeline(parser)
        parser.add_argument("--data", action="store_true", help="read the data too, and tell what is odd about them")
        add_no_cache(parser)
        parser.add_argument("--json", action="store_true", help="print the result for a program to read")

    @classmethod
    def main(cls, arguments: argparse.Namespace, registry: Registry) -> int:
        """One line on stdout where all is well; what could not be checked is a note on stderr."""
        from rtx_core import config

        try:
            checked = config.check(arguments.pipeline, sets=arguments.sets, registry=registry)
        except PipelineError as error:
            if not arguments.json:
                raise
            print(json.dumps({"ok": False, "problems": [_as_json(p) for p in error.problems], "notes": []}))
            return error.exit_status
        notes = _notes(checked)
        prepared = _prepared(checked, cache=arguments.cache) if arguments.data else None
        if arguments.json:
            found = {} if prepared is None else {"data": _data_as_json(prepared)}
            print(json.dumps({"ok": True, "problems": [], "notes": notes, **found}))
            return 0
        print(f"{arguments.pipeline}: ok")
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
        if prepared is not None:
            from rtx_core.lint import described

            for name, store in prepared.stores.items():
                print(f"{name}: {described(prepared.surveys[name], store.lengths)}")
        return 0


_OWN: dict[str, type[Command]] = {"run": RunCommand, "check": CheckCommand}


def _notes(checked: Checked) -> list[str]:
    from rtx_core.header import replacements

    return [*replacements(checked.chosen), *checked.notes]


def _prepared(checked: Checked, *, cache: bool) -> Prepared:
    """The data as a run would take them; what is odd about them is told on stderr.

    :raises InputError: the tokenizer is not on this machine yet.
    """
    from rtx_core.console import Console
    from rtx_core.prepare import prepare

    if checked.pipeline is None:
        raise InputError(f"--data: {checked.notes[0]}; rtx plan fetches config and tokenizer, and reads the data too")
    with Console() as console:
        return prepare(checked.pipeline, console=console, cache=cache)


def _data_as_json(prepared: Prepared) -> dict[str, object]:
    surveys = {name: survey.to_json() for name, survey in prepared.surveys.items()}
    for survey in surveys.values():
        del survey["texts"]
    return {"sets": surveys, "oddities": [attrs.asdict(one) for one in prepared.oddities]}


def _as_json(problem: Problem) -> dict[str, object]:
    return {
        "file": problem.place.source,
        "line": problem.place.line,
        "column": problem.place.column,
        "key": problem.path,
        "message": problem.message,
        "mended": problem.mended,
    }


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'expected a whole number from 1, got "{text}"')
    return int(text)


def _version() -> str:
    try:
        return importlib.metadata.version(OURS)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


# --- what went wrong --------------------------------------------------------------------------------------------------


def _complain(*lines: str) -> None:
    with contextlib.suppress(OSError):  # then there is nobody to say it to; the exit status does
        for line in lines:
            print(line, file=sys.stderr)


def _rendered(problems: Sequence[Problem]) -> list[str]:
    from rtx_core import config

    return [config.render(problem, terminal=sys.stderr.isatty()) for problem in problems]


def _unexpected(error: Exception) -> str:
    """Whose mistake it probably is: the system's, a plugin's, or ours."""
    if isinstance(error, OSError) and error.errno in _REFUSALS_OF_THE_SYSTEM:
        return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    traceback.print_exception(error)
    return f"This is a bug in {_culprit(error)}. Please report it together with the lines above."


def _culprit(error: Exception) -> str:
    """Rtx, the part that the error's notes name, with the package that supplies it where that is certain, or whose code
    it was that raised it: the strategy calls a loss or an optimizer that may be somebody else's.
    """
    outside = _outside(error)
    for note in getattr(error, "__notes__", ()):
        found = _PART_IN_NOTE.fullmatch(note)
        if found and not (outside and found["part"] == "strategy"):
            supplied = f", supplied by {found['source']}" if found["source"] else _supplied(found["part"])
            return f"{found['part']} ({found['hook']}){supplied}"
    return outside or f"rtx {_version()}"


def _outside(error: Exception) -> str | None:
    """The package or the plugin file whose function raised it; None where that was rtx's own, or nobody's plugin."""
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] in ("rtx_core", "rtx_plugins"):
            return None
        if source := supplier(module, frame.f_code.co_filename):
            return f"{source} ({frame.f_code.co_name})"
    return None


def _supplied(part: str) -> str:
    kind, _, name = part.partition(".")
    try:
        return f", supplied by {Registry.discover().entry(kind, name).source}"
    except PluginError:
        # A file given with --plugin, or a table whose name is not its type's.
        return ""
