"""The files of a model's folder in Hugging Face's layout: their names, and what can be told without opening them.

:mod:`rtx_core.weights` reads and writes them; this module needs no torch, so ``check`` can look before it is needed.
"""

from __future__ import annotations

import fnmatch
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from rtx_core.errors import InputError
from rtx_core.model_config import read_object

if TYPE_CHECKING:
    from collections.abc import Iterable

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
CONFIG = "config.json"

PICKLED_INDEX = "pytorch_model.bin.index.json"

TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "sentencepiece.bpe.model", "spiece.model", "tokenizer.model"),
)
"""Everything that a tokenizer may be made of, by any of the ways there are."""

_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_OF_TRAINING = ("training_args.bin", "optimizer.*", "scheduler.*", "scaler.*", "rng_state*")
"""Pickled files that lie beside weights and hold none."""
_POINTER = b"version https://git-lfs"
"""How a file begins that Git LFS has left in place of a large one."""


def missing_weights(folder: Path) -> str | None:
    """Why a folder has no weights that can be read, as ``has no model.safetensors``; None where there are files."""
    for file in sorted(folder.glob("model*.safetensors")):
        if _is_pointer(file):
            return f"has only Git LFS's pointer to {file.name}; fetch the file itself, as by git lfs pull"
    if (folder / WEIGHTS).is_file():
        return None
    if (folder / INDEX).is_file():
        return _missing_shards(folder)
    if pickled := pickled_weights(folder):
        return (
            f"has only {pickled[0].name}, whose format can run code when it is read; "
            f"python -m rtx_core convert {shlex.quote(str(folder))} NEW makes a folder with {WEIGHTS} of it, and runs "
            "none"
        )
    return f"has no {WEIGHTS}"


def _missing_shards(folder: Path) -> str | None:
    """Why the files that an index names are no weights, likewise."""
    try:
        shards = set(weight_map(folder / INDEX).values())
    except InputError as error:
        return f"has no weights: {error}"
    missing = sorted(shard for shard in shards if not (folder / shard).is_file())
    return f"lacks {', '.join(missing)}, which {INDEX} names; fetch the whole model" if missing else None


def pickled_weights(folder: Path) -> list[Path]:
    """The files of a folder that may hold pickled weights, by name: those of shards too."""
    return [folder / name for name in pickled_names(file.name for file in folder.iterdir() if file.is_file())]


def pickled_names(names: Iterable[str]) -> list[str]:
    """Those of a folder's names that may hold pickled weights, in order."""
    return sorted(name for name in names if _is_like(name, _PICKLED) and not _is_like(name, _OF_TRAINING))


def _is_like(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def weight_map(index: Path) -> dict[str, str]:
    """Which file beside an index holds each tensor.

    :raises InputError: the index can't be read, or names something else than files beside it.
    """
    places = read_object(index).get("weight_map")
    if not isinstance(places, dict) or not places or not all(_is_plain_name(name) for name in places.values()):
        raise InputError(f'{index}: "weight_map" must give each tensor the name of a file beside it')
    return places


def _is_plain_name(value: object) -> bool:
    return isinstance(value, str) and value not in ("", ".", "..") and Path(value).name == value


def _is_pointer(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(len(_POINTER)) == _POINTER
    except OSError:  # said where the file is read
        return False
