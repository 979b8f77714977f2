"""What flows from a file to the model: a record (a row), a sample (token ids), a batch (packed sequences)."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Protocol, Self

import attrs
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import torch

    from rtx_core.model import FeatureCache


@attrs.frozen
class Record:
    """One row of data and where it came from."""

    values: Mapping[str, Any]
    """Column to value, as the file has it (a CSV gives text only)."""
    file: str
    line: int
    """Counts from 1: the line on which the record begins."""


@attrs.frozen(eq=False)
class Sample:
    """One training example: token ids of one sequence, or of several that belong together, end to end."""

    input_ids: np.ndarray
    """int32 ``[L]``."""
    token_types: np.ndarray
    """uint8 ``[L]``: 0 for the first segment, 1 for the second."""
    target_positions: np.ndarray
    """int32 ``[N]``: where features are taken, counted from the start of the sample."""
    targets: np.ndarray
    """``[N, …]``: int64 classes (negative = ignored) or float32 values, one for each target position."""
    lengths: tuple[int, ...] = ()
    """Length of each sequence where there are several; empty for one. Target positions never fall from one sequence to
    the next, so that a sample's targets are in the order of its sequences."""

    @property
    def sequence_lengths(self) -> tuple[int, ...]:
        """Length of each sequence, in order."""
        return self.lengths or (len(self.input_ids),)


class Samples(Protocol):
    """Encoded samples by number, wherever they are kept."""

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each sample, int64."""
        ...

    @property
    def tokens(self) -> int:
        """Tokens of all samples."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Sample: ...

    def batches(self, many: Sequence[np.ndarray]) -> list[Batch]:
        """For each list of ids these samples as they are, packed in this order."""
        ...


@attrs.frozen(eq=False)
class Rows:
    """Rows of different lengths, end to end: of each place the row that it is in, and how far from the row's start."""

    lengths: np.ndarray
    """int64 ``[B]``."""
    ends: np.ndarray
    """int64 ``[B]``: where each row ends."""
    row: np.ndarray
    """int64 ``[T]``."""
    within: np.ndarray
    """int64 ``[T]``: 0, 1, 2, … from the start of each row."""

    @classmethod
    def of(cls, lengths: np.ndarray) -> Self:
        """Rows of these lengths, int64."""
        ends = lengths.cumsum()
        row = np.arange(len(lengths)).repeat(lengths)
        return cls(lengths, ends, row, np.arange(len(row)) - (ends - lengths).take(row))

    @property
    def starts(self) -> np.ndarray:
        """int64 ``[B]``: where each row begins."""
        starts: np.ndarray = self.ends - self.lengths
        return starts


