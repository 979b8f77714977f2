"""Which samples an epoch has, and in which order: pure functions of (seed, epoch), in constant memory.

Position p of an epoch is sample π(p).

Of several sources with weights an epoch takes so many samples each, in proportion, that the first of them is used up:
π mixes the sources, and each is gone through in permutations of its own that go on from epoch to epoch. The same
machinery draws every label equally often.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

import attrs
import numpy as np

from rtx_core import chance

if TYPE_CHECKING:
    from collections.abc import Sequence

# Few rounds of a Feistel network are biased on tiny domains; below this a stored permutation costs at most 512 KiB.
_STORED_BELOW = 1 << 16
_ROUNDS = 8


class EpochOrder(Protocol):
    """Which samples an epoch has, and in which order."""

    @property
    def size(self) -> int:
        """Samples in an epoch, at least 1."""
        ...

    def samples(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """Sample ids at the positions ``start … stop − 1`` of an epoch, int64."""
        ...

    def total(self, values: np.ndarray) -> int:
        """The sum over an epoch of an integer that each sample has; of a part of a source, as much as on average."""
        ...


@attrs.frozen
class Order:
    """A permutation of each epoch's samples."""

    seed: int
    size: int
    """Samples in an epoch, at least 1."""

    def samples(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """Sample ids at the positions ``start … stop − 1`` of an epoch, int64."""
        if self.size < _STORED_BELOW:
            return _stored(_key(self.seed, epoch), self.size)[start:stop]
        return self.at(epoch, np.arange(start, stop))

    def total(self, values: np.ndarray) -> int:
        """The sum over an epoch of an integer that each sample has."""
        return int(values.sum())

    def at(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        """Sample ids at any positions of an epoch, int64."""
        key = _key(self.seed, epoch)
        if self.size < _STORED_BELOW:
            stored: np.ndarray = _stored(key, self.size)[positions]
            return stored
        return _feistel(positions.astype(np.uint64), self.size, key)


@attrs.frozen
class Share:
    """What an epoch takes of one source."""

    size: int
    """Samples that the source has."""
    drawn: int
    """Samples that an epoch takes of them, at least 1; where more than ``size``, they come again within the epoch."""


def shares(sizes: Sequence[int], weights: Sequence[float]) -> tuple[Share, ...]:
    """What an epoch takes of each source: in proportion to the weights, until the first source is used up.

    Fractions are rounded up. A float is taken as the decimal number that is written: 0.1 is a tenth.
    """
    exact = [Fraction(str(weight)) for weight in weights]
    passes = min(size / weight for size, weight in zip(sizes, exact, strict=True))
    return tuple(Share(size, math.ceil(weight * passes)) for size, weight in zip(sizes, exact, strict=True))


@attrs.frozen
class MixedOrder:
    """The order of several sources that stand end to end, each taken in its share.

    Draw d of a source over the whole run is sample π'(d mod n) of its pass ⌊d / n⌋, so none of its samples comes a
    second time before all have come once. A source of which an epoch takes all comes whole in each epoch.
    """

    seed: int
    sources: tuple[Share, ...]

    @property
    def size(self) -> int:
        """Samples in an epoch."""
        return sum(source.drawn for source in self.sources)

    def samples(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """Sample ids at the positions ``start … stop − 1`` of an epoch, int64."""
        slots = Order(self.seed, self.size).samples(epoch, start, stop)
        samples = np.empty_like(slots)
        slot, sample = 0, 0  # where the source's begin
        for number, source in enumerate(self.sources):
            own = (slots >= slot) & (slots < slot + source.drawn)
            samples[own] = sample + self._drawn(number, slots[own] - slot + epoch * source.drawn)
            slot, sample = slot + source.drawn, sample + source.size
        return samples

    def total(self, values: np.ndarray) -> int:
        """The sum over an epoch of an integer that each sample has; of a part of a source, as much as on average."""
        exact, start = Fraction(0), 0
        for source in self.sources:
            exact += Fraction(int(values[start : start + source.size].sum()) * source.drawn, source.size)
            start += source.size
        return round(exact)

    def _drawn(self, number: int, draws: np.ndarray) -> np.ndarray:
        """The samples of one source at some of its draws, which are counted over the whole run."""
        order = Order(chance.derive(self.seed, "source", number), self.sources[number].size)
        passes, positions = np.divmod(draws, order.size)
        samples = np.empty_like(draws)
        for one in np.unique(passes):  # two at most, where an epoch takes no more than there are
            inside = passes == one
            samples[inside] = order.at(int(one), positions[inside])
        return samples


@attrs.frozen(eq=False)
class BalancedOrder:
    """Every label equally often: an epoch takes the same number of each, and goes through each label's samples in turn.

    An epoch has as many samples as there are, rounded up to a multiple of the labels.
    """

    by_label: np.ndarray
    """int64: the ids of all samples, those of each label side by side."""
    mixed: MixedOrder
    """Labels as sources: places in ``by_label``."""

    @classmethod
    def of(cls, seed: int, labels: np.ndarray, count: int) -> BalancedOrder:
        """Of the label of each sample, 0 to ``count − 1``; every one of them occurs."""
        drawn = math.ceil(len(labels) / count)
        sources = tuple(Share(size, drawn) for size in np.bincount(labels, minlength=count).tolist())
        return cls(np.argsort(labels, kind="stable"), MixedOrder(seed, sources))

    @property
    def size(self) -> int:
        """Samples in an epoch."""
        return self.mixed.size

    def samples(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """Sample ids at the positions ``start … stop − 1`` of an epoch, int64."""
        samples: np.ndarray = self.by_label[self.mixed.samples(epoch, start, stop)]
        return samples

    def total(self, values: np.ndarray) -> int:
        """The sum over an epoch of an integer that each sample has; of a part of a label, as much as on average."""
        return self.mixed.total(values[self.by_label])


@functools.lru_cache(maxsize=32)
def _key(seed: int, epoch: int) -> int:
    return chance.derive(seed, "order", epoch)


@functools.lru_cache(maxsize=16)
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
