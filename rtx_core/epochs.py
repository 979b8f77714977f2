"""Pipeline and training samples → epochs: what one holds, how it is cut into steps, and how long the run is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np

from rtx_core.batches import Batches, Cutting, EqualBatches, LengthBatches, TokenBatches
from rtx_core.errors import InputError
from rtx_core.lengths import Horizon
from rtx_core.order import BalancedOrder, EpochOrder, MixedOrder, Order, shares
from rtx_core.packing import packed
from rtx_core.store import SampleStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtx_core.components import Outputs
    from rtx_core.config import Pipeline
    from rtx_core.samples import Samples


@attrs.frozen(kw_only=True, eq=False)
class Epochs:
    """All that a run's steps follow from."""

    train: Samples
    """The training samples: the store's, or packed ones; none where they are streamed."""
    batches: Batches | None
    """None where the training data are streamed."""
    cutting: Cutting
    horizon: Horizon


def plan_epochs(
    pipeline: Pipeline,
    store: Samples,
    sizes: Sequence[int],
    *,
    weights: Sequence[float] | None,
    outputs: Outputs,
    max_length: int,
) -> Epochs:
    """Pack the training samples if asked for, order them, cut epochs into steps, and count the run's.

    :param sizes: samples of each source, which stand one after the other.
    :param weights: how much of an epoch is of each source; None takes all of each.
    :raises InputError: a source or a label has no sample, an epoch more steps than samples, or the run no step.
    """
    if weights is not None and 0 in sizes:
        place = list(sizes).index(0)
        raise InputError(f"data.train[{place}]: gives no sample for training, so nothing can be drawn from it")
    train = store
    if pipeline.training.packing != "none":
        train, sizes = packed(store, sizes, pipeline.training.packing, max_length)
    order = _order(pipeline, train, sizes, weights, outputs)
    tokens = order.total(train.lengths)
    batches = _batches(pipeline, order, train.lengths, tokens)
    return Epochs(train=train, batches=batches, cutting=cutting(pipeline), horizon=horizon(pipeline, batches, tokens))


def streamed_epochs(pipeline: Pipeline) -> Epochs:
    """The same for training data that are streamed: all that can be known before they are read.

    :raises InputError: the run's length can't be.
    """
    # As many samples as steps ask for: an epoch, of which nobody knows how long it is, stands for one step.
    step = Horizon(
        total=0,
        run_total=0,
        steps_per_epoch=1,
        samples_per_epoch=pipeline.training.batch_size or 1,
        tokens_per_epoch=0,
        streamed=True,
    )
    total = step.steps(pipeline.training.duration)
    whole = attrs.evolve(step, total=total, run_total=total)
    return Epochs(train=SampleStore(()), batches=None, cutting=cutting(pipeline), horizon=whole)


def _order(
    pipeline: Pipeline, train: Samples, sizes: Sequence[int], weights: Sequence[float] | None, outputs: Outputs
) -> EpochOrder:
    """Each sample once an epoch, or by the weights of the sources, or every label equally often."""
    seed = pipeline.run.seed
    if pipeline.training.sampler == "balanced":
        return BalancedOrder.of(seed, _labels(train, outputs), outputs.size)
    if weights is None:
        return Order(seed, sum(sizes))
    return MixedOrder(seed, shares(sizes, weights))


def _labels(train: Samples, outputs: Outputs) -> np.ndarray:
    """The label of each sample.

    :raises InputError: a sample has none or several, or a label no sample.
    """
    labels = np.empty(len(train), dtype=np.int64)
    for number in range(len(train)):
        found = {label for label in train[number].targets.reshape(-1).tolist() if label >= 0}
        if len(found) != 1:
            raise InputError(
                f'training.sampler: "balanced" draws by the label of a sample, but sample {number} has '
                f"{'several' if found else 'none'}; leave it out for this task"
            )
        labels[number] = found.pop()
    absent = np.flatnonzero(np.bincount(labels, minlength=outputs.size) == 0)
    if len(absent):
        name = f"label {absent[0]}" if outputs.labels is None else f'the label "{outputs.labels[absent[0]]}"'
        raise InputError(
            f'training.sampler: "balanced" draws every label equally often, but {name} has no training sample; '
            "take it out of task.labels, or add data"
        )
    return labels


def _batches(pipeline: Pipeline, order: EpochOrder, lengths: np.ndarray, tokens: int) -> Batches:
    """How an epoch becomes steps.

    :raises InputError: there would be more of them than samples.
    """
    training, seed = pipeline.training, pipeline.run.seed
    if training.batch_tokens is not None:
        steps = max(1, -(-tokens // training.batch_tokens))
        if steps > order.size:
            raise InputError(
                f"training.batch_tokens: {training.batch_tokens} tokens a step are fewer than a sample has on average "
                f"({tokens / order.size:.4g}), so that some steps would be empty; give it at least "
                f"{-(-tokens // order.size)}"
            )
        return TokenBatches(order=order, lengths=lengths, steps=steps)
    size = training.batch_size or 1  # one of the two is written
    if training.group_by_length is not None:
        return LengthBatches(order=order, size=size, lengths=lengths, window=training.group_by_length, seed=seed)
    return EqualBatches(order=order, size=size)


def cutting(pipeline: Pipeline) -> Cutting:
    """How a step becomes pieces; as a whole where that is still to be measured."""
    training, processes = pipeline.training, pipeline.strategy.processes()
    size = training.micro_batch_size
    if not isinstance(size, int):
        size = None if training.batch_size is None else -(-training.batch_size // processes)
    return Cutting(micro_batch_size=size, processes=processes)


def evaluation_size(pipeline: Pipeline, cutting: Cutting, longest: int) -> int:
    """Sequences of a forward pass in an evaluation.

    :param longest: tokens of the longest sequence that is kept.
    """
    training = pipeline.training
    tokens = (training.batch_tokens or longest) // cutting.processes
    return training.eval_batch_size or cutting.micro_batch_size or max(1, tokens // longest)


def horizon(pipeline: Pipeline, batches: Batches, tokens_per_epoch: int) -> Horizon:
    """The length of the run.

    :raises InputError: it can't be known, or is no step.
    """
    epoch = Horizon(
        total=0,
        run_total=0,
        steps_per_epoch=batches.steps_per_epoch,
        samples_per_epoch=batches.order.size,
        tokens_per_epoch=tokens_per_epoch,
    )
    total = epoch.steps(pipeline.training.duration)
    return attrs.evolve(epoch, total=total, run_total=total)
