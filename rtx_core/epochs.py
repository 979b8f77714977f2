"""Pipeline → epochs: which samples one has and in which order, how it is cut into steps, and how long the run is."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import attrs

from rtx_core.errors import InputError
from rtx_core.lengths import Horizon
from rtx_core.order import Cutting, EpochOrder, MixedOrder, Order, shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtx_core.config import Pipeline
    from rtx_core.dataset import SampleStore


def order(seed: int, sizes: Sequence[int], weights: Sequence[float] | None) -> EpochOrder:
    """Each sample once an epoch, or by the weights of the sources.

    :raises InputError: a source with a weight has no sample.
    """
    if weights is None:
        return Order(seed, sum(sizes))
    if 0 in sizes:
        raise InputError(f"data.train[{sizes.index(0)}]: gives no sample for training, so nothing can be drawn from it")
    return MixedOrder(seed, shares(sizes, weights))


def tokens_per_epoch(train: SampleStore, order: EpochOrder) -> int:
    """Tokens of an epoch; where it takes a part of a source, as many as that part has on average."""
    if not isinstance(order, MixedOrder):
        return train.tokens
    total, start = Fraction(0), 0
    for source in order.sources:
        tokens = int(train.lengths[start : start + source.size].sum())
        total += Fraction(tokens * source.drawn, source.size)
        start += source.size
    return round(total)


def cutting(pipeline: Pipeline, samples: int) -> Cutting:
    """How an epoch of so many samples becomes steps and pieces."""
    training, processes = pipeline.training, pipeline.strategy.processes()
    return Cutting(
        samples=samples,
        batch_size=training.batch_size,
        micro_batch_size=training.micro_batch_size or -(-training.batch_size // processes),
        processes=processes,
    )


def horizon(pipeline: Pipeline, cutting: Cutting, tokens_per_epoch: int) -> Horizon:
    """The length of the run.

    :raises InputError: it can't be known, or is no step.
    """
    epoch = Horizon(
        total=0,
        run_total=0,
        steps_per_epoch=cutting.steps_per_epoch,
        samples_per_epoch=cutting.samples,
        tokens_per_epoch=tokens_per_epoch,
    )
    total = epoch.steps(pipeline.training.duration)
    return attrs.evolve(epoch, total=total, run_total=total)
