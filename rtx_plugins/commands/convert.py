"""Turn pickled weights (``pytorch_model.bin``, ``*.pt``) into a folder that ``from_pretrained`` reads."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rtx_core import Command, InputError, hookimpl
from rtx_core.durable import write_file
from rtx_core.folder import new_folder
from rtx_core.header import counted
from rtx_core.model_folder import CONFIG, INDEX, PICKLED_INDEX, TOKENIZER_FILES, WEIGHTS, pickled_weights, weight_map
from rtx_plugins.commands.destination import destination

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    import torch

    from rtx_core.registry import Registry

_WHOLE = "pytorch_model.bin"
_MEGABYTE = 1_000_000


@attrs.frozen(kw_only=True)
class Convert(Command):
    """Turn pickled weights into model.safetensors, in a new folder with their config.json and tokenizer.

    A pickle can run code when it is read. This is the only command that reads one, for its tensors alone: whatever else
    a file wants is refused.
    """

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """SRC and DEST."""
        parser.add_argument(
            "source", metavar="SRC", type=Path, help="a folder with pytorch_model.bin or its shards, or one such file"
        )
        parser.add_argument("dest", metavar="DEST", help="the new folder")
        parser.add_argument("--json", action="store_true", help="print the result for a program to read")

    @classmethod
    def main(cls, arguments: argparse.Namespace, registry: Registry) -> int:  # noqa: ARG003 - part of the signature
        """Read all, then write all."""
        source = Source.of(arguments.source)
        dest = destination(arguments.dest, source.folder)
        tensors = _tensors(source)
        done = _write(tensors, source.folder, dest)
        for note in _notes(done, tensors):
            print(f"note: {note}", file=sys.stderr)
        if arguments.json:
            print(json.dumps({"folder": str(dest), "tensors": len(done.written), "bytes": done.size}, indent=2))
        else:
            names = ", ".join(file.name for file in source.files)
            written = counted(len(done.written), "tensor")
            print(f"{dest}: {written} from {names}, {done.size / _MEGABYTE:,.1f} MB")
        return 0


# --- what is read -----------------------------------------------------------------------------------------------------


@attrs.frozen
class Source:
    """The files of pickled weights, and the folder with what belongs to them."""

    folder: Path
    files: tuple[Path, ...]
    places: dict[str, str] | None = None
    """Which file each tensor is in, by name, where an index says so."""

    @classmethod
    def of(cls, path: Path) -> Source:
        """Find the weights that a path means: a file, or the one or the indexed ones of a folder.

        :raises InputError: there are none, or it can't be told which.
        """
        if path.is_file():
            return cls(path.parent, (path,))
        if not path.is_dir():
            raise InputError(f"{path}: no such file or folder")
        for name in (WEIGHTS, INDEX):
            if (path / name).is_file():
                raise InputError(
                    f"{path} has {name}, which from_pretrained reads as it is; there is nothing to convert"
                )
        if (path / _WHOLE).is_file():
            return cls(path, (path / _WHOLE,))
        if (path / PICKLED_INDEX).is_file():
            places = _beside(path / PICKLED_INDEX)
            return cls(path, tuple(path / name for name in sorted(set(places.values()))), places)
        found = pickled_weights(path)
        if not found:
            raise InputError(
                f"{path} has no {_WHOLE}, nor any other file of pickled weights (*.bin, *.pt, *.pth, *.ckpt)"
            )
        if len(found) > 1:
            names = ", ".join(file.name for file in found)
            raise InputError(
                f"{path} has {names}; name the one to convert, as: python -m rtx_core convert "
                f"{shlex.quote(str(found[0]))} NEW"
            )
        return cls(path, (found[0],))


def _beside(index: Path) -> dict[str, str]:
    """Which file beside an index holds each tensor.

    :raises InputError: the index is damaged, or one of the files is missing.
    """
    places = weight_map(index)
    if missing := sorted(name for name in set(places.values()) if not (index.parent / name).is_file()):
        raise InputError(f"{index}: there is no {missing[0]} beside it")
    return places


@attrs.frozen
class _Tensors:
    """All tensors by name, and what was in the files beside them."""

    by_name: dict[str, torch.Tensor]
    left_out: Sequence[str]


def _tensors(source: Source) -> _Tensors:
    """Everything that is converted; nothing was written if this raises.

    :raises InputError: a file holds something else, or not what the index says.
    """
    from rtx_plugins.commands.pickled import unpickled

    by_name: dict[str, torch.Tensor] = {}
    left_out: list[str] = []
    for file in source.files:
        found = unpickled(file)
        if source.places is not None:
            expected = {name for name, place in source.places.items() if place == file.name}
            if differing := sorted(expected ^ found.tensors.keys()):
                raise InputError(f"{file}: {differing[0]} is not in both the file and {PICKLED_INDEX}")
        by_name.update(found.tensors)
        left_out += found.left_out
    return _Tensors(by_name, left_out)


# --- what is written --------------------------------------------------------------------------------------------------


@attrs.frozen
class _Done:
    written: frozenset[str]
    """Names of the tensors."""
    copied: frozenset[str]
    """Names of the files that came along."""
    size: int
    """Bytes of the weights' file."""


def _write(tensors: _Tensors, source: Path, dest: Path) -> _Done:
    """Weights, config.json and the tokenizer's files, all or nothing.

    :raises RunError: the disk is full or fails.
    """
    from rtx_core.weights import write_weights

    copied = [name for name in (CONFIG, *TOKENIZER_FILES) if (source / name).is_file()]
    with new_folder(dest) as folder:
        written = write_weights(folder, tensors.by_name)
        for name in copied:
            write_file(folder / name, (source / name).read_bytes())
        size = (folder / WEIGHTS).stat().st_size
    return _Done(written, frozenset(copied), size)


def _notes(done: _Done, tensors: _Tensors) -> list[str]:
    """What a person should know of the new folder."""
    tied = sorted(tensors.by_name.keys() - done.written)
    return [
        *([f"left out, as no part of the model: {', '.join(tensors.left_out)}"] if tensors.left_out else []),
        *([f"left out, as the same tensor as another: {', '.join(tied)}"] if tied else []),
        *([f"there is no {CONFIG}, which from_pretrained needs"] if CONFIG not in done.copied else []),
        *(["there is no tokenizer"] if not done.copied - {CONFIG} else []),
    ]


@hookimpl
def command() -> dict[str, type[Command]]:
    """Offer it as ``convert``."""
    return {"convert": Convert}
