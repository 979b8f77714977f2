"""A trained model read back from its run's folder, to answer for new records."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import attrs
import torch

from rtx_core import weights
from rtx_core.components import Outputs
from rtx_core.config import load_parts
from rtx_core.errors import InputError
from rtx_core.folder import RunFolder
from rtx_core.model import Model, make_model
from rtx_core.order import cut_by_length
from rtx_core.samples import Batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    import tokenizers

    from rtx_core.components import Task, TaskPart
    from rtx_core.registry import Registry
    from rtx_core.samples import Record

_CHUNK = 1024
_BATCH = 32


@attrs.frozen(kw_only=True, eq=False)
class Trained:
    """The kept model of a run, with the task and the labels that it was trained for."""

    settings: Task
    """The task as the pipeline had it."""
    task: TaskPart
    model: Model
    outputs: Outputs

    def answers(self, records: Iterable[Record], *, scores: bool = False) -> Iterator[dict[str, Any]]:
        """The columns that each record gets, in order, in constant memory."""
        iterator = iter(records)
        while chunk := tuple(itertools.islice(iterator, _CHUNK)):
            yield from self.task.answers(chunk, self.logits(chunk), scores=scores)

    def logits(self, records: Iterable[Record]) -> list[torch.Tensor]:
        """Logits ``[N, K]`` of each record's targets, on the host."""
        samples = list(self.task.samples(records, targets=False))
        results: list[torch.Tensor] = [torch.empty(0)] * len(samples)
        with torch.inference_mode():
            for ids in cut_by_length([len(sample.input_ids) for sample in samples], _BATCH):
                chosen = [samples[i] for i in ids]
                logits = self.model(Batch.of(chosen, ids.tolist()))
                parts = logits.split([len(sample.target_positions) for sample in chosen])
                for i, part in zip(ids, parts, strict=True):
                    results[i] = part
        return results


def load(folder: Path, registry: Registry) -> Trained:
    """Read the kept model of a run.

    :raises InputError: the folder is no run's, or the run has no kept model yet.
    """
    run = RunFolder(folder.absolute())
    record = run.read_record()
    if not record:
        raise InputError(f"{folder} is no run's folder: it has no run.json")
    if not (run.model / "model.safetensors").is_file():
        raise InputError(f"{folder} has no kept model yet (status: {record.get('status')}); finish the run first")
    parts = load_parts(run.resolved, registry=registry)
    tokenizer = _tokenizer(run.model)
    outputs = _outputs(record["outputs"])
    model = make_model(
        parts.architecture,
        parts.head,
        task=parts.task_name,
        outputs=outputs.size,
        vocab_size=record["vocab_size"],
        seed=0,
    )
    weights.load_exactly(run.model, model.tensors())
    model.eval()
    return Trained(
        settings=parts.task,
        task=parts.task.build(
            tokenizer,
            outputs,
            max_length=record["max_length"],
            special_tokens=parts.architecture.special_tokens,
        ),
        model=model,
        outputs=outputs,
    )


def _outputs(record: Mapping[str, Any]) -> Outputs:
    """The outputs as run.json has them; JSON has lists where they have tuples."""
    kept: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}
    return Outputs(**kept)


def _tokenizer(folder: Path) -> tokenizers.Tokenizer:
    import tokenizers

    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
