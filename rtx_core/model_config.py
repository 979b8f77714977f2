"""``config.json`` of a model's folder, as it is found in the world: reading it, and what it says of a head's labels.

No torch, so ``check`` can look.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rtx_core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_POINTER = b"version https://git-lfs"
"""How a file begins that Git LFS has left in place of another."""


def read_object(file: Path) -> dict[str, Any]:
    """The object in ``config.json``, or in another JSON file of the folder.

    :raises InputError: it is missing, can't be read, or is no JSON object.
    """
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        raise InputError(f"there is no {file}") from None
    except OSError as error:
        raise InputError(f"{file} can't be read: {error.strerror or error}") from error
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} {_why_no_json(text, error)}") from error
    if not isinstance(content, dict):
        raise InputError(f"{file} holds no JSON object")
    return content


def _why_no_json(text: bytes, error: Exception) -> str:
    if text.startswith(_POINTER):
        return "is only Git LFS's pointer to it; fetch the file itself, as by git lfs pull"
    if not text.strip():
        return "is empty; fetch it again, or save the model once more"
    if isinstance(error, UnicodeDecodeError):
        return f"is not UTF-8: {error.reason} at byte {error.start}; fetch it again, or save it as UTF-8"
    if isinstance(error, RecursionError):
        return "is nested too deeply to be a model's"
    return f"is not JSON: {error}; fetch it again, or save the model once more"


def stored_labels(config: Mapping[str, Any]) -> tuple[str, ...] | None:
    """A head's labels in the order of its outputs, as a ``config.json`` names them; None where it has no ``id2label``.

    ``label2id`` may stand at LABEL_0, LABEL_1, …, as it does where somebody has set ``id2label`` alone.

    :raises ValueError: ``id2label`` doesn't name each output once, or ``num_labels`` or ``label2id`` contradicts it.
    """
    names = config.get("id2label")
    if names is None:
        return None
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise ValueError(f"id2label must give each number a name, got {json.dumps(names, ensure_ascii=False)}")
    numbers = [str(index) for index in range(len(names))]
    if missing := [number for number in numbers if number not in names]:
        raise ValueError(
            f"id2label names {len(names)} labels by {', '.join(map(json.dumps, names))}, but none by "
            f"{json.dumps(missing[0])}; number them from 0 on without a gap"
        )
    labels = tuple(names[number] for number in numbers)
    if twice := [label for index, label in enumerate(labels) if label in labels[:index]]:
        raise ValueError(f"id2label has {json.dumps(twice[0], ensure_ascii=False)} twice")
    _refuse_contradictions(config, labels)
    return labels


def _refuse_contradictions(config: Mapping[str, Any], labels: tuple[str, ...]) -> None:
    count = config.get("num_labels")
    if count is not None and count != len(labels):
        raise ValueError(f"num_labels is {json.dumps(count)}, but id2label names {len(labels)} labels")
    backwards = config.get("label2id")
    if not isinstance(backwards, dict):
        return  # nobody goes by it
    for index, label in enumerate(labels):
        if backwards.get(label, index) != index:
            raise ValueError(
                f"label {json.dumps(label, ensure_ascii=False)} has number {index} in id2label, but "
                f"{json.dumps(backwards[label])} in label2id"
            )
