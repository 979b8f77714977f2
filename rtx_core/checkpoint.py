"""Checkpoints that are whole or not there: how one is committed, which one a resume takes, how old ones go.

A checkpoint is a folder ``step-00000100`` of ``KEY.safetensors`` and ``KEY.json`` files and a ``manifest.json`` with
their sizes and hashes. It is written under another name, made durable, hashed from the disk, and only then renamed; so
whatever kills the process, a folder with such a name is complete. What damages it later is noticed before it is used.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import re
import shutil
import uuid
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from safetensors import SafetensorError

from rtx_core.durable import sync_folder, write_file, write_tensors
from rtx_core.errors import InputError, RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import torch

FORMAT = 1
"""Version of the layout that manifests describe."""

_NAME = re.compile(r"step-(\d{8,})")


@attrs.frozen
class Checkpoint:
    """A committed folder and its step; one from :func:`newest` was verified, one from :func:`listing` was not."""

    folder: Path
    step: int

    def tensors(self, key: str) -> dict[str, torch.Tensor]:
        """The tensors of ``KEY.safetensors`` by name, on the host; they are mapped from the file, not read at once."""
        from safetensors.torch import load_file

        return load_file(self._file(f"{key}.safetensors"))

    def holds_tensors(self, key: str) -> bool:
        """Whether there is a ``KEY.safetensors``."""
        return (self.folder / f"{key}.safetensors").is_file()

    def document(self, key: str) -> Any:
        """The content of ``KEY.json``."""
        return json.loads(self._file(f"{key}.json").read_bytes())

    def problem(self, *, contents: bool = True) -> str | None:
        """What differs from what was written, in one clause; None where all is well.

        :param contents: read and hash every file; False looks at the manifest and at sizes alone.
        """
        try:
            self._verify(contents=contents)
        except OSError as error:
            return f"{Path(error.filename or self.folder).name}: {error.strerror}"
        except ValueError as error:
            return str(error)
        return None

    def _verify(self, *, contents: bool) -> None:
        manifest = _unsealed(self.folder / "manifest.json")
        if manifest["step"] != self.step:
            raise ValueError(f"manifest.json is of step {manifest['step']}")
        for name, written in manifest["files"].items():
            file = self.folder / name
            size = file.stat().st_size
            if size != written["size"]:
                raise ValueError(f"{name} has {size} bytes, {written['size']} were written")
            if contents and _sha256(file) != written["sha256"]:
                raise ValueError(f"{name} has another content than was written")

    def _file(self, name: str) -> Path:
        file = self.folder / name
        if not file.is_file():
            raise InputError(f"the checkpoint {self.folder} has no {name}")
        return file


# --- writing ----------------------------------------------------------------------------------------------------------


def commit(
    checkpoints: Path, step: int, tensors: Mapping[str, Mapping[str, torch.Tensor]], documents: Mapping[str, Any]
) -> Path:
    """Write a checkpoint; when this returns, it survives a loss of power.

    :param tensors: key to tensors by name, on any device; names may share memory (each is written whole).
    :param documents: key to what strict JSON can hold; the key ``manifest`` is taken.
    :returns: the folder ``step-…`` inside ``checkpoints``.
    :raises RunError: the disk is full or fails, or the step has a checkpoint; nothing was left behind, and the
        checkpoints before this one are as they were.
    """
    target = checkpoints / f"step-{step:08d}"
    with _explained(f"the checkpoint of step {step} could not be saved in {checkpoints} (earlier ones are untouched)"):
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, f"{target.name} exists")
        checkpoints.mkdir(parents=True, exist_ok=True)
        with _staging(checkpoints / f".tmp-{target.name}-{uuid.uuid4().hex[:8]}") as folder:
            _write_files(folder, tensors, documents)
            write_file(folder / "manifest.json", _sealed(_manifest(folder, step)))
            sync_folder(folder)
            folder.rename(target)
            sync_folder(checkpoints)
    return target


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn a failure of the disk into one line."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{what}: {error.strerror or error}") from error
    except SafetensorError as error:  # safetensors writes on its own and wraps the system's errors in its text
        raise RunError(f"{what}: {error}") from error


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """A new folder that is gone again if the block fails."""
    folder.mkdir()
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _write_files(folder: Path, tensors: Mapping[str, Mapping[str, torch.Tensor]], documents: Mapping[str, Any]) -> None:
    for key, named in tensors.items():
        write_tensors(folder / f"{key}.safetensors", named)
    for key, document in documents.items():
        write_file(folder / f"{key}.json", json.dumps(document, allow_nan=False).encode())


def _manifest(folder: Path, step: int) -> dict[str, Any]:
    """What the disk holds: the hashes are those of the files as they read back."""
    return {
        "format": FORMAT,
        "rtx": _version(),
        "step": step,
        "files": {
            file.name: {"size": file.stat().st_size, "sha256": _sha256(file)} for file in sorted(folder.iterdir())
        },
    }


@functools.cache
def _version() -> str:
    """What wrote the checkpoint; asked once, since an upgrade beside a running process doesn't change the process."""
    return version("rtx-transformers")


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _sealed(manifest: Mapping[str, Any]) -> bytes:
    """The one text of a manifest, with the hash of all its other content."""
    digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    return (json.dumps({**manifest, "sha256": digest}, indent=2) + "\n").encode()


