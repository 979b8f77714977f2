"""A trained model read back from its run's folder, to answer for new records."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, cast

import attrs
import torch

from rtx_core import weights
from rtx_core.batches import cut_by_length
from rtx_core.components import Outputs
from rtx_core.config import load_parts
from rtx_core.encoding import rows_needed
from rtx_core.errors import DataError, InputError
from rtx_core.folder import RunFolder
from rtx_core.model import Model, assemble
from rtx_core.registry import built
from rtx_core.samples import Batch, Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import tokenizers

    from rtx_core.components import Architecture, Task, TaskPart
    from rtx_core.config import ModelParts
    from rtx_core.registry import Registry
    from rtx_core.samples import Record

CHUNK = 1024
"""Records that are read before any is answered, so that texts of equal length can be computed together."""
_BATCH = 32
_TOKENS = 16_384
"""Tokens of one forward pass, unless a single sequence is longer."""


@attrs.frozen(kw_only=True, eq=False)
class Trained:
    """The kept model of a run, with the task and the labels that it was trained for."""

    settings: Task
    """The task as the pipeline had it."""
    task: TaskPart
    model: Model
    outputs: Outputs
    max_length: int
    """Tokens of the longest sequence that is kept."""
    device: torch.device

    def answers(self, records: Iterable[Record], *, scores: bool = False) -> Iterator[dict[str, Any]]:
        """The columns that each record gets, in order, in constant memory.

        :raises DataError: a record can't be read.
        """
        for answer in self.attempts(records, scores=scores):
            if isinstance(answer, DataError):
                raise answer
            yield answer

    def attempts(self, records: Iterable[Record], *, scores: bool = False) -> Iterator[dict[str, Any] | DataError]:
        """The same, with the error in place of the answer to a record that the task can't read."""
        self.task.answers((), (), scores=scores)  # a task without answers says so before it is given anything
        iterator = iter(records)
        while chunk := tuple(itertools.islice(iterator, CHUNK)):
            samples = self._samples(chunk)
            readable = [record for record, sample in zip(chunk, samples, strict=True) if isinstance(sample, Sample)]
            logits = self._logits([sample for sample in samples if isinstance(sample, Sample)])
            answers = iter(self.task.answers(readable, logits, scores=scores))
            yield from (next(answers) if isinstance(sample, Sample) else sample for sample in samples)

    def _samples(self, chunk: Sequence[Record]) -> list[Sample | DataError]:
        try:
            return list(self.task.samples(chunk, targets=False))
        except DataError:  # of one of them: the others are read without it
            return [self._sample(record) for record in chunk]

    def _sample(self, record: Record) -> Sample | DataError:
        try:
            (sample,) = self.task.samples([record], targets=False)
        except DataError as error:
            return error
        return sample

    def logits(self, records: Iterable[Record]) -> list[torch.Tensor]:
        """Logits ``[N, K]`` of each record's targets, on the host.

        :raises DataError: a record can't be read.
        """
        return self._logits(list(self.task.samples(records, targets=False)))

    def _logits(self, samples: Sequence[Sample]) -> list[torch.Tensor]:
        pieces, owners = [], []
        for number, sample in enumerate(samples):
            for piece in _pieces(sample):
                pieces.append(piece)
                owners.append(number)
        results: list[list[torch.Tensor]] = [[] for _ in samples]
        done: list[torch.Tensor] = [torch.empty(0)] * len(pieces)
        with torch.inference_mode():
            for ids in cut_by_length([len(piece.input_ids) for piece in pieces], _BATCH):
                chosen = [pieces[i] for i in ids]
                logits = self.model(Batch.of(chosen, ids.tolist()).to(self.device)).cpu()
                for i, part in zip(ids, logits.split([len(piece.target_positions) for piece in chosen]), strict=True):
                    done[i] = part
        for number, part in zip(owners, done, strict=True):
            results[number].append(part)
        return [torch.cat(parts) for parts in results]


def _pieces(sample: Sample) -> Iterator[Sample]:
    """The sample in parts of so many tokens that a text of any length is answered in constant memory.

    Only the windows of a long text are parted from each other: they are sequences of their own.
    """
    if len(sample.input_ids) <= _TOKENS or len(sample.lengths) <= 1:
        yield sample
        return
    start = stop = 0
    lengths: list[int] = []
    for length in (*sample.lengths, None):
        if lengths and (length is None or stop - start + length > _TOKENS):
            inside = (sample.target_positions >= start) & (sample.target_positions < stop)
            yield Sample(
                input_ids=sample.input_ids[start:stop],
                token_types=sample.token_types[start:stop],
                target_positions=sample.target_positions[inside] - start,
                targets=sample.targets[inside],
                lengths=tuple(lengths),
            )
            start, lengths = stop, []
        if length is not None:
            lengths.append(length)
            stop += length


def load(
    folder: Path,
    registry: Registry,
    *,
    device: torch.device | None = None,
    threshold: float | Mapping[str, float] | None = None,
) -> Trained:
    """Read the kept model of a run.

    :param device: where it computes; None: the CPU.
    :param threshold: in place of the task's own: for every label, or by name.
    :raises InputError: the folder is no run's, or the run has no kept model yet, or its task has no threshold.
    """
    run = finished(folder)
    parts = load_parts(run.resolved, registry=registry)
    if threshold is not None:
        parts = attrs.evolve(parts, task=_with_threshold(parts.task, parts.task_name, threshold))
    return restored(run, parts, device=device)


def finished(folder: Path) -> RunFolder:
    """The folder of a run that has kept a model.

    :raises InputError: it is no run's, or the run has no kept model yet.
    """
    run = of_run(folder)
    if not (run.model / "model.safetensors").is_file():
        status = run.read_record().get("status")
        raise InputError(f"{folder} has no kept model yet (status: {status}); finish the run first")
    return run


