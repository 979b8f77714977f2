"""Encoded samples in a few flat arrays: in memory, or in a file that is mapped into it.

A file is one Arrow IPC file (https://arrow.apache.org/docs/format/Columnar.html#ipc-file-format) with one record batch
and a row for each sample, so that its buffers are the arrays: nothing is read before it is used, and what the system
keeps of it in memory is shared by all processes. Columns, all lists: ``input_ids`` in the smallest unsigned integers
that hold them, ``token_types`` (left out where all are 0), ``target_positions``, ``targets``, and ``sequence_lengths``
(left out where no sample has several sequences).
"""

from __future__ import annotations

import json
import os
from typing import IO, TYPE_CHECKING, Any, Self

import attrs
import numpy as np

from rtx_core.errors import DataError, PluginError
from rtx_core.samples import Batch, Rows, Sample, joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

_ABOUT = b"rtx"
_COPIED_AT_ONCE = 1 << 20


class Ragged:
    """Rows of different lengths in one array: row i is ``values[bounds[i] : bounds[i + 1]]``."""

    def __init__(self, values: np.ndarray, bounds: np.ndarray) -> None:
        """Look at arrays; nothing is copied.

        :param bounds: int64, one more than there are rows.
        """
        self.values = values
        self.bounds = bounds
        self.lengths: np.ndarray = np.diff(bounds)
        self.all_single = bool((self.lengths == 1).all())
        """Whether row i is value i."""

    @classmethod
    def of(cls, rows: Sequence[np.ndarray], dtype: type[np.generic] = np.int32) -> Self:
        """Put rows end to end; without any the values are of the given dtype."""
        return cls(joined(rows, dtype), _bounds(rows))

    def __getitem__(self, index: int) -> np.ndarray:
        return self.values[self.bounds[index] : self.bounds[index + 1]]

    def places(self, ids: np.ndarray, rows: Rows) -> np.ndarray:
        """Where the values of several rows are, which lie end to end as given."""
        places: np.ndarray = rows.within + self.bounds.take(ids).take(rows.row)
        return places


def _bounds(rows: Iterable[Sequence[Any] | np.ndarray], start: int = 0) -> np.ndarray:
    return np.cumsum([start, *map(len, rows)], dtype=np.int64)


@attrs.frozen(eq=False, kw_only=True)
class Columns:
    """The arrays of a store."""

    input_ids: Ragged
    token_types: np.ndarray | None
    """uint8, as long as the values of ``input_ids``; None: all are 0."""
    target_positions: np.ndarray
    targets: Ragged
    """Its rows are those of ``target_positions`` too."""
    sequence_lengths: Ragged | None
    """An empty row for a sample of one sequence; None: all are."""


class SampleStore:
    """All samples of one source, end to end in a few arrays; a sample is a view into them."""

    def __init__(self, samples: Iterable[Sample] | Columns, about: Mapping[str, Any] | None = None) -> None:
        """Read all samples, in order; :meth:`open` looks at those that a :class:`StoreWriter` wrote."""
        self._columns = samples if isinstance(samples, Columns) else _in_memory(list(samples))
        self.input_ids = self._columns.input_ids
        """The tokens of all samples."""
        self.lengths = self.input_ids.lengths
        """Tokens of each sample, int64."""
        self.about: Mapping[str, Any] = {} if about is None else about
        """What was written beside the samples."""

    @classmethod
    def open(cls, file: Path) -> Self:
        """Look at the samples of a file.

        :raises DataError: it is damaged.
        """
        columns, about = _mapped(file)
        return cls(columns, about)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Sample:
        columns = self._columns
        # Wide enough for every token of the vocabulary, of which a task may put others in place of those that are here.
        input_ids = columns.input_ids[index].astype(np.int32)
        tokens, targets = columns.input_ids.bounds[index : index + 2], columns.targets.bounds[index : index + 2]
        types = columns.token_types
        sequences = columns.sequence_lengths
        return Sample(
            input_ids=input_ids,
            token_types=np.zeros(len(input_ids), np.uint8) if types is None else types[tokens[0] : tokens[1]],
            target_positions=columns.target_positions[targets[0] : targets[1]],
            targets=columns.targets[index],
            lengths=() if sequences is None else tuple(sequences[index].tolist()),
        )

    def batches(self, many: Sequence[np.ndarray]) -> list[Batch]:
        """For each list of ids these samples as they are, packed in this order."""
        columns, ids = self._columns, np.concatenate(many)
        of_batches = np.cumsum([0, *map(len, many)])
        tokens = Rows.of(self.lengths.take(ids))
        token_places = columns.input_ids.places(ids, tokens)
        target_places, starts, counts = ids, tokens.starts, of_batches
        if not columns.targets.all_single:
            targets = Rows.of(columns.targets.lengths.take(ids))
            target_places, starts = columns.targets.places(ids, targets), starts.take(targets.row)
            counts = np.concatenate(([0], targets.ends))[of_batches]
        sequences, sample_ids, sizes = tokens, ids, of_batches
        if columns.sequence_lengths is not None:
            lengths = [self[i].sequence_lengths for i in ids.tolist()]
            sequences = Rows.of(np.array([length for of_sample in lengths for length in of_sample], dtype=np.int64))
            several = np.array([len(of_sample) for of_sample in lengths], dtype=np.int64)
            sample_ids, sizes = ids.repeat(several), np.concatenate(([0], several.cumsum()))[of_batches]
        types = columns.token_types
        return Batch.packed(
            input_ids=columns.input_ids.values.take(token_places),
            token_types=None if types is None else types.take(token_places),
            target_positions=columns.target_positions.take(target_places) + starts,
            targets=columns.targets.values.take(target_places, axis=0),
            sequences=sequences,
            sample_ids=sample_ids,
            sizes=np.diff(sizes).tolist(),
            counts=np.diff(counts).tolist(),
        )

    @property
    def tokens(self) -> int:
        """Tokens of all samples."""
        return len(self.input_ids.values)


