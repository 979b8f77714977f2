"""Rules between tables, and what they are about: each yields the key at fault and what is wrong with it."""

from __future__ import annotations

import glob
from typing import TYPE_CHECKING, Any

import attrs

from rtx_core.components import LoadRules
from rtx_core.config.pipeline import Sources, Split, TrainingSettings
from rtx_core.lengths import UNKNOWN_OF_STREAMS, Length

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rtx_core.components import Architecture, Callback, Component, Direction, Loss, Metric, Task
    from rtx_core.config.pipeline import DataSettings
    from rtx_core.config.tree import Keys

_WHOLE_RUN = Length.parse("100%")


def training_rules(training: TrainingSettings) -> Iterator[tuple[Keys, str]]:
    """Lengths that are none, pieces larger than the whole, and two answers to how large a step is."""
    if training.duration.value == 0:
        yield ("training", "duration"), "must be longer than 0"
    if training.duration.unit == "%":
        yield (
            ("training", "duration"),
            f"\"{training.duration}\" is a share of the run, so it can't be the run's length",
        )
    if training.eval_every.value == 0:
        yield ("training", "eval_every"), "must be longer than 0"
    piece, whole = training.micro_batch_size, training.batch_size
    if isinstance(piece, int) and whole is not None and piece > whole:
        yield (
            ("training", "micro_batch_size"),
            f"{piece} is more than the batch_size of {whole}; a step is cut into micro-batches",
        )
    if training.batch_tokens is not None and whole is not None:
        yield (
            ("training", "batch_tokens"),
            f"a step has so many tokens or sequences, but there is a batch_size of {whole} too; keep one of them",
        )
    if training.batch_tokens is not None and training.group_by_length is not None:
        yield ("training", "group_by_length"), "sorts batches of batch_size sequences; with batch_tokens leave it out"


def epoch_rules(training: TrainingSettings, task: Task) -> Iterator[tuple[Keys, str]]:
    """Packing and drawing by label, for tasks whose samples can't be packed or have no label of their own."""
    if training.packing != "none" and not task.packable:
        yield (
            ("training", "packing"),
            "is for tasks that learn from text alone (masked_lm, causal_lm); this one's samples have their own targets",
        )
    if training.sampler == "balanced" and (task.packable or task.target_kind not in (None, "class")):
        targets = "none" if task.packable or task.target_kind is None else _TARGETS[task.target_kind]
        yield (
            ("training", "sampler"),
            f'"balanced" draws by the one label of each sample (sequence_classification); this task\'s have {targets}',
        )


def stream_rules(
    training: TrainingSettings, data: DataSettings, parts: Mapping[Keys, Component]
) -> Iterator[tuple[Keys, str]]:
    """What can't be with training data of which nobody knows how many there are, or which come next.

    :param parts: the other components that may hold lengths, by their tables.
    """
    if data.stream is None:
        return
    for name, held_out in (("split", data.split), ("folds", data.folds)):
        if held_out is not None:
            yield ("data", name), "takes part of all records, but [data.train] is streamed; name the sets apart"
    if getattr(data.train, "limit", None) is not None:
        yield ("data", "train", "limit"), "the shards of a stream come in another order each epoch; leave it out"
    yield from _needs_whole_epochs(training)
    for keys, length in _lengths({("training",): training, **parts}):
        if length.unit in UNKNOWN_OF_STREAMS and (keys != ("training", "eval_every") or data.eval):
            yield keys, f'"{length}" can\'t be known while [data.train] is streamed; write steps or samples'


def _needs_whole_epochs(training: TrainingSettings) -> Iterator[tuple[Keys, str]]:
    """Settings that look at all samples of an epoch."""
    for name, written in (
        ("batch_tokens", training.batch_tokens is not None),
        ("group_by_length", training.group_by_length is not None),
        ("sampler", training.sampler != "shuffle"),
        ("micro_batch_size", training.micro_batch_size == "auto"),
    ):
        if written:
            message = "looks at all samples of an epoch, but [data.train] is streamed"
            yield ("training", name), message


