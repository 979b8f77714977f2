"""How an epoch becomes steps, and a step becomes pieces: pure functions of (seed, epoch, step), in little memory.

The number of steps of an epoch is known before the first. Plainly, step s of an epoch takes the positions
[sB, (s+1)B). Two other ways look at the lengths of the samples of a *window*, of some dozens of batches, and so need no
more memory than those: batches of about equal tokens, and batches of samples of about equal length.

Inside the step samples are sorted by length and cut into pieces, so that a piece wastes nothing.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import attrs
import numpy as np

from rtx_core import chance
from rtx_core.order import EpochOrder, Order

if TYPE_CHECKING:
    from collections.abc import Sequence

_WINDOW = 64
"""Batches of a window of equal tokens: enough for their mean to be the epoch's."""


@attrs.frozen(kw_only=True, eq=False)
class Batches:
    """The batches of all epochs."""

    order: EpochOrder

    @property
    def steps_per_epoch(self) -> int:
        """Steps in an epoch."""
        raise NotImplementedError

    def samples(self, step: int) -> tuple[int, np.ndarray]:
        """The epoch of the 0-based step, and the ids of its samples in their order, int64."""
        epoch, within = divmod(step, self.steps_per_epoch)
        return epoch, self.of_epoch(epoch, within)

    def of_epoch(self, epoch: int, within: int) -> np.ndarray:
        """The samples of an epoch's step, counted from the epoch's first."""
        raise NotImplementedError


@attrs.frozen(kw_only=True, eq=False)
class EqualBatches(Batches):
    """So many samples a step; an epoch's last may be short."""

    size: int
    """Samples of a step."""

    @property
    def steps_per_epoch(self) -> int:
        """Steps in an epoch; the last may be short."""
        return math.ceil(self.order.size / self.size)

    def of_epoch(self, epoch: int, within: int) -> np.ndarray:
        """The samples at the positions that follow those of the step before."""
        start = within * self.size
        return self.order.samples(epoch, start, min(start + self.size, self.order.size))


@attrs.frozen(kw_only=True, eq=False)
class LengthBatches(EqualBatches):
    """So many samples of about one length a step: windows of batches are sorted, cut, and dealt in another order."""

    lengths: np.ndarray
    """Tokens of each sample."""
    window: int
    """Batches of a window."""
    seed: int

    def of_epoch(self, epoch: int, within: int) -> np.ndarray:
        """One of the batches of its window; a short one may come anywhere in the epoch's last window."""
        window, place = divmod(within, self.window)
        batches = _sorted_window(self, epoch, window)
        deal = Order(chance.derive(self.seed, "deal", epoch, window), len(batches))
        return batches[int(deal.samples(0, place, place + 1)[0])]


@functools.lru_cache(maxsize=4)
def _sorted_window(batches: LengthBatches, epoch: int, window: int) -> list[np.ndarray]:
    start, size = window * batches.window * batches.size, batches.window * batches.size
    samples = batches.order.samples(epoch, start, min(start + size, batches.order.size))
    samples = samples[np.argsort(batches.lengths[samples], kind="stable")]
    return [samples[first : first + batches.size] for first in range(0, len(samples), batches.size)]


@attrs.frozen(kw_only=True, eq=False)
class TokenBatches(Batches):
    """About so many tokens a step.

    The positions of an epoch are divided into windows with a fixed number of batches each, in proportion, and the
    tokens of a window evenly among its batches. So no step is empty as long as an epoch has as many samples as steps.
    """

    lengths: np.ndarray
    """Tokens of each sample."""
    steps: int
    """Steps in an epoch, at most as many as samples."""

    @property
    def steps_per_epoch(self) -> int:
        """Steps in an epoch."""
        return self.steps

    def of_epoch(self, epoch: int, within: int) -> np.ndarray:
        """The samples between two boundaries of its window."""
        windows = math.ceil(self.steps / _WINDOW)
        # The last one whose first step, ⌊window · steps / windows⌋, is not after this one.
        window = ((within + 1) * windows - 1) // self.steps
        samples, bounds = _token_window(self, epoch, window)
        place = within - self.first_step(window)
        return samples[bounds[place] : bounds[place + 1]]

    def first_step(self, window: int) -> int:
        """The first step of a window."""
        return window * self.steps // math.ceil(self.steps / _WINDOW)


@functools.lru_cache(maxsize=4)
def _token_window(batches: TokenBatches, epoch: int, window: int) -> tuple[np.ndarray, np.ndarray]:
    """The samples of a window, and where its batches begin and end among them."""
    first, after = batches.first_step(window), batches.first_step(window + 1)
    start, stop = (step * batches.order.size // batches.steps for step in (first, after))
    samples = batches.order.samples(epoch, start, stop)
    return samples, even_bounds(batches.lengths[samples], after - first)


def even_bounds(tokens: np.ndarray, parts: int) -> np.ndarray:
    """Where to cut a row of samples into parts of about equal tokens, none of them empty: ``parts + 1`` places.

    Each boundary is the one whose tokens so far are nearest to its share of all.

    :param tokens: of each sample; at least as many as parts.
    """
    ends = np.concatenate(([0], np.cumsum(tokens)))
    shares = ends[-1] * np.arange(parts + 1) / parts
    after = np.searchsorted(ends, shares).clip(1, len(tokens))
    bounds = after - (shares - ends[after - 1] < ends[after] - shares)
    # At least one sample each: rising by one or more, and leaving enough for those that follow.
    places = np.arange(parts + 1)
    bounds = np.maximum.accumulate(bounds - places).clip(0, len(tokens) - parts) + places
    bounds[0], bounds[-1] = 0, len(tokens)
    return bounds


@attrs.frozen(kw_only=True)
class Cutting:
    """How a step is cut into pieces for forward passes and processes."""

    micro_batch_size: int | None
    """Samples of a piece; None cuts a step only for the processes."""
    processes: int = 1

    def pieces(self, lengths: np.ndarray) -> list[np.ndarray]:
        """Indices into a step's samples, sorted by length (ties by position), in pieces of at most the micro-batch.

        Piece g belongs to process g mod ``processes``; every process gets as many pieces, the last ones may be empty.
        """
        order = lengths.argsort(kind="stable")
        size = self.micro_batch_size or max(1, math.ceil(len(order) / self.processes))
        count = math.ceil(len(order) / size)
        count = math.ceil(count / self.processes) * self.processes
        return [order[g * size : (g + 1) * size] for g in range(count)]


def cut_by_length(lengths: Sequence[int] | np.ndarray, size: int) -> list[np.ndarray]:
    """All samples in batches of ``size`` for an evaluation, shortest first."""
    order = np.argsort(lengths, kind="stable")
    return [order[start : start + size] for start in range(0, len(order), size)]
