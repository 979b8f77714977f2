"""Writing that survives a loss of power: content is synced before its name, and tensors go through safetensors."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch


def write_file(file: Path, content: bytes) -> None:
    """Write a new file; when this returns, its content is durable (its name once the folder is synced).

    :raises OSError: the file exists, or the disk is full or fails.
    """
    with file.open("xb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())


def write_tensors(file: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write a safetensors file of tensors on any device; names may share memory, each is written whole.

    :raises OSError: the disk is full or fails.
    :raises SafetensorError: the same, as safetensors says it.
    """
    from safetensors.torch import save_file

    # One metadata key: with two, safetensors' header has a random order, and equal tensors would differ in bytes.
    save_file(_standalone(tensors), file, metadata={"format": "pt"})
    # safetensors makes its files private; the folder's mode has the umask in it, which nothing else tells safely.
    file.chmod(file.parent.stat().st_mode & 0o666)
    with file.open("r+b") as opened:
        os.fsync(opened.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, as fsync of a file does for its content."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems can't sync a folder, and say so like this
            raise
    finally:
        os.close(descriptor)


def _standalone(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Each tensor on the host, dense, in memory that no other name uses: safetensors refuses anything else."""
    result: dict[str, torch.Tensor] = {}
    taken: set[int] = set()
    for name, tensor in tensors.items():
        host = tensor.detach().to("cpu").resolve_conj().resolve_neg().contiguous()
        if host.untyped_storage().data_ptr() in taken:
            host = host.clone()
        taken.add(host.untyped_storage().data_ptr())
        result[name] = host
    return result
