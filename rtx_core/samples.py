"""What flows from a file to the model: a record (a row), a sample (token ids), a batch (packed sequences)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import attrs
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    """Length of each sequence where there are several; empty for one."""

    @property
    def sequence_lengths(self) -> tuple[int, ...]:
        """Length of each sequence, in order."""
        return self.lengths or (len(self.input_ids),)


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
    cache: FeatureCache | None = None
    """Only for losses over the whole step: what its two passes share."""
    plans: dict[str, Any] = attrs.field(factory=dict)
    """Index tensors that attention computes once for all layers, by path."""

    @classmethod
    def of(cls, samples: Sequence[Sample], sample_ids: Sequence[int]) -> Self:
        """Pack samples in the given order (tensors on the host).

        :param sample_ids: one for each sample.
        """
        import torch

        lengths = tuple(length for sample in samples for length in sample.sequence_lengths)
        sizes = np.array(lengths, dtype=np.int64)
        ends = np.cumsum(sizes)
        total = int(ends[-1]) if lengths else 0
        starts = ends - sizes
        sample_sizes = np.array([len(sample.input_ids) for sample in samples], dtype=np.int64)
        sample_starts = np.cumsum(sample_sizes) - sample_sizes
        counts = [len(sample.sequence_lengths) for sample in samples]
        targets = [sample.targets for sample in samples]
        return cls(
            input_ids=torch.from_numpy(_joined([s.input_ids for s in samples], np.int64)),
            positions=torch.from_numpy(np.arange(total) - np.repeat(starts, sizes)),
            token_types=torch.from_numpy(_joined([s.token_types for s in samples], np.int64)),
            sequence_ids=torch.from_numpy(np.repeat(np.arange(len(lengths)), sizes)),
            cu_seqlens=torch.from_numpy(np.concatenate(([0], ends)).astype(np.int32)),
            lengths=lengths,
            target_positions=torch.from_numpy(
                _joined([s.target_positions + start for s, start in zip(samples, sample_starts, strict=True)], np.int64)
            ),
            targets=torch.from_numpy(np.concatenate(targets) if targets else np.zeros(0, np.int64)),
            sample_ids=torch.from_numpy(np.repeat(np.array(sample_ids, dtype=np.int64), counts)),
        )

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


def _joined(parts: Sequence[np.ndarray], dtype: type[np.generic]) -> np.ndarray:
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.zeros(0, dtype)