def _unsealed(file: Path) -> dict[str, Any]:
    """Read a manifest.

    :raises ValueError: it is not byte for byte what :func:`_sealed` writes, or of another format.
    """
    text = file.read_bytes()
    try:
        manifest = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{file.name} is not JSON") from error
    if not isinstance(manifest, dict):
        raise ValueError(f"{file.name} is not a manifest")  # noqa: TRY004 - one class for all that can be wrong
    if manifest.get("format") != FORMAT:
        raise ValueError(f"{file.name} has format {manifest.get('format')}, this version of rtx reads {FORMAT}")
    manifest.pop("sha256", None)
    if text != _sealed(manifest):
        raise ValueError(f"{file.name} has another content than was written")
    return manifest


# --- finding ----------------------------------------------------------------------------------------------------------


def listing(checkpoints: Path) -> list[Checkpoint]:
    """Every committed checkpoint, the oldest first; empty where there is no such folder. Nothing is verified."""
    if not checkpoints.is_dir():
        return []
    matches = ((path, _NAME.fullmatch(path.name)) for path in checkpoints.iterdir())
    found = [Checkpoint(path, int(match[1])) for path, match in matches if match]
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def newest(checkpoints: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that is as it was written; None where there is none at all.

    :param warn: told of each newer one that is damaged, by its folder's name.
    :raises InputError: there are checkpoints, but all are damaged.
    """
    found = listing(checkpoints)
    for checkpoint in reversed(found):
        problem = checkpoint.problem()
        if problem is None:
            return checkpoint
        warn(f"checkpoint {checkpoint.folder.name} is damaged and not used: {problem}")
    if found:
        names = ", ".join(checkpoint.folder.name for checkpoint in found)
        raise InputError(
            f"every checkpoint in {checkpoints} is damaged ({names}): put back a good copy of one, or begin again "
            "with --overwrite or --new"
        )
    return None


# --- putting away -----------------------------------------------------------------------------------------------------


def remove(folder: Path) -> None:
    """Delete a folder. It loses its name first, so that one deleted by half never passes for a checkpoint.

    What can't be deleted now is deleted by :func:`clear_leftovers` when a run starts.

    :raises RunError: it can't be renamed.
    """
    with _explained(f"{folder} could not be deleted"):
        if not os.path.lexists(folder):
            return  # somebody was faster
        trash = _renamed(folder, ".trash-")
        sync_folder(folder.parent)
    shutil.rmtree(trash, ignore_errors=True)


def set_aside(checkpoints: Path, newer_than_step: int) -> list[Path]:
    """Rename what a resumed run must not meet to ``.aside-…``: checkpoints newer than its own, and damaged older ones.

    The newer are those that :func:`newest` found damaged, or the end of a run that goes back. Of the older only
    manifests and sizes are looked at, since hashing all of them could take longer than a resume may.

    :returns: the new paths. rtx doesn't delete them.
    :raises RunError: one can't be renamed.
    """
    with _explained(f"a checkpoint in {checkpoints} could not be set aside"):
        moved = [
            _renamed(checkpoint.folder, ".aside-")
            for checkpoint in listing(checkpoints)
            if checkpoint.step > newer_than_step or checkpoint.problem(contents=False)
        ]
        if moved:
            sync_folder(checkpoints)
    return moved


def is_leftover(path: Path) -> bool:
    """Whether the name says that a process was killed while it wrote or deleted this."""
    return path.name.startswith((".tmp-", ".trash-"))


def clear_leftovers(folder: Path) -> None:
    """Delete what a killed process left half written or half deleted; only the process that holds the run may."""
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if is_leftover(path):
            delete(path)


def delete(path: Path) -> None:
    """Delete a file, a folder, or a link (never what it points to); nothing is said where there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _renamed(folder: Path, prefix: str) -> Path:
    """Rename to prefix and name, with a number where that is taken: a rename onto an empty folder would swallow it."""
    target = folder.with_name(prefix + folder.name)
    number = 1
    while os.path.lexists(target):
        number += 1
        target = folder.with_name(f"{prefix}{folder.name}-{number}")
    return folder.rename(target)
