"""A run's model for others: the folder that ``transformers`` loads, from weights and from what the run has recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import attrs
import torch

from rtx_core import export
from rtx_core.card import Facts, model_card
from rtx_core.errors import InputError
from rtx_core.inference import recorded, tokenizer_of
from rtx_core.model import native_task

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rtx_core.config import ModelParts
    from rtx_core.folder import RunFolder

Dtype = Literal["float32", "float16", "bfloat16"]
"""What numbers the weights are written as."""


def publish(
    run: RunFolder,
    parts: ModelParts,
    folder: Path,
    *,
    tensors: Mapping[str, torch.Tensor],
    step: int,
    dtype: Dtype = "float32",
    replace: bool = False,
) -> None:
    """Write a new folder with weights, config, tokenizer and card, and what another library needs of it.

    :param tensors: the weights as they were after a step, by public name, tied ones once.
    :param replace: take the place of a folder that is there.
    :raises InputError: what the run has recorded is damaged, or a weight has no finite value in ``dtype``.
    :raises RunError: the disk is full or fails; nothing was written.
    """
    record, architecture = run.read_record(), parts.architecture
    kept = record.get("kept") or {}
    known = recorded(run, architecture)
    outputs = known.outputs
    if parts.task.tuned_field is not None and step != kept.get("step"):
        outputs = attrs.evolve(outputs, thresholds=None)  # they were chosen for other weights
    task = native_task(architecture, parts.head, parts.task_name)
    config = architecture.hf_config(task, outputs) | {"vocab_size": known.vocab_size, "dtype": dtype}
    layout = parts.task.layout(architecture, parts.head, known.max_length)
    facts = Facts(
        record=record,
        settings=run.read_resolved(),
        config=config,
        layout=layout,
        pipeline_tag=parts.task.pipeline_tag,
        encoder_options={} if task is not None else architecture.hf_encoder_options,
        outputs=outputs,
        max_length=known.max_length,
        step=step,
        why=_why(record, step),
        values=_values(run, record, step),
        own_head=task is not None,
    )
    export.write_folder(
        folder,
        tensors=_as(dtype, tensors),
        config=config,
        tokenizer=tokenizer_of(run.tokenizer / "tokenizer.json", known.vocab_size),
        special_tokens=architecture.special_tokens,
        max_length=known.max_length,
        files={"README.md": model_card(facts), **layout.files},
        replace=replace,
    )


def _as(dtype: Dtype, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights in another type; what are no weights (a buffer of whole numbers) stay.

    :raises InputError: a value has none that is near it.
    """
    wanted: torch.dtype = getattr(torch, dtype)
    written = {name: tensor.to(wanted) if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    for name, tensor in written.items():
        if tensor.is_floating_point() and not tensor.isfinite().all() and tensors[name].isfinite().all():
            raise InputError(f"{name} has values beyond the range of {dtype}; bfloat16 has that of float32")
    return written


def _why(record: Mapping[str, Any], step: int) -> str:
    best = record.get("best") or {}
    if best.get("step") == step:
        return f"the best by `{best['monitor']}`"
    if (record.get("kept") or {}).get("step") == step:
        return "the last"
    return "a checkpoint"


def _values(run: RunFolder, record: Mapping[str, Any], step: int) -> dict[str, Any]:
    """What was measured of the weights after a step: every evaluation; the test set's values are of the kept ones."""
    values: dict[str, Any] = {}
    for row in run.rows():
        if row["step"] == step:
            values |= {name: value for name, value in row.items() if name.startswith("eval/")}
    best = record.get("best") or {}
    if best.get("step") == step:
        values.setdefault(best["monitor"], best["value"])  # also where no rows are written
    if (record.get("kept") or {}).get("step") == step:
        values |= record.get("test") or {}
    return values