def _in_memory(samples: Sequence[Sample]) -> Columns:
    several = any(sample.lengths for sample in samples)
    return Columns(
        input_ids=Ragged.of([sample.input_ids for sample in samples]),
        token_types=joined([sample.token_types for sample in samples], np.uint8),
        target_positions=joined([sample.target_positions for sample in samples]),
        targets=Ragged.of([sample.targets for sample in samples], np.int64),
        sequence_lengths=Ragged.of(_sequence_lengths(samples)) if several else None,
    )


def _sequence_lengths(samples: Iterable[Sample]) -> list[np.ndarray]:
    return [np.array(sample.lengths, np.int32) for sample in samples]


# --- writing ----------------------------------------------------------------------------------------------------------


class _Column:
    """A column on its way into a file: its values and the bounds of its rows, each end to end in a file of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / name
        self.bounds_path = folder / f"{name}.bounds"
        self._values: IO[bytes] = self.path.open("wb")
        self._bounds: IO[bytes] = self.bounds_path.open("wb")
        self._bounds.write(_bounds(()).tobytes())
        self.rows = self.count = self.largest = 0
        self.dtype: np.dtype[Any] | None = None
        self.shape: tuple[int, ...] = ()

    def add(self, rows: Sequence[np.ndarray]) -> None:
        bounds = _bounds(rows, self.count)
        self._bounds.write(bounds[1:].tobytes())
        self.rows += len(rows)
        if bounds[-1] == self.count:
            return  # rows without values may be of any type
        values = np.concatenate([row for row in rows if len(row)])
        self.dtype, self.shape = self.dtype or values.dtype, values.shape[1:] if self.dtype is None else self.shape
        if (values.dtype, values.shape[1:]) != (self.dtype, self.shape):
            raise PluginError(f"task: {self.path.name} of its samples differ in type or shape: {values.dtype}")
        self.count += len(values)
        if self.shape == ():
            self.largest = max(self.largest, int(values.max()))
        self._values.write(np.ascontiguousarray(values).data)

    def close(self) -> None:
        self._values.close()
        self._bounds.close()

    def narrow(self) -> None:
        """Rewrite its values in the smallest unsigned integers that hold them."""
        if self.dtype is None or (narrow := np.min_scalar_type(self.largest)) == self.dtype:
            return
        wide = np.memmap(self.path, self.dtype, "r")
        self.path = self.path.with_name(f"{self.path.name}.narrow")
        with self.path.open("wb") as file:
            for start in range(0, len(wide), _COPIED_AT_ONCE):
                values = wide[start : start + _COPIED_AT_ONCE]
                if values.min() < 0:
                    raise PluginError("task: a sample holds a negative token id")
                file.write(values.astype(narrow).data)
        self.dtype = narrow

    def array(self, fallback: type[np.generic]) -> pa.Array:
        """The column over its files; nothing is read."""
        import pyarrow as pa

        values = pa.from_numpy_dtype(self.dtype or np.dtype(fallback))
        size = int(np.prod(self.shape, dtype=np.int64))
        child = pa.Array.from_buffers(values, self.count * size, [None, _mapped_buffer(self.path)])
        if self.shape:
            child = pa.FixedSizeListArray.from_arrays(child, size)
        buffers = [None, _mapped_buffer(self.bounds_path)]
        return pa.Array.from_buffers(pa.large_list(child.type), self.rows, buffers, children=[child])


def _mapped_buffer(path: Path) -> pa.Buffer:
    import pyarrow as pa

    if not path.stat().st_size:  # nothing can't be mapped
        return pa.py_buffer(b"")
    with pa.memory_map(str(path)) as source:
        return source.read_buffer()


class StoreWriter:
    """Samples on their way into a file, in constant memory."""

    def __init__(self, folder: Path) -> None:
        """Write into a folder that nobody else uses; it is the caller's to remove.

        :raises OSError: the disk is full or fails; so do all methods.
        """
        self._folder = folder
        self._input_ids = _Column(folder, "input_ids")
        self._token_types = _Column(folder, "token_types")
        self._target_positions = _Column(folder, "target_positions")
        self._targets = _Column(folder, "targets")
        self._sequence_lengths = _Column(folder, "sequence_lengths")

    def __len__(self) -> int:
        return self._input_ids.rows

    def add(self, samples: Sequence[Sample]) -> None:
        """Write the next samples.

        :raises PluginError: they don't fit those that were written before.
        """
        self._input_ids.add([sample.input_ids for sample in samples])
        self._token_types.add([sample.token_types for sample in samples])
        self._target_positions.add([sample.target_positions for sample in samples])
        self._targets.add([sample.targets for sample in samples])
        self._sequence_lengths.add(_sequence_lengths(samples))

    def finish(self, about: Mapping[str, Any]) -> Path:
        """The file with all samples, durable, in the folder.

        :param about: plain data that is kept beside them.
        """
        import pyarrow as pa

        file = self._folder / "samples.arrow"
        self.close()
        self._input_ids.narrow()
        columns = {"input_ids": self._input_ids.array(np.uint8)}
        if self._token_types.largest:
            columns["token_types"] = self._token_types.array(np.uint8)
        columns["target_positions"] = self._target_positions.array(np.int32)
        columns["targets"] = self._targets.array(np.int64)
        if self._sequence_lengths.count:
            columns["sequence_lengths"] = self._sequence_lengths.array(np.int32)
        described = {**about, "target_shape": self._targets.shape}
        batch = pa.RecordBatch.from_arrays(
            list(columns.values()), names=list(columns), metadata={_ABOUT: json.dumps(described)}
        )
        options = pa.ipc.IpcWriteOptions(allow_64bit=True)
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, batch.schema, options=options) as writer:
            writer.write_batch(batch)
        with file.open("rb") as written:
            os.fsync(written.fileno())
        return file

    def close(self) -> None:
        """Let go of the files."""
        columns = (self._input_ids, self._token_types, self._target_positions, self._targets, self._sequence_lengths)
        for column in columns:
            column.close()


# --- reading ----------------------------------------------------------------------------------------------------------


def _mapped(file: Path) -> tuple[Columns, Mapping[str, Any]]:
    """The arrays of a file, and what was written beside them.

    :raises DataError: it is damaged, as far as its frame and the bounds of its rows tell.
    """
    import pyarrow as pa

    try:
        with pa.memory_map(str(file)) as source:
            batch = pa.ipc.open_file(source).get_batch(0)
        batch.validate()
        about = json.loads(batch.schema.metadata[_ABOUT])
        columns = _columns(batch, tuple(about.pop("target_shape")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        raise DataError(file, None, f"damaged: {' '.join(str(error).split())}") from error
    _refuse_damaged(file, columns)
    return columns, about


def _columns(batch: pa.RecordBatch, target_shape: tuple[int, ...]) -> Columns:
    there = batch.schema.names
    targets = _ragged(batch.column("targets"), target_shape)
    return Columns(
        input_ids=_ragged(batch.column("input_ids")),
        token_types=_values(batch.column("token_types")) if "token_types" in there else None,
        target_positions=_values(batch.column("target_positions")),
        targets=targets,
        sequence_lengths=_ragged(batch.column("sequence_lengths")) if "sequence_lengths" in there else None,
    )


def _ragged(column: pa.Array, shape: tuple[int, ...] = ()) -> Ragged:
    return Ragged(_values(column, shape), column.offsets.to_numpy(zero_copy_only=True))


def _values(column: pa.Array, shape: tuple[int, ...] = ()) -> np.ndarray:
    flat = column.values.values if shape else column.values
    values: np.ndarray = flat.to_numpy(zero_copy_only=True)
    return values.reshape(-1, *shape) if shape else values


def _refuse_damaged(file: Path, columns: Columns) -> None:
    rows = [columns.input_ids, columns.targets, columns.sequence_lengths or columns.input_ids]
    sound = (
        all(one.bounds[0] == 0 and one.bounds[-1] == len(one.values) and (one.lengths >= 0).all() for one in rows)
        and len({len(one.lengths) for one in rows}) == 1
        and len(columns.target_positions) == len(columns.targets.values)
        and (columns.token_types is None or len(columns.token_types) == len(columns.input_ids.values))
    )
    if not sound:
        raise DataError(file, None, "damaged: its rows don't fit its values")
