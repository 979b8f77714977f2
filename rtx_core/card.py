"""The model card: ``README.md`` of the kept model, from the run's record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rtx_core.build import Training
    from rtx_core.components import Outputs


def model_card(training: Training, record: Mapping[str, Any]) -> str:
    """Markdown with the data, the metrics, the limits and how the model was made."""
    run, prepared = training.run, training.prepared
    pipeline = run.pipeline
    labels = prepared.outputs.labels
    best = record.get("best")
    lines = [
        "---",
        "library_name: transformers",
        "tags: [rtx]",
        "---",
        f"# {pipeline.run.name}",
        "",
        (
            f"A `{pipeline.chosen['architecture'].name}` for `{pipeline.chosen['task'].name}`, "
            f"trained with rtx {record['packages']['rtx-transformers']}."
        ),
        "",
        "## Training",
        f"- {prepared.cutting.samples:,} samples, {prepared.horizon.tokens_per_epoch:,} tokens an epoch",
        f"- {run.step:,} steps, {run.epoch:g} epochs; seed {pipeline.run.seed}",
        f"- optimizer `{pipeline.chosen['optimizer'].name}`, peak rate {pipeline.optimizer.lr:g}",
        "- the pipeline is in the run's folder, every value that was used in `resolved.toml`",
        "",
        "## Evaluation",
        *([f"- kept: the best by `{best['monitor']}`: {best['value']:.6g} at step {best['step']}"] if best else []),
        *(["- kept: the last step; nothing was evaluated"] if not best else []),
        *(f"- `{name}`: {value:.6g}" for name, value in (record.get("test") or {}).items() if isinstance(value, float)),
        "",
        "## Limits",
        f"- texts are cut at {prepared.max_length} tokens",
        *([f"- it knows these labels and no other: {', '.join(labels)}"] if labels else []),
        *_units(prepared.outputs),
        "- it was measured on the data above alone",
        "",
    ]
    return "\n".join(lines)


def _units(outputs: Outputs) -> Iterator[str]:
    """How what ``transformers`` gives becomes what the data had: rtx turns it back itself."""
    if outputs.center is None or outputs.scale is None:
        return
    for number, (center, scale) in enumerate(zip(outputs.center, outputs.scale, strict=True)):
        yield f"- output {number} is standardised: the value is {scale!r} × the logit + {center!r}"
