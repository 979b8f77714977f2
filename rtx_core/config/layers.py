"""Read the layers of a pipeline: ``defaults.toml`` < extended files < the file < ``--set``."""

from __future__ import annotations

import importlib.resources
import os
from typing import TYPE_CHECKING, Any

import attrs
import tomli

from rtx_core.config.findings import Finding, SourceFile, problems_of
from rtx_core.config.tree import COMMAND_LINE, UNSET, Keys, Node, Origin, Unread, dotted, merged, over_defaults
from rtx_core.errors import PipelineError, Place, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

DEFAULTS = "defaults.toml"


@attrs.frozen
class Layers:
    """The merged settings, and the files that they came from."""

    tree: Node
    files: Mapping[Path, SourceFile]
    """By absolute path, the pipeline itself first."""

    @property
    def main(self) -> SourceFile:
        """The pipeline's own file."""
        return next(iter(self.files.values()))


def read_layers(path: Path, sets: Sequence[str], working_directory: Path) -> Layers:
    """Read and merge everything that a pipeline is made of.

    :param path: relative to the working directory, and shown in messages as it is given.
    :param sets: the ``key=value`` of each ``--set``.
    :raises PipelineError: a file can't be read or isn't TOML, ``extends`` goes in a circle, a ``--set`` is malformed.
    """
    reader = _Reader()
    written = reader.read(str(path), working_directory / path, ())
    tree = over_defaults(reader.defaults, written)
    tree = merged(tree, reader.command_line(sets, tree), reader.default_types)
    if reader.findings:
        raise PipelineError(problems_of(reader.findings, reader.files))
    return Layers(tree, reader.files)


class _Reader:
    """Collects what it finds wrong, so that one bad file doesn't hide the next."""

    def __init__(self) -> None:
        text = importlib.resources.files("rtx_core").joinpath(DEFAULTS).read_text(encoding="utf-8")
        self.defaults = Node.of(tomli.loads(text), Origin(DEFAULTS))
        self.default_types = {key: table["type"] for key, table in tomli.loads(text).items() if "type" in table}
        self.files: dict[Path, SourceFile] = {}
        self.findings: list[Finding] = []

    def read(self, shown: str, path: Path, chain: tuple[Path, ...]) -> Node:
        """A file over the files that it extends, without its ``extends``.

        :param chain: the files that led here, resolved.
        :raises PipelineError: the file can't be read or isn't TOML.
        """
        file = SourceFile(shown, path, _text_of(shown, path))
        self.files.setdefault(path, file)
        tree = Node.of(_parse(file), Origin(shown, path))
        chain = (*chain, path.resolve())
        extended = self._extended(tree.value.pop("extends", None), file, chain)
        result, *rest = [*(self.read(name, below, chain) for name, below in extended), tree]
        for layer in rest:
            result = merged(result, layer, self.default_types)
        return result

    def _extended(self, node: Node | None, file: SourceFile, chain: tuple[Path, ...]) -> list[tuple[str, Path]]:
        """The files that ``extends`` names: as a user would write each, and where it is."""
        if node is None:
            return []
        entries = node.value if isinstance(node.value, list) else [node]
        found = []
        for entry in entries:
            if entry is node or not isinstance(entry.value, str):
                mended = f'["{node.value}"]' if isinstance(node.value, str) else None
                message = 'expected a list of files, as extends = ["base.toml"]'
                self.findings.append(Finding.at(entry, message, replacement=mended))
                continue
            # As text, not as a path: it stays as short as the user wrote it.
            shown = os.path.normpath(os.path.join(os.path.dirname(file.shown), entry.value))  # noqa: PTH118, PTH120
            path = file.path.parent / entry.value
            if not path.exists():
                self.findings.append(Finding.at(entry, f"no such file: {path}"))
            elif path.resolve() in chain:
                self.findings.append(Finding.at(entry, f"extends goes in a circle: {shown} leads back here"))
            else:
                found.append((shown, path))
        return found

    def command_line(self, sets: Sequence[str], tree: Node) -> Node:
        """The ``--set`` options as one layer, later ones over earlier ones."""
        layer: dict[str, Any] = {}
        for item in sets:
            name, equals, text = item.partition("=")
            keys = _keys_of(name.strip()) if equals else ()
            if not keys:
                message = f'"{item}" is not of the form key=value, as in --set optimizer.lr=1e-4 (a list is set whole)'
            elif keys[0] == "extends":
                message = "extends is written in a file, not on the command line"
            elif text == UNSET.text and tree.find(keys) is None and Node.of(layer, Origin("")).find(keys) is None:
                message = f"there is no {dotted(keys)} to unset"
            else:
                _plant(layer, keys, Unread(text))
                continue
            self.findings.append(Finding(origin=Origin(COMMAND_LINE), keys=keys, message=message))
        return Node.of(layer, Origin(COMMAND_LINE))


def _text_of(shown: str, path: Path) -> str:
    """The text of a file, without a byte order mark.

    :raises PipelineError: it is missing, a folder, or not UTF-8.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise _refused(shown, "no such file") from None
    except IsADirectoryError:
        raise _refused(shown, "is a folder, not a TOML file") from None
    except OSError as error:
        raise _refused(shown, f"can't be read: {error.strerror}") from error
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        *lines, last = data[: error.start].split(b"\n")
        place = Place(shown, len(lines) + 1, len(last.decode("utf-8-sig" if not lines else "utf-8")) + 1)
        raise _refused(place, f"not UTF-8 text (byte 0x{data[error.start]:02x}); save the file as UTF-8") from error


def _parse(file: SourceFile) -> dict[str, Any]:
    try:
        return tomli.loads(file.text)
    except tomli.TOMLDecodeError as error:
        lines = file.text.split("\n")
        line = lines[error.lineno - 1].removesuffix("\r") if error.lineno <= len(lines) else ""
        place = Place(file.shown, error.lineno, error.colno)
        raise _refused(place, f"not TOML: {error.msg}", source_line=line) from error
    except (RecursionError, ValueError) as error:  # nested a thousand deep; a number of thousands of digits
        raise _refused(file.shown, f"not TOML that can be read: {error}") from error


def _refused(place: str | Place, message: str, *, source_line: str | None = None) -> PipelineError:
    place = Place(place) if isinstance(place, str) else place
    return PipelineError([Problem(place=place, path="", message=message, source_line=source_line)])


def _keys_of(name: str) -> tuple[str, ...]:
    """The parts of a dotted key, quoted ones too; empty for what is no key."""
    try:
        value: Any = tomli.loads(f"{name} = 0")
    except tomli.TOMLDecodeError:
        return ()
    keys: list[str] = []
    while isinstance(value, dict):
        ((key, value),) = value.items()
        keys.append(key)
    return tuple(keys)


def _plant(layer: dict[str, Any], keys: Keys, value: Unread) -> None:
    for key in keys[:-1]:
        there = layer.get(str(key))
        if not isinstance(there, dict):
            layer[str(key)] = _inline_table(there.text) if isinstance(there, Unread) else {}
        layer = layer[str(key)]
    layer[str(keys[-1])] = value


def _inline_table(text: str) -> dict[str, Any]:
    """What an earlier ``--set`` gave as a table (``data.split={eval = 0.1}``), for a later one to change."""
    try:
        value = tomli.loads(f"value = {text}")["value"]
    except tomli.TOMLDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
