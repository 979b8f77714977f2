"""The batches of each step and of an evaluation, made from encoded samples."""

from __future__ import annotations

import itertools
import signal
import sys
import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch.utils.data

from rtx_core import chance
from rtx_core.batches import Batches, Cutting, cut_by_length
from rtx_core.samples import Batch, Samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rtx_core.components import TaskPart
    from rtx_core.store import SampleStore


_STEPS_AT_ONCE = 64
_TOKENS_AT_ONCE = 1 << 14
"""So that no step waits long for those after it."""


class Steps(torch.utils.data.Dataset[list[Batch]]):
    """The batches of each step for one process: a pure function of (seed, step)."""

    def __init__(
        self,
        store: Samples,
        task: TaskPart,
        batches: Batches,
        cutting: Cutting,
        *,
        seed: int,
        rank: int = 0,
    ) -> None:
        """Prepare no batch yet.

        :param rank: selects this process's pieces.
        """
        self._store, self._task, self._batches, self._cutting, self._rank = store, task, batches, cutting, rank
        self._seed = seed

    def __getitem__(self, step: int) -> list[Batch]:
        """This process's pieces of the 0-based step, on the host; an empty piece has no sequences."""
        return self._steps(range(step, step + 1))[0]

    def _steps(self, steps: range) -> list[list[Batch]]:
        """The pieces of each of several steps."""
        pieces = [self._pieces(step) for step in steps]
        batches = iter(self._batches_of([piece for of_step in pieces for piece in of_step]))
        return [list(itertools.islice(batches, len(of_step))) for of_step in pieces]

    def _pieces(self, step: int) -> list[tuple[int, np.ndarray]]:
        """The epoch and the samples of each piece of a step for this process."""
        epoch, ids = self._batches.samples(step)
        pieces = self._cutting.pieces(self._store.lengths.take(ids))
        return [(epoch, ids.take(piece)) for piece in pieces[self._rank :: self._cutting.processes]]

    def batch(self, epoch: int, ids: np.ndarray) -> Batch:
        """Any samples as they are learnt in an epoch, in this order."""
        return self._batches_of([(epoch, ids)])[0]

    def _batches_of(self, pieces: Sequence[tuple[int, np.ndarray]]) -> list[Batch]:
        if not hasattr(self._task, "prepare"):
            return self._store.batches([ids for _, ids in pieces])
        return [self._prepared(epoch, ids) for epoch, ids in pieces]

    def _prepared(self, epoch: int, ids: np.ndarray) -> Batch:
        return _made(self._store, self._task, ids, lambda i: chance.derive(self._seed, "sample", epoch, i))

    def iterate(self, start: int, stop: int, workers: int) -> Iterator[list[Batch]]:
        """The steps ``start … stop − 1`` in order, prepared by ``workers`` processes (0: by this one)."""
        if workers == 0:
            return self._in_blocks(start, stop)
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

    def _in_blocks(self, start: int, stop: int) -> Iterator[list[Batch]]:
        """Small steps several at once: of few tokens it is the calls that take time, and not the work."""
        batches = self._batches
        tokens = self._store.tokens / len(self._store) * batches.order.size / batches.steps_per_epoch
        block = 1 if hasattr(self._task, "prepare") else int(min(max(_TOKENS_AT_ONCE / tokens, 1), _STEPS_AT_ONCE))
        for first in range(start, stop, block):
            yield from self._steps(range(first, min(first + block, stop)))


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


def _made(store: Samples, task: TaskPart, ids: np.ndarray, seed_of: Callable[[int], int]) -> Batch:
    """A batch of samples, each treated by the task's chance if it has any."""
    prepare = getattr(task, "prepare", None)
    if prepare is None:
        return store.batches([ids])[0]
    return Batch.of([prepare(store[i], seed_of(i)) for i in ids.tolist()], ids.tolist())
