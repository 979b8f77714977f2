"""Training data that are read as they are needed: shards in another order each epoch, records shuffled in blocks.

An epoch's shards are permuted, their records follow one another and are cut into blocks, and each block is shuffled,
encoded (and packed) by itself: all pure functions of (seed, epoch, block). So a position is three numbers, and a
resumed run comes back to it by passing over records, of which only those of one block are encoded. Memory holds a
block, or three where one is made ahead.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from rtx_core import chance
from rtx_core.encoding import ahead, in_lists
from rtx_core.errors import DataError, PluginError
from rtx_core.order import Order
from rtx_core.packing import packed
from rtx_core.samples import Batch
from rtx_core.store import SampleStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rtx_core.batches import Cutting
    from rtx_core.components import Data, TaskPart
    from rtx_core.packing import Packing
    from rtx_core.samples import Record, Sample, Samples


@attrs.frozen(kw_only=True)
class Position:
    """How far a stream has come: everything before it was taken."""

    epoch: int = 0
    block: int = 0
    """In the epoch."""
    sample: int = 0
    """In the block."""


@attrs.frozen(eq=False)
class _Drawn:
    """A sample as it is learnt, and where the stream is after it."""

    sample: Sample
    number: int
    """Of no other sample of the stream, so that one can be left out: that of the epoch, the block and its place."""
    after: Position


@attrs.define(kw_only=True, eq=False)
class StreamSteps:
    """The batches of each step for one process: the next samples of the stream, each epoch after the last."""

    source: Data
    task: TaskPart
    cutting: Cutting
    batch_size: int
    """Samples of a step, over all processes; also at an epoch's end, which is in the middle of a step."""
    window: int
    """Records of a block."""
    packing: Packing
    max_length: int
    seed: int
    rank: int = 0
    position: Position = attrs.field(factory=Position, init=False)
    """Where the step that was handed out last ends."""

    @property
    def epoch(self) -> float:
        """Epochs that were begun before this one; how much of this one is done can't be told."""
        return float(self.position.epoch)

    def state_dict(self) -> dict[str, Any]:
        """The position."""
        return attrs.asdict(self.position)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a position.

        :raises PluginError: it is none.
        """
        try:
            self.position = Position(**state)
        except TypeError as error:
            raise PluginError(f"the checkpoint's place in the stream is no place: {sorted(state)}") from error

    def iterate(self, start: int, stop: int, workers: int) -> Iterator[list[Batch]]:
        """``stop − start`` steps from the position on; with ``workers`` one thread encodes the next block ahead."""
        drawn = self._drawn(threaded=workers > 0)
        for _ in range(start, stop):
            taken = list(itertools.islice(drawn, self.batch_size))
            self.position = taken[-1].after
            yield self._pieces(taken)

    def _pieces(self, taken: Sequence[_Drawn]) -> list[Batch]:
        """This process's pieces of a step; an empty piece has no sequences."""
        pieces = self.cutting.pieces(np.array([len(drawn.sample.input_ids) for drawn in taken]))
        return [
            Batch.of([taken[i].sample for i in piece], [taken[i].number for i in piece])
            for piece in pieces[self.rank :: self.cutting.processes]
        ]

    def _drawn(self, *, threaded: bool) -> Iterator[_Drawn]:
        """The samples from the position on, without end."""
        prepare = getattr(self.task, "prepare", None)
        blocks = self._blocks(self.position)
        for epoch, block, samples, first in ahead(blocks, 1) if threaded else blocks:
            for number in range(first, len(samples)):
                sample = samples[number]
                if prepare is not None:
                    sample = prepare(sample, chance.derive(self.seed, "sample", epoch, block, number))
                last = number + 1 == len(samples)
                after = Position(epoch=epoch, block=block + last, sample=0 if last else number + 1)
                yield _Drawn(sample, epoch << 48 | block << 24 | number, after)

    def _blocks(self, position: Position) -> Iterator[tuple[int, int, Samples, int]]:
        """Epoch, number in it and samples of each block from the position on, and the first sample to take."""
        for epoch in itertools.count(position.epoch):
            begun = position if epoch == position.epoch else Position(epoch=epoch)
            any_samples = begun != Position(epoch=epoch)
            # Records that were taken before are read, since nothing else says where the next begin, but not encoded.
            for block, records in enumerate(in_lists(self._records(epoch), self.window)):
                if block >= begun.block:
                    samples = self._encoded(epoch, block, records)
                    any_samples = any_samples or len(samples) > 0
                    yield epoch, block, samples, begun.sample if block == begun.block else 0
            if not any_samples:
                raise DataError("data.train", None, "the stream gives no sample")

    def _records(self, epoch: int) -> Iterator[Record]:
        """The records of an epoch, shard by shard in its order."""
        shards = self.source.shards()
        order = Order(chance.derive(self.seed, "shards", epoch), len(shards))
        for number in order.samples(epoch, 0, len(shards)):
            yield from shards[number].records()

    def _encoded(self, epoch: int, block: int, records: Sequence[Record]) -> Samples:
        """The samples of a block, its records shuffled."""
        order = Order(chance.derive(self.seed, "block", epoch, block), len(records))
        store = SampleStore(self.task.samples(records[i] for i in order.samples(0, 0, len(records))))
        if self.packing == "none" or not len(store):
            return store
        return packed(store, [len(store)], self.packing, self.max_length)[0]