@attrs.define(eq=False, kw_only=True)
class Batch:
    """Sequences packed end to end without padding. B sequences, T tokens in all, N targets."""

    input_ids: torch.Tensor
    """int64 ``[T]``."""
    positions: torch.Tensor
    """int64 ``[T]``: 0, 1, 2, … from the start of each sequence."""
    token_types: torch.Tensor
    """int64 ``[T]``."""
    sequence_ids: torch.Tensor
    """int64 ``[T]``: which of the B sequences a token belongs to."""
    cu_seqlens: torch.Tensor
    """int32 ``[B + 1]``: where each sequence starts; the last entry is T."""
    lengths: tuple[int, ...]
    """The B lengths on the host, so that nothing has to be copied back to plan attention."""
    target_positions: torch.Tensor
    """int64 ``[N]``: indices into the T tokens at which a head gives features."""
    targets: torch.Tensor
    """``[N, …]`` int64 or float32."""
    sample_ids: torch.Tensor
    """int64 ``[B]``: the sample that each sequence belongs to, its place in the data source."""
    weight: float = 0.0
    """The loss's weight of the targets, computed on the host before the forward pass."""
    loss: torch.Tensor | None = None
    """The sum of its targets' losses, on its device, once it was computed; None for a loss over the whole step."""
    cache: FeatureCache | None = None
    """Only for losses over the whole step: what its two passes share."""
    plans: dict[str, Any] = attrs.field(factory=dict)
    """Index tensors that attention computes once for all layers, by path."""

    @classmethod
    def of(cls, samples: Sequence[Sample], sample_ids: Sequence[int]) -> Self:
        """Pack samples in the given order (tensors on the host).

        :param sample_ids: one for each sample.
        """
        tokens = np.array([len(sample.input_ids) for sample in samples], dtype=np.int64)
        counts = [len(sample.target_positions) for sample in samples]
        positions = joined([sample.target_positions for sample in samples]) + (tokens.cumsum() - tokens).repeat(counts)
        sequences = [sample.sequence_lengths for sample in samples]
        (batch,) = cls.packed(
            input_ids=joined([sample.input_ids for sample in samples]),
            token_types=joined([sample.token_types for sample in samples]),
            target_positions=positions,
            targets=joined([sample.targets for sample in samples], np.int64),
            sequences=Rows.of(np.array([length for lengths in sequences for length in lengths], dtype=np.int64)),
            sample_ids=np.array(sample_ids, dtype=np.int64).repeat([len(lengths) for lengths in sequences]),
            sizes=[sum(map(len, sequences))],
            counts=[sum(counts)],
        )
        return batch

    @classmethod
    def packed(
        cls,
        *,
        input_ids: np.ndarray,
        token_types: np.ndarray | None,
        target_positions: np.ndarray,
        targets: np.ndarray,
        sequences: Rows,
        sample_ids: np.ndarray,
        sizes: Sequence[int],
        counts: Sequence[int],
    ) -> list[Self]:
        """Make batches of arrays that are joined already, of one batch after the other.

        Many at once take hardly longer than one: what small arrays cost is the calls.

        :param token_types: None: all are 0.
        :param target_positions: int64, among all tokens.
        :param sequences: where the tokens of each sequence are.
        :param sample_ids: int64, one for each sequence.
        :param sizes: sequences of each batch.
        :param counts: targets of each batch.
        """
        import torch

        batch = np.arange(len(sizes)).repeat(sizes)  # of each sequence
        first = np.cumsum([0, *sizes])  # sequence of each batch, and where the last one ends
        ends = np.concatenate(([0], sequences.ends))[first]  # among all tokens, as well
        tokens, start = np.diff(ends).tolist(), ends[:-1]
        # A batch has a bound more than sequences, the 0 where it begins.
        cu_seqlens = np.zeros(len(batch) + len(sizes), dtype=np.int32)
        cu_seqlens[np.arange(len(batch)) + batch + 1] = sequences.ends - start.take(batch)
        types = np.zeros(len(input_ids), np.int64) if token_types is None else token_types.astype(np.int64)
        lengths = sequences.lengths.tolist()

        def divided(array: np.ndarray, sizes: Sequence[int]) -> tuple[torch.Tensor, ...]:
            return torch.split(torch.from_numpy(array), list(sizes))

        # From an odd address some kernels sum floats in another order; a batch's neighbours must not decide that.
        alone = [part.clone() if part.is_floating_point() else part for part in divided(targets, counts)]
        parts: dict[str, Sequence[Any]] = {
            "input_ids": divided(input_ids.astype(np.int64), tokens),
            "positions": divided(sequences.within, tokens),
            "token_types": divided(types, tokens),
            "sequence_ids": divided(sequences.row - first[batch].take(sequences.row), tokens),
            "cu_seqlens": divided(cu_seqlens, [size + 1 for size in sizes]),
            "lengths": [tuple(lengths[begin:end]) for begin, end in itertools.pairwise(first.tolist())],
            "target_positions": divided(target_positions - start.repeat(counts), counts),
            "targets": alone,
            "sample_ids": divided(sample_ids, sizes),
        }
        return [cls(**dict(zip(parts, values, strict=True))) for values in zip(*parts.values(), strict=True)]

    @property
    def target_samples(self) -> torch.Tensor:
        """int64 ``[N]``: the sample that each target is of."""
        return self.sample_ids[self.sequence_ids[self.target_positions]]

    def ignore_targets(self, samples: Collection[int]) -> None:
        """Make the targets of these samples ones that are ignored, whatever their kind; on the host."""
        import torch

        rows = torch.isin(self.target_samples, torch.tensor(sorted(samples), dtype=torch.int64))
        if self.targets.is_floating_point():
            self.targets = self.targets.masked_fill(rows.unsqueeze(1), torch.nan)
        elif self.targets.ndim == 1:
            self.targets = self.targets.masked_fill(rows, -1)
        else:  # spans: each token's place stays, but it is no answer's
            tokens = (rows & (self.targets[:, 0] >= 0)).unsqueeze(1) & (torch.arange(self.targets.shape[1]) > 0)
            self.targets = self.targets.masked_fill(tokens, -1)

    @property
    def max_seqlen(self) -> int:
        """Length of the longest sequence; 0 for an empty batch."""
        return max(self.lengths, default=0)

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device; itself where it is there already."""
        if self.input_ids.device == device:
            return self
        moved = {
            field.name: value.to(device, non_blocking=True)
            for field in attrs.fields(type(self))
            if hasattr(value := getattr(self, field.name), "to")
        }
        return attrs.evolve(self, **moved, plans={})

    def padded(self, pad_id: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """``input_ids`` as int64 ``[B, L]`` and a bool mask ``[B, L]``, True at real tokens, for models that pad."""
        import torch

        shape = (len(self.lengths), self.max_seqlen)
        ids = torch.full(shape, pad_id, dtype=self.input_ids.dtype, device=self.input_ids.device)
        mask = torch.zeros(shape, dtype=torch.bool, device=self.input_ids.device)
        ids[self.sequence_ids, self.positions] = self.input_ids
        mask[self.sequence_ids, self.positions] = True
        return ids, mask


def joined(rows: Sequence[np.ndarray], dtype: type[np.generic] = np.int32) -> np.ndarray:
    """Rows end to end; of no rows an empty array of the given dtype."""
    return np.concatenate(rows) if rows else np.zeros(0, dtype)
