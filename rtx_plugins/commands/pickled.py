"""Tensors out of the files that ``torch.save`` makes: the only place that reads pickles, and never in a run.

A pickle is a program. torch's restricted reader (``weights_only``) knows tensors, numbers, texts and their containers,
calls nothing that a file names beyond what these need, and is told so here whatever torch's environment variables say.
What comes out of it is looked at once more: tensors by name, or nothing.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs
import torch

from rtx_core import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_ZIP = b"PK\x03\x04"
"""How a file of torch 1.6 or later begins; those from before are bare pickles."""
_WRAPPERS = ("state_dict", "model_state_dict", "model")
"""Under which names a training checkpoint keeps the model's tensors beside its other state."""
_DTYPES = frozenset(
    {
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    }
)
"""Types of numbers that model.safetensors can hold and a model has."""
_GLOBAL = re.compile(r"GLOBAL ([\w.]+)")
"""The name of what a file wanted to be called, in torch's message."""
_ADVICE = re.compile(r" (?:Please file an issue|Check the documentation)")
"""How what torch advises begins, behind what happened."""
_SLACK = 1 << 20
"""Bytes by which tensors may be larger than their file: buffers of positions are stored as one row, seen as many."""


@attrs.frozen
class Unpickled:
    """What a file holds."""

    tensors: Mapping[str, torch.Tensor]
    """By name; those of a file of today are mapped from it, not read at once."""
    left_out: tuple[str, ...]
    """What else a training checkpoint has beside its model: optimizer, epoch, …"""


def unpickled(file: Path) -> Unpickled:
    """Read the tensors of a file, and nothing that runs.

    :raises InputError: it can't be read, or holds anything else.
    """
    content = _content(file)
    if not isinstance(content, Mapping):
        raise InputError(f"{file}: holds {_described(content)}; expected tensors by name (a state dict)")
    wrappers = [key for key in _WRAPPERS if isinstance(content.get(key), Mapping)]
    if len(wrappers) > 1:
        raise InputError(f"{file}: holds {_quoted(wrappers)}; which of them is the model can't be told")
    found = content[wrappers[0]] if wrappers else content
    _refuse_no_tensors(file, found)
    return Unpickled(found, tuple(str(key) for key in content if wrappers and key != wrappers[0]))


def _content(file: Path) -> Any:
    """What torch's restricted reader makes of the file.

    :raises InputError: it can't be read, or asks for a call that is none of a tensor's.
    """
    try:
        with file.open("rb") as opened:
            is_zip = opened.read(len(_ZIP)) == _ZIP
    except OSError as error:
        raise InputError(f"{file} can't be read: {error.strerror or error}") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's about its own old formats
            # Only a zip can be mapped; an older file is read whole.
            return torch.load(str(file), map_location="cpu", weights_only=True, mmap=is_zip)
    except Exception as error:  # noqa: BLE001 - a file that is damaged or crafted raises whatever its bytes lead to
        raise InputError(f"{file}: {_reason(error)}; nothing was converted") from None


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    if found := _GLOBAL.search(text):
        return f"wants to call {found[1]}, which is no part of a tensor, so reading it could run code"
    if "TorchScript" in text:
        return "is a TorchScript archive, which is code; save the model's state_dict() in its place"
    # torch wraps what happened in advice about reading the file without its guard.
    detail = _ADVICE.split(text.rpartition("WeightsUnpickler error: ")[2])[0][:200] or type(error).__name__
    return (
        f"can't be read as tensors ({detail}); it is damaged, no file of torch.save, or saved with another "
        "pickle_protocol than torch's own"
    )


def _refuse_no_tensors(file: Path, found: Mapping[Any, Any]) -> None:
    """See that there are tensors by name, and nothing but these.

    :raises InputError: with the first name that is none.
    """
    if not found:
        raise InputError(f"{file}: holds no tensor")
    for name, value in found.items():
        if not isinstance(name, str) or name in {"", "__metadata__"}:
            raise InputError(f"{file}: {name!r} is no name of a tensor")
        if reason := _no_weights(value):
            raise InputError(f"{file}: {json.dumps(name)} is {reason}; expected tensors alone")
    distinct = {_place(value): value.numel() * value.element_size() for value in found.values()}
    if sum(distinct.values()) > 2 * file.stat().st_size + _SLACK:
        raise InputError(f"{file}: its tensors would be far larger than the file, which holds a few numbers many times")


def _no_weights(value: object) -> str | None:
    """What a value is that isn't a tensor of numbers; None of one that is."""
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return _described(value)
    tensor: torch.Tensor = value  # type: ignore[assignment]
    if tensor.is_meta:
        return "a tensor without values"
    if tensor.layout is not torch.strided or tensor.dtype not in _DTYPES:
        return f"a tensor of {str(tensor.dtype).removeprefix('torch.')} ({str(tensor.layout).removeprefix('torch.')})"
    return None


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.shape, tensor.stride()


def _described(value: object) -> str:
    if isinstance(value, Mapping):
        return f"a dict with {_quoted(list(map(str, value))[:3])}" if value else "an empty dict"
    return f"a value of type {type(value).__name__}"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(json.dumps, names))