def of_run(folder: Path) -> RunFolder:
    """The folder of a run, however far it came.

    :raises InputError: it is no run's.
    """
    run = RunFolder(folder.absolute())
    if not run.read_record():
        raise InputError(f"{folder} is no run's folder: it has no run.json")
    return run


def restored(run: RunFolder, parts: ModelParts, *, device: torch.device | None = None) -> Trained:
    """The kept model of a finished run, put together from these parts.

    :param device: where it computes; None: the CPU.
    :raises InputError: the parts don't fit the model, or a file is damaged.
    """
    device = device or torch.device("cpu")
    known = recorded(run, parts.architecture)
    outputs, vocab_size, max_length = known.outputs, known.vocab_size, known.max_length
    tokenizer = tokenizer_of(run.model / "tokenizer.json", vocab_size)
    special_tokens = parts.architecture.special_tokens
    task = built(
        "task",
        "",
        parts.task.build,
        tokenizer,
        outputs,
        max_length=max_length,
        special_tokens=special_tokens,
    )
    model = assemble(
        parts.architecture,
        parts.head,
        task=parts.task_name,
        outputs=outputs.size,
        vocab_size=vocab_size,
        seed=0,
    )
    weights.load_exactly(run.model, model.tensors())
    model.to(device).eval()
    return Trained(settings=parts.task, task=task, model=model, outputs=outputs, max_length=max_length, device=device)


@attrs.frozen(kw_only=True)
class Recorded:
    """What run.json says of the model."""

    outputs: Outputs
    vocab_size: int
    """Rows of the token table."""
    max_length: int
    """Tokens of the longest sequence that is kept."""


def recorded(run: RunFolder, architecture: Architecture) -> Recorded:
    """Read what a run has found out about its model.

    :raises InputError: it is damaged, or doesn't fit the architecture.
    """
    record = run.read_record()
    return Recorded(
        outputs=_outputs(record.get("outputs"), run.record),
        vocab_size=_whole_number(record.get("vocab_size"), f"{run.record}: vocab_size"),
        max_length=_max_length(record, architecture.usable_positions, run.record),
    )


def _with_threshold(task: Task, name: str, threshold: float | Mapping[str, float]) -> Task:
    """The task with another threshold.

    :raises InputError: it has none, or not this one.
    """
    if "threshold" not in attrs.fields_dict(type(task)):
        raise InputError(f"threshold: a model of the task {name} answers without one")
    try:
        changed: Task = attrs.evolve(cast("Any", task), threshold=threshold)
    except ValueError as error:
        raise InputError(f"threshold: {error}") from error
    for field, problem in changed.check():
        raise InputError(f"{field}: {problem}")
    return changed


# --- what run.json and tokenizer.json say -----------------------------------------------------------------------------


_LISTS = {"labels": str, "counts": int, "center": float, "scale": float, "thresholds": float}
"""The entries of outputs that have a value for each."""
_WORDS = {str: "texts", int: "whole numbers", float: "numbers with a decimal point"}


def _outputs(found: object, file: Path) -> Outputs:
    """The outputs as run.json has them; JSON has lists where they have tuples.

    :raises InputError: they are damaged.
    """
    place = f"{file}: outputs"
    if not isinstance(found, dict) or not found.keys() <= {field.name for field in attrs.fields(Outputs)}:
        raise InputError(f"{place}: expected what rtx wrote there, got {found!r}")
    size = 0 if found.get("size") == 0 else _whole_number(found.get("size"), f"{place}.size")
    kept: dict[str, Any] = {}
    scheme = found.get("scheme")
    if scheme is not None and not isinstance(scheme, str):
        raise InputError(f"{place}.scheme: expected a text, got {scheme!r}")
    for name, of_type in _LISTS.items():
        values = found.get(name)
        if values is None:
            continue
        if not isinstance(values, list) or not all(isinstance(value, of_type) for value in values):
            raise InputError(f"{place}.{name}: expected a list of {_WORDS[of_type]}, got {values!r}")
        if len(values) != size > 1:  # one output may tell two classes apart
            raise InputError(f"{place}.{name}: has {len(values)} entries, but the model has {size} outputs")
        kept[name] = tuple(values)
    if not all(0.0 < threshold < 1.0 for threshold in kept.get("thresholds", ())):
        raise InputError(f"{place}.thresholds: expected numbers between 0 and 1, got {found['thresholds']!r}")
    records = found.get("records")
    if records is not None:
        kept["records"] = _whole_number(records, f"{place}.records")
    return Outputs(size=size, scheme=scheme, **kept)


def _max_length(record: Mapping[str, Any], usable: int | None, file: Path) -> int:
    length = _whole_number(record.get("max_length"), f"{file}: max_length")
    if usable is not None and length > usable:
        raise InputError(f"{file}: max_length: {length}, but the architecture has only {usable} usable positions")
    return length


def _whole_number(value: object, place: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{place}: expected a whole number from 1, got {value!r}")
    return value


def tokenizer_of(file: Path, vocab_size: int) -> tokenizers.Tokenizer:
    """The tokenizer of a run or of its kept model.

    :raises InputError: it is missing, damaged, or another model's.
    """
    import tokenizers

    if not file.is_file():
        raise InputError(f"there is no {file}")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises Exception itself
        raise InputError(f"{file} can't be read: {error}") from error
    tokens = rows_needed(tokenizer)
    if tokens > vocab_size:
        raise InputError(f"{file} has {tokens} tokens, but the model's table has only {vocab_size} rows")
    return tokenizer
