"""The model card: ``README.md`` of the kept model, from the run's record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rtx_core.build import Training
    from rtx_core.components import Outputs
    from rtx_core.lengths import Horizon


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
        _data_line(prepared.horizon),
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
        *_thresholds(prepared.outputs),
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


def _thresholds(outputs: Outputs) -> Iterator[str]:
    """From where a label is predicted, which ``transformers`` has no place for: it takes 0.5, or the likeliest."""
    for label, threshold in zip(outputs.labels or (), outputs.thresholds or (), strict=False):
        yield f"- `{label}` is predicted above a probability of {threshold!r}; transformers doesn't know this threshold"


def _data_line(horizon: Horizon) -> str:
    if horizon.streamed:
        return "- streamed samples"
    return f"- {horizon.samples_per_epoch:,} samples, {horizon.tokens_per_epoch:,} tokens an epoch"