def _lengths(parts: Mapping[Keys, Any]) -> Iterator[tuple[Keys, Length]]:
    for keys, part in parts.items():
        for field in attrs.fields(type(part)):
            if isinstance(value := getattr(part, field.name), Length):
                yield (*keys, field.name), value


def sampler_rules(training: TrainingSettings, data: DataSettings) -> Iterator[tuple[Keys, str]]:
    """Two answers to what an epoch draws: by label and by source."""
    if training.sampler == "balanced" and isinstance(data.train, Sources) and data.train.weights is not None:
        yield (
            ("training", "sampler"),
            '"balanced" draws by label, but the sources of data.train have weights; keep one of the two',
        )


def warmup_rules(warmup: Length, duration: Length) -> Iterator[tuple[Keys, str]]:
    """A warm-up longer than the run, as far as that can be told from the file."""
    whole = _WHOLE_RUN if warmup.unit == "%" else duration
    if warmup.unit == whole.unit and warmup.value > whole.value:
        yield ("scheduler", "warmup"), f"a warm-up of {warmup} is longer than the run of {duration}"


def length_rules(task: Task, architecture: Architecture) -> Iterator[tuple[Keys, str]]:
    """Sequences longer than the architecture has positions for."""
    wanted, usable = task.longest, architecture.usable_positions
    if wanted is not None and usable is not None and wanted > usable:
        yield ("task", "max_length"), f"{wanted} tokens are more than the architecture's {usable} positions"


def loading_rules(architecture: Architecture) -> Iterator[tuple[Keys, str]]:
    """Rules about weights where there are none."""
    if architecture.from_pretrained is None and architecture.load != LoadRules():
        yield ("architecture", "load"), "is about weights that are loaded; without from_pretrained it would do nothing"


def attention_rules(task: Task, architecture: Architecture) -> Iterator[tuple[Keys, str]]:
    """What a token may see: only those before it where the next is predicted, else all."""
    if task.causal and not architecture.causal:
        yield (
            ("architecture",),
            "lets a token see those after it; this task predicts the next one and needs a causal one",
        )
    if architecture.causal and not task.causal:
        yield ("architecture",), "lets a token see only those before it; this task needs to see the whole text"


def tuning_rules(task: Task, evals: Sequence[str]) -> Iterator[tuple[Keys, str]]:
    """What is chosen on evaluation data needs some."""
    if task.tuned_field is not None and not evals:
        yield (
            ("task", task.tuned_field),
            "is tuned on the evaluation data, and there is neither a [data.eval] nor a split with a share for it",
        )


def pair_rules(training: TrainingSettings, loss: Loss) -> Iterator[tuple[Keys, str]]:
    """A setting about pairs in the batch for a loss that makes none, and batches of which each would have others."""
    if training.no_duplicates_in_batch and not loss.whole_step:
        yield (
            ("training", "no_duplicates_in_batch"),
            "is for a loss over pairs in the batch (in_batch_contrastive); with this one it would do nothing",
        )
    if training.batch_tokens is not None and loss.whole_step:
        yield (
            ("training", "batch_tokens"),
            "this loss compares the samples of a step, which should be as many in each; write batch_size instead",
        )


def held_out_rules(data: DataSettings) -> Iterator[tuple[Keys, str]]:
    """What ``split`` and ``folds`` take out of the training data."""
    if data.split is not None:
        yield from _split_rules(data, data.split)
    if data.folds is not None:
        yield from _fold_rules(data)


def _fold_rules(data: DataSettings) -> Iterator[tuple[Keys, str]]:
    """Cross-validation beside an evaluation set: two answers to what is evaluated."""
    if data.eval:
        yield ("data", "folds"), "each fold is the evaluation set of one run, but there is a [data.eval] too; keep one"
    if data.split is not None and data.split.eval:
        yield (
            ("data", "folds"),
            "each fold is the evaluation set of one run, but split takes one too; keep one",
        )


def _split_rules(data: DataSettings, split: Split) -> Iterator[tuple[Keys, str]]:
    """Shares that take nothing or everything, and sets that have a table too."""
    for name, share, table in (("eval", split.eval, data.eval), ("test", split.test, data.test)):
        if share and table:
            yield ("data", "split", name), f"there is a [data.{name}] too; keep one of the two"
    if split.eval + split.test >= 1:
        yield ("data", "split"), f"takes {split.eval} and {split.test} of the records, which leaves none to train on"
    if not split.eval and not split.test:
        yield ("data", "split"), "takes nothing; give eval or test a share, as split = { eval = 0.1 }"


