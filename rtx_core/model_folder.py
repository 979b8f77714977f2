"""The files of a model's folder in Hugging Face's layout: their names, and what can be told without opening them.

:mod:`rtx_core.weights` reads and writes them; this module needs no torch, so ``check`` can look before it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
CONFIG = "config.json"

_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_POINTER = b"version https://git-lfs"
"""How a file begins that Git LFS has left in place of a large one."""


def missing_weights(folder: Path) -> str | None:
    """Why a folder has no weights that can be read, as ``has no model.safetensors``; None where there are files."""
    for file in sorted(folder.glob("model*.safetensors")):
        if _is_pointer(file):
            return f"has only Git LFS's pointer to {file.name}; fetch the file itself, as by git lfs pull"
    if (folder / WEIGHTS).is_file() or (folder / INDEX).is_file():
        return None
    pickled = sorted(file.name for pattern in _PICKLED for file in folder.glob(pattern))
    if pickled:
        return (
            f"has only {pickled[0]}, whose format can run code when it is read; save the model as {WEIGHTS}: in "
            "transformers by from_pretrained, then save_pretrained"
        )
    return f"has no {WEIGHTS}"


def _is_pointer(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(len(_POINTER)) == _POINTER
    except OSError:  # said where the file is read
        return False
