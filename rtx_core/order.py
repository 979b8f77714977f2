"""The order of samples and the cutting of a step: pure functions of (seed, epoch), in constant memory.

Position p of an epoch is sample π(p). Step s takes positions [sB, (s+1)B); inside the step samples are sorted by length
and cut into pieces, so that a piece wastes nothing and the order depends on nothing but the seed.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import attrs
import numpy as np

from rtx_core import chance

if TYPE_CHECKING:
    from collections.abc import Sequence

# Few rounds of a Feistel network are biased on tiny domains; below this a stored permutation costs at most 512 KiB.
_STORED_BELOW = 1 << 16
_ROUNDS = 8


@attrs.frozen
class Order:
    """A permutation of each epoch's samples."""

    seed: int
    size: int
    """Samples in an epoch, at least 1."""

    def samples(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """Sample ids at the positions ``start … stop − 1`` of an epoch, int64."""
        key = _key(self.seed, epoch)
        if self.size < _STORED_BELOW:
            return _stored(key, self.size)[start:stop]
        return _feistel(np.arange(start, stop, dtype=np.uint64), self.size, key)


@functools.lru_cache(maxsize=8)
def _key(seed: int, epoch: int) -> int:
    return chance.derive(seed, "order", epoch)


@functools.lru_cache(maxsize=2)
def _stored(key: int, size: int) -> np.ndarray:
    # Sorting raw draws instead of Generator.permutation: numpy promises the stream of a bit generator, not of a method.
    order: np.ndarray = np.argsort(np.random.Philox(key=key).random_raw(size), kind="stable")
    return order


def _feistel(values: np.ndarray, size: int, key: int) -> np.ndarray:
    """Permute [0, size) by a balanced Feistel network over the next even power of two, walking cycles that leave it."""
    half = (int(size - 1).bit_length() + 1) // 2
    keys = np.random.Philox(key=key).random_raw(_ROUNDS)
    result = _network(values, keys, half)
    while (outside := result >= size).any():
        result[outside] = _network(result[outside], keys, half)
    return result.astype(np.int64)


def _network(values: np.ndarray, keys: np.ndarray, half: int) -> np.ndarray:
    mask = np.uint64((1 << half) - 1)
    left, right = values >> np.uint64(half), values & mask
    for key in keys:
        left, right = right, left ^ (_mix(right + key) & mask)
    return (left << np.uint64(half)) | right


def _mix(values: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64 (Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195); uint64, wraps around."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = values ^ (values >> np.uint64(31))
    return mixed


@attrs.frozen(kw_only=True)
class Cutting:
    """How epochs become steps, and a step becomes pieces for forward passes and processes."""

    samples: int
    batch_size: int
    micro_batch_size: int
    processes: int = 1

    @property
    def steps_per_epoch(self) -> int:
        """Steps in an epoch; the last may be short."""
        return math.ceil(self.samples / self.batch_size)

    def positions(self, step: int) -> tuple[int, int, int]:
        """``(epoch, start, stop)`` of the 0-based step."""
        epoch, within = divmod(step, self.steps_per_epoch)
        start = within * self.batch_size
        return epoch, start, min(start + self.batch_size, self.samples)

    def pieces(self, lengths: np.ndarray) -> list[np.ndarray]:
        """Indices into a step's samples, sorted by length (ties by position), in pieces of at most the micro-batch.

        Piece g belongs to process g mod ``processes``; every process gets as many pieces, the last ones may be empty.
        """
        order = np.argsort(lengths, kind="stable")
        count = math.ceil(len(order) / self.micro_batch_size)
        count = math.ceil(count / self.processes) * self.processes
        return [order[g * self.micro_batch_size : (g + 1) * self.micro_batch_size] for g in range(count)]


def cut_by_length(lengths: Sequence[int] | np.ndarray, size: int) -> list[np.ndarray]:
    """All samples in batches of ``size`` for an evaluation, shortest first."""
    order = np.argsort(lengths, kind="stable")
    return [order[start : start + size] for start in range(0, len(order), size)]
