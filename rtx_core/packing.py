"""Several documents in one sample of about ``max_length`` tokens, so that samples are alike and batches even.

The documents stay separate sequences: nothing attends from one to another, and positions begin anew in each. A packed
sample is a view: the tokens stay where the store has them.

``best_fit`` puts whole documents into bins (Ding et al. 2024, arXiv:2404.10830): the longest first, each into the bin
in which the least room remains. ``concat`` cuts the documents, end to end, every ``max_length`` tokens.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal

import attrs
import numpy as np

from rtx_core.samples import Batch, Sample, joined

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rtx_core.samples import Samples

Packing = Literal["none", "concat", "best_fit"]

_WINDOW = 10_000
"""Documents that are sorted at once: enough for bins to be full, and a corpus keeps about its order."""


@attrs.frozen(kw_only=True, eq=False)
class PackedStore:
    """Samples of another store, several in one."""

    base: Samples
    """The documents."""
    capacity: int
    """Tokens that a sample should have."""
    lengths: np.ndarray
    """Tokens of each packed sample, int64."""

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Sample:
        return _end_to_end(list(self._documents(index)))

    def _documents(self, index: int) -> Iterator[Sample]:
        """What a packed sample holds."""
        raise NotImplementedError

    def batches(self, many: Sequence[np.ndarray]) -> list[Batch]:
        """For each list of ids these samples as they are, packed in this order."""
        return [Batch.of([self[i] for i in ids.tolist()], ids.tolist()) for ids in many]

    @property
    def tokens(self) -> int:
        """Tokens of all samples."""
        return int(self.lengths.sum())

    @property
    def fill(self) -> float:
        """The share of the capacity that is used."""
        return self.tokens / (len(self) * self.capacity)


@attrs.frozen(kw_only=True, eq=False)
class BestFitStore(PackedStore):
    """Whole documents in bins."""

    members: np.ndarray
    """int64: the numbers of all documents, bin by bin."""
    bounds: np.ndarray
    """int64: where each bin begins in ``members``, and where the last one ends."""

    def _documents(self, index: int) -> Iterator[Sample]:
        return (self.base[i] for i in self.members[self.bounds[index] : self.bounds[index + 1]].tolist())


@attrs.frozen(kw_only=True, eq=False)
class ConcatenatedStore(PackedStore):
    """Ranges of the tokens of all documents; a range's first and last document may be cut."""

    ends: np.ndarray
    """int64: where each document ends, in tokens of all documents."""
    bounds: np.ndarray
    """int64: where each range begins, and where the last one ends."""

    def _documents(self, index: int) -> Iterator[Sample]:
        start, stop = self.bounds[index : index + 2].tolist()
        first = int(np.searchsorted(self.ends, start, side="right"))
        last = int(np.searchsorted(self.ends, stop, side="left"))
        for number in range(first, last + 1):
            document = self.base[number]
            begins = int(self.ends[number]) - len(document.input_ids)
            yield _part(document, max(0, start - begins), min(len(document.input_ids), stop - begins))


def documents(samples: Samples) -> Samples:
    """Those of which packed samples are made; samples that aren't packed are documents themselves."""
    return samples.base if isinstance(samples, PackedStore) else samples


def packed(base: Samples, sizes: Sequence[int], packing: Packing, capacity: int) -> tuple[PackedStore, list[int]]:
    """A view with packed samples, and how many of them are of each source.

    :param sizes: documents of each source; they stand one after the other, and no sample has documents of two.
    :param packing: not ``none``.
    :param capacity: tokens of a packed sample; a longer document stands alone in ``best_fit``.
    """
    return (_best_fit if packing == "best_fit" else _concatenated)(base, sizes, capacity)


def _best_fit(base: Samples, sizes: Sequence[int], capacity: int) -> tuple[BestFitStore, list[int]]:
    members, counts, bins = [], [], []
    start = 0
    for size in sizes:
        of_source = 0
        for first in range(start, start + size, _WINDOW):
            lengths = base.lengths[first : min(first + _WINDOW, start + size)]
            places = best_fit_decreasing(lengths, capacity)
            members.append(first + np.argsort(places, kind="stable"))
            counts.append(np.bincount(places))
            of_source += len(counts[-1])
        bins.append(of_source)
        start += size
    order, filled = joined(members, np.int64), joined(counts, np.int64)
    bounds = np.concatenate(([0], np.cumsum(filled)))
    lengths = np.add.reduceat(base.lengths[order], bounds[:-1])
    return BestFitStore(base=base, capacity=capacity, lengths=lengths, members=order, bounds=bounds), bins


def best_fit_decreasing(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """The bin of each document: the longest first, each into the fullest bin in which it fits, else into a new one.

    Bins are found by the room that is left in them, in time that does not grow with their number: the set of rooms is
    the bits of an integer.
    """
    bins = np.empty(len(lengths), dtype=np.int64)
    by_room: dict[int, list[int]] = {}
    rooms, count = 0, 0
    order = np.argsort(-lengths, kind="stable")
    for number, length in zip(order.tolist(), lengths[order].tolist(), strict=True):
        fitting = rooms >> length
        if fitting:
            room = length + (fitting & -fitting).bit_length() - 1
            place = by_room[room].pop()
            if not by_room[room]:
                rooms ^= 1 << room
        else:
            room, place, count = max(capacity, length), count, count + 1
        bins[number] = place
        if room > length:
            by_room.setdefault(room - length, []).append(place)
            rooms |= 1 << (room - length)
    return bins


def _concatenated(base: Samples, sizes: Sequence[int], capacity: int) -> tuple[ConcatenatedStore, list[int]]:
    ends = np.cumsum(base.lengths)
    of_sources = np.concatenate(([0], ends))[np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))]
    starts = [np.arange(begin, end, capacity) for begin, end in itertools.pairwise(of_sources.tolist())]
    bounds = np.concatenate((*starts, ends[-1:]))
    store = ConcatenatedStore(base=base, capacity=capacity, lengths=np.diff(bounds), ends=ends, bounds=bounds)
    return store, [len(places) for places in starts]


def _end_to_end(documents: Sequence[Sample]) -> Sample:
    """One sample of several."""
    sizes = [len(document.input_ids) for document in documents]
    shifts = np.cumsum([0, *sizes[:-1]])
    return Sample(
        input_ids=joined([document.input_ids for document in documents]),
        token_types=joined([document.token_types for document in documents]),
        target_positions=joined(
            [
                (document.target_positions + shift).astype(np.int32)
                for document, shift in zip(documents, shifts.tolist(), strict=True)
            ]
        ),
        targets=joined([document.targets for document in documents], np.int64),
        lengths=tuple(length for document in documents for length in document.sequence_lengths),
    )


def _part(document: Sample, start: int, stop: int) -> Sample:
    """The tokens ``start … stop − 1`` of a document."""
    if (start, stop) == (0, len(document.input_ids)):
        return document
    inside = (document.target_positions >= start) & (document.target_positions < stop)
    ends = np.cumsum(document.sequence_lengths).clip(start, stop)
    lengths = np.diff(ends, prepend=start)
    return Sample(
        input_ids=document.input_ids[start:stop],
        token_types=document.token_types[start:stop],
        target_positions=document.target_positions[inside] - start,
        targets=document.targets[inside],
        lengths=tuple(lengths[lengths > 0].tolist()),
    )
