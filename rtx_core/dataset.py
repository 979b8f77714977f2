"""Encoded samples in compact arrays, and the batches of each step made from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch.utils.data

from rtx_core import chance
from rtx_core.order import Cutting, Order, cut_by_length
from rtx_core.samples import Batch, Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rtx_core.components import TaskPart


class SampleStore:
    """All samples of one source, end to end in a few arrays; a sample is a view into them."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        """Read all samples, in order."""
        kept = list(samples)
        self._input_ids = _Ragged([sample.input_ids for sample in kept])
        self._token_types = _Ragged([sample.token_types for sample in kept])
        self._positions = _Ragged([sample.target_positions for sample in kept])
        self._targets = _Ragged([sample.targets for sample in kept])
        self._sequences = _Ragged([np.array(sample.lengths, dtype=np.int32) for sample in kept])
        self.lengths = self._input_ids.lengths
        """Tokens of each sample, int64."""

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Sample:
        return Sample(
            input_ids=self._input_ids[index],
            token_types=self._token_types[index],
            target_positions=self._positions[index],
            targets=self._targets[index],
            lengths=tuple(self._sequences[index].tolist()),
        )

    @property
    def tokens(self) -> int:
        """Tokens of all samples."""
        return int(self.lengths.sum())


class _Ragged:
    """Rows of different lengths in one array."""

    def __init__(self, rows: list[np.ndarray]) -> None:
        self.lengths = np.array([len(row) for row in rows], dtype=np.int64)
        self._ends = np.cumsum(self.lengths).tolist()
        self._values = np.concatenate(rows) if rows else np.zeros(0, np.int32)

    def __getitem__(self, index: int) -> np.ndarray:
        return self._values[self._ends[index - 1] if index else 0 : self._ends[index]]


class Steps(torch.utils.data.Dataset[list[Batch]]):
    """The batches of each step for one process: a pure function of (seed, step)."""

    def __init__(self, store: SampleStore, task: TaskPart, cutting: Cutting, *, seed: int, rank: int = 0) -> None:
        """``rank`` selects this process's pieces."""
        self._store, self._task, self._cutting, self._rank = store, task, cutting, rank
        self._seed = seed
        self._order = Order(seed, len(store))

    def __getitem__(self, step: int) -> list[Batch]:
        """This process's pieces of the 0-based step, on the host; an empty piece has no sequences."""
        epoch, start, stop = self._cutting.positions(step)
        ids = self._order.samples(epoch, start, stop)
        pieces = self._cutting.pieces(self._store.lengths[ids])
        return [self._batch(epoch, ids[piece]) for piece in pieces[self._rank :: self._cutting.processes]]

    def _batch(self, epoch: int, ids: np.ndarray) -> Batch:
        samples = [
            self._task.prepare(self._store[i], chance.derive(self._seed, "sample", epoch, i)) for i in ids.tolist()
        ]
        return Batch.of(samples, ids.tolist())

    def iterate(self, start: int, stop: int, workers: int) -> Iterator[list[Batch]]:
        """The steps ``start … stop − 1`` in order, prepared by ``workers`` processes (0: by this one)."""
        loader = torch.utils.data.DataLoader(
            self, batch_size=None, sampler=range(start, stop), num_workers=workers, generator=torch.Generator()
        )
        return iter(loader)


def evaluation_batches(store: SampleStore, task: TaskPart, size: int, *, seed: int) -> Iterator[Batch]:
    """Every sample once, shortest first; chance is the same in every evaluation."""
    for ids in cut_by_length(store.lengths, size):
        samples = [task.prepare(store[i], chance.derive(seed, "evaluation", i)) for i in ids.tolist()]
        yield Batch.of(samples, ids.tolist())