_TARGETS = {
    "class": "one class each",
    "labels": "any number of labels each",
    "values": "numbers",
    "span": "spans of a text",
    "embedding": "texts that belong together",
}
"""The kinds of targets in words."""


def target_rules(task: Task, parts: Mapping[Keys, Loss | Metric]) -> Iterator[tuple[Keys, str]]:
    """Losses and metrics, by their tables, for targets of another kind than the task's, or for spans of them."""
    kind = task.target_kind
    for keys, part in parts.items():
        if kind is not None and part.target_kinds and kind not in part.target_kinds:
            wanted = " or ".join(_TARGETS[other] for other in part.target_kinds)
            yield keys, f"takes targets that are {wanted}; this task's are {_TARGETS[kind]}"
        elif getattr(part, "needs_scheme", False) and task.span_scheme is None:
            yield keys, "counts the spans that tags make up, but this task has no scheme that says how (IOB2, IOBES)"


def metric_rules(metrics: Mapping[str, Metric]) -> Iterator[tuple[Keys, str]]:
    """Two metrics that would write the same value."""
    owner = {"loss": "the loss"}
    for table, metric in metrics.items():
        for name in metric.names():
            if name in owner:
                yield ("metrics", table), f'gives "{name}", as does {owner[name]}'
            owner.setdefault(name, f"[metrics.{table}]")


def once_rules(callbacks: Mapping[str, Callback]) -> Iterator[tuple[Keys, str]]:
    """A second callback of a type of which a run has one."""
    owner: dict[type[Callback], str] = {}
    for table, callback in callbacks.items():
        first = owner.setdefault(type(callback), table)
        if callback.once and first != table:
            yield (
                ("callbacks", table),
                f"[callbacks.{first}] is of the same type, of which a run has one; keep one of the two",
            )


def watched_rules(
    callbacks: Mapping[str, Callback], values: Mapping[str, Direction | None]
) -> Iterator[tuple[Keys, str]]:
    """Callbacks that go by a value of the evaluations where there are none, or by one that none produces."""
    for table, callback in callbacks.items():
        if callback.monitors and not values:
            yield ("callbacks", table), "goes by an evaluation, and there is neither a [data.eval] nor a split"
            continue
        for field in callback.monitors:
            if (monitor := getattr(callback, field)) is not None:
                yield from monitor_rules(("callbacks", table, field), monitor, values)


def monitor_rules(keys: Keys, monitor: str, values: Mapping[str, Direction | None]) -> Iterator[tuple[Keys, str]]:
    """A monitor, written at these keys, that no evaluation produces."""
    if not values:
        yield keys, f'nothing produces "{monitor}": there is neither a [data.eval] nor a split'
    elif monitor not in values:
        usable = ", ".join(name for name, way in values.items() if way is not None)
        yield keys, f'no evaluation produces "{monitor}"; there are {usable}'
    elif values[monitor] is None:
        yield keys, f'"{monitor}" is not a single number that gets better one way, so it can\'t be the monitor'


def missing_files(data: DataSettings) -> Iterator[tuple[Keys, str]]:
    """Data files that aren't there."""
    for keys, path in data.files():
        problem = _missing(path)
        if problem is not None:
            yield keys, problem


def _missing(path: Path) -> str | None:
    try:
        return _why_not_read(path)
    except OSError as error:  # the name is too long, or a folder above it may not be entered
        return f"{path}: {error.strerror}"


def _why_not_read(path: Path) -> str | None:
    if glob.has_magic(str(path)) and not path.exists():
        found = any(True for _ in glob.iglob(str(path), recursive=True))  # noqa: PTH207 - the pattern is absolute
        return None if found else f"no file matches {path}"
    if path.is_dir():
        return f'{path} is a folder; name its files, as "{path.name}/*"'
    if not path.exists():
        return f"no such file: {path}"
    return None if path.is_file() else f"{path} is no regular file; it is read more than once, which a pipe can't be"
