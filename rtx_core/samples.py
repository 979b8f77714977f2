"""What flows from a file to the model: a record (a row), a sample (token ids), a batch (packed sequences)."""

from __future__ import annotations

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

    def batch(self, ids: np.ndarray) -> Batch:
        """These samples as they are, packed in this order."""
        ...


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
        return cls.packed(
            input_ids=joined([sample.input_ids for sample in samples]),
            token_types=joined([sample.token_types for sample in samples]),
            target_positions=joined([sample.target_positions for sample in samples]),
            targets=joined([sample.targets for sample in samples], np.int64),
            tokens=np.array([len(sample.input_ids) for sample in samples], dtype=np.int64),
            counts=np.array([len(sample.target_positions) for sample in samples], dtype=np.int64),
            sequences=[sample.sequence_lengths for sample in samples],
            sample_ids=np.array(sample_ids, dtype=np.int64),
        )

    @classmethod
    def packed(
        cls,
        *,
        input_ids: np.ndarray,
        token_types: np.ndarray,
        target_positions: np.ndarray,
        targets: np.ndarray,
        tokens: np.ndarray,
        counts: np.ndarray,
        sequences: Sequence[Sequence[int]] | None,
        sample_ids: np.ndarray,
    ) -> Self:
        """Make a batch of samples whose arrays are joined already.

        :param target_positions: counted from the start of each sample.
        :param tokens: tokens of each sample.
        :param counts: targets of each sample.
        :param sequences: lengths of each sample's sequences; None where every sample is one sequence.
        """
        import torch

        if sequences is None:
            sizes = tokens
        else:
            sizes = np.array([length for lengths in sequences for length in lengths], dtype=np.int64)
            sample_ids = np.repeat(sample_ids, [len(lengths) for lengths in sequences])
        ends = np.cumsum(sizes)
        bounds = np.zeros(len(sizes) + 1, dtype=np.int32)
        bounds[1:] = ends
        sequence_ids = np.repeat(np.arange(len(sizes)), sizes)
        sample_starts = np.cumsum(tokens) - tokens
        return cls(
            input_ids=torch.from_numpy(input_ids.astype(np.int64)),
            positions=torch.from_numpy(np.arange(len(input_ids)) - (ends - sizes)[sequence_ids]),
            token_types=torch.from_numpy(token_types.astype(np.int64)),
            sequence_ids=torch.from_numpy(sequence_ids),
            cu_seqlens=torch.from_numpy(bounds),
            lengths=tuple(sizes.tolist()),
            target_positions=torch.from_numpy(target_positions + np.repeat(sample_starts, counts)),
            targets=torch.from_numpy(targets),
            sample_ids=torch.from_numpy(sample_ids),
        )

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
