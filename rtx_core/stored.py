"""The tensors of a folder with ``model.safetensors``, or with shards of it: what there is, and its values in pieces."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs
import torch
from safetensors import SafetensorError, safe_open

from rtx_core.errors import InputError
from rtx_core.model_folder import INDEX, WEIGHTS, missing_weights, weight_map

FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
"""The dtypes of weights that can be trained."""
_PIECE = 2**20
"""How many numbers are read at once. What was read of a mapped file counts as memory of the process until it is closed,
so a file is opened anew for each piece: loading then needs hardly more than the parameters themselves."""
_SHOWN = 3
"""How many names a message lists before it counts the rest."""


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


@attrs.frozen
class Stored:
    """Where a tensor lies, and what it is."""

    file: Path
    shape: tuple[int, ...]
    dtype: str
    """As safetensors names it: ``F32``, ``BF16``, ``I64``."""


@attrs.frozen
class StoredTensors:
    """The tensors of a folder by the file's names; values are read when they are copied."""

    entries: Mapping[str, Stored]

    @classmethod
    def open(cls, folder: Path) -> StoredTensors:
        """Read the headers of ``model.safetensors``, or of the shards that an index names.

        :raises InputError: there are no such files, or one is damaged.
        """
        if (problem := missing_weights(folder)) is not None:
            raise InputError(f"{folder} {problem}")
        whole = folder / WEIGHTS
        return cls(_header(whole) if whole.is_file() else _sharded(folder))

    @property
    def names(self) -> frozenset[str]:
        """Every tensor's name."""
        return frozenset(self.entries)

    def pieces(self, name: str) -> Iterator[tuple[slice, torch.Tensor]]:
        """A tensor's rows a few at a time: which, and their values. Of one without rows the whole."""
        stored = self.entries[name]
        for rows in _row_slices(stored.shape):
            with _readable(stored.file), safe_open(stored.file, framework="pt") as file:
                yield rows, file.get_slice(name)[rows] if stored.shape else file.get_tensor(name)

    def copy(self, name: str, target: torch.Tensor) -> None:
        """Put a tensor's values into another of its shape."""
        with torch.no_grad():
            for rows, values in self.pieces(name):
                (target[rows] if target.ndim else target).copy_(values)

    def copy_rows(self, name: str, target: torch.Tensor) -> None:
        """Put a tensor's first rows into another that has fewer or more; in one with more the rest stays."""
        with torch.no_grad():
            for rows, values in self.pieces(name):
                if rows.start < len(target):
                    target[rows].copy_(values[: len(target) - rows.start])

    def whole(self, name: str) -> torch.Tensor:
        """A tensor that is small enough to be held beside the parameters."""
        return torch.cat([values for _, values in self.pieces(name)])

    def is_finite(self, name: str, dtype: torch.dtype) -> bool:
        """Whether all values of a tensor are numbers, and stay so in ``dtype``."""
        extremes = (torch.stack(values.aminmax()) for _, values in self.pieces(name) if values.numel())
        return all(bool(ends.to(dtype).isfinite().all()) for ends in extremes)

    def equal(self, first: str, second: str) -> bool:
        """Whether two tensors have the same shape and values."""
        if self.entries[first].shape != self.entries[second].shape:
            return False
        pairs = zip(self.pieces(first), self.pieces(second), strict=True)
        return all(torch.equal(one, other) for (_, one), (_, other) in pairs)


def mapped(file: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a file by name; they are mapped from it, not read at once.

    :raises InputError: it is missing or damaged.
    """
    from safetensors.torch import load_file

    with _readable(file):
        return load_file(file)


def _row_slices(shape: Sequence[int]) -> Iterator[slice]:
    if not shape:
        yield slice(None)
        return
    step = max(1, _PIECE // max(1, math.prod(shape[1:])))
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))


def _header(file: Path) -> dict[str, Stored]:
    with _readable(file), safe_open(file, framework="pt") as opened:
        slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 - it is no dict
        return {name: Stored(file, tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()}


def _sharded(folder: Path) -> dict[str, Stored]:
    index = folder / INDEX
    places = weight_map(index)
    headers = {shard: _header(folder / shard) for shard in sorted(set(places.values()))}
    if missing := [name for name, shard in places.items() if name not in headers[shard]]:
        raise InputError(f"{index}: {listed(missing)} are not in the files that it names")
    # An index of another save, or one that was cut: which of two tensors is meant, and what else is lost, nobody knows.
    if strange := [name for shard, header in headers.items() for name in header if places.get(name) != shard]:
        raise InputError(
            f"{index}: it doesn't fit its files: {listed(strange)} are in others than it says; save the model once more"
        )
    return {name: headers[shard][name] for name, shard in places.items()}


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Turn a file that is missing or damaged into one line."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"there is no {file}") from None
    except (OSError, SafetensorError) as error:
        raise InputError(f"{file} can't be read: {error}") from error
