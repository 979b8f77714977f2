"""Encoded samples in compact arrays, and the batches of each step made from them."""

from __future__ import annotations

import signal
import sys
import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch.utils.data

from rtx_core import chance
from rtx_core.order import Cutting, EpochOrder, Order, cut_by_length
from rtx_core.samples import Batch, Sample, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rtx_core.components import TaskPart


class SampleStore:
    """All samples of one source, end to end in a few arrays; a sample is a view into them."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        """Read all samples, in order."""
        kept = list(samples)
        self._input_ids = _Ragged([sample.input_ids for sample in kept])
        self._token_types = _Ragged([sample.token_types for sample in kept])
        self._positions = _Ragged([sample.target_positions for sample in kept])
        self._targets = _Ragged([sample.targets for sample in kept], np.int64)
        self._sequences = [sample.lengths for sample in kept] if any(sample.lengths for sample in kept) else None
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
            lengths=() if self._sequences is None else self._sequences[index],
        )

    def batch(self, ids: np.ndarray) -> Batch:
        """These samples as they are, packed in this order."""
        sequences = None
        if self._sequences is not None:
            sequences = [self[i].sequence_lengths for i in ids.tolist()]
        tokens, targets = self._input_ids.places(ids), self._targets.places(ids)
        return Batch.packed(
            input_ids=self._input_ids.values[tokens],
            token_types=self._token_types.values[tokens],
            target_positions=self._positions.values[targets],
            targets=self._targets.values[targets],
            tokens=self.lengths[ids],
            counts=self._targets.lengths[ids],
            sequences=sequences,
            sample_ids=ids,
        )

    @property
    def tokens(self) -> int:
        """Tokens of all samples."""
        return int(self.lengths.sum())


class _Ragged:
    """Rows of different lengths in one array."""

    def __init__(self, rows: list[np.ndarray], dtype: type[np.generic] = np.int32) -> None:
        self.lengths = np.array([len(row) for row in rows], dtype=np.int64)
        self._starts = np.cumsum(self.lengths) - self.lengths
        self.values = joined(rows, dtype)
        self._all_single = bool((self.lengths == 1).all())

    def __getitem__(self, index: int) -> np.ndarray:
        start = self._starts[index]
        return self.values[start : start + self.lengths[index]]

    def places(self, ids: np.ndarray) -> np.ndarray:
        """Where the values of several rows are, end to end."""
        if self._all_single:
            return ids
        lengths = self.lengths[ids]
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if len(ends) else 0
        # Place i of the result comes from its row's start plus its distance from where that row begins in the result.
        places: np.ndarray = np.arange(total) + np.repeat(self._starts[ids] - (ends - lengths), lengths)
        return places


class Steps(torch.utils.data.Dataset[list[Batch]]):
    """The batches of each step for one process: a pure function of (seed, step)."""

    def __init__(
        self,
        store: SampleStore,
        task: TaskPart,
        cutting: Cutting,
        *,
        seed: int,
        rank: int = 0,
        order: EpochOrder | None = None,
    ) -> None:
        """Prepare no batch yet.

        :param rank: selects this process's pieces.
        :param order: which samples an epoch has; None takes each once.
        """
        self._store, self._task, self._cutting, self._rank = store, task, cutting, rank
        self._seed = seed
        self._order = order or Order(seed, len(store))

    def __getitem__(self, step: int) -> list[Batch]:
        """This process's pieces of the 0-based step, on the host; an empty piece has no sequences."""
        epoch, start, stop = self._cutting.positions(step)
        ids = self._order.samples(epoch, start, stop)
        pieces = self._cutting.pieces(self._store.lengths[ids])
        return [self._batch(epoch, ids[piece]) for piece in pieces[self._rank :: self._cutting.processes]]

    def _batch(self, epoch: int, ids: np.ndarray) -> Batch:
        return _made(self._store, self._task, ids, lambda i: chance.derive(self._seed, "sample", epoch, i))

    def iterate(self, start: int, stop: int, workers: int) -> Iterator[list[Batch]]:
        """The steps ``start … stop − 1`` in order, prepared by ``workers`` processes (0: by this one)."""
        if workers == 0:
            return (self[step] for step in range(start, stop))
        loader = torch.utils.data.DataLoader(
            self,
            batch_size=None,
            sampler=range(start, stop),
            num_workers=workers,
            generator=torch.Generator(),
            worker_init_fn=_leave_signals_to_the_run,
            # Not what Python takes unless told (from 3.14 on a server): a new process would import torch, copy all
            # samples, and not find a task that a --plugin file brought.
            multiprocessing_context="fork" if sys.platform == "linux" else None,
        )
        with warnings.catch_warnings():
            # Python 3.12 warns of a fork beside threads, OpenMP's among them. A worker needs none of them and waits for
            # none of their locks: it packs arrays.
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
            return iter(loader)


def _leave_signals_to_the_run(_worker: int) -> None:
    """Ignore what often reaches every process of a run (Ctrl-C, a cluster that ends a job).

    The training process answers it after its step, for which it still needs its workers; they end with it.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def evaluation_batches(
    store: SampleStore, task: TaskPart, size: int, *, seed: int, among: np.ndarray | None = None
) -> Iterator[Batch]:
    """Every sample once, shortest first; chance is the same in every evaluation.

    :param among: the samples that are meant; None: all.
    """
    among = np.arange(len(store)) if among is None else among
    for ids in cut_by_length(store.lengths[among], size):
        yield _made(store, task, among[ids], lambda i: chance.derive(seed, "evaluation", i))


def _made(store: SampleStore, task: TaskPart, ids: np.ndarray, seed_of: Callable[[int], int]) -> Batch:
    """A batch of samples, each treated by the task's chance if it has any."""
    prepare = getattr(task, "prepare", None)
    if prepare is None:
        return store.batch(ids)
    return Batch.of([prepare(store[i], seed_of(i)) for i in ids.tolist()], ids.tolist())
