"""Rules between tables, and what they are about: each yields the key at fault and what is wrong with it."""

from __future__ import annotations

import glob
from typing import TYPE_CHECKING

from rtx_core.config.pipeline import Split, TrainingSettings
from rtx_core.lengths import Length

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rtx_core.components import Architecture, Direction, Loss, Metric, Task
    from rtx_core.config.pipeline import DataSettings
    from rtx_core.config.tree import Keys

_WHOLE_RUN = Length.parse("100%")


def training_rules(training: TrainingSettings) -> Iterator[tuple[Keys, str]]:
    """Lengths that are none, and pieces larger than the whole."""
    if training.duration.value == 0:
        yield ("training", "duration"), "must be longer than 0"
    if training.duration.unit == "%":
        yield (
            ("training", "duration"),
            f"\"{training.duration}\" is a share of the run, so it can't be the run's length",
        )
    if training.eval_every.value == 0:
        yield ("training", "eval_every"), "must be longer than 0"
    if training.micro_batch_size is not None and training.micro_batch_size > training.batch_size:
        sizes = f"{training.micro_batch_size} is more than the batch_size of {training.batch_size}"
        yield ("training", "micro_batch_size"), f"{sizes}; a step is cut into micro-batches"


def warmup_rules(warmup: Length, duration: Length) -> Iterator[tuple[Keys, str]]:
    """A warm-up longer than the run, as far as that can be told from the file."""
    whole = _WHOLE_RUN if warmup.unit == "%" else duration
    if warmup.unit == whole.unit and warmup.value > whole.value:
        yield ("scheduler", "warmup"), f"a warm-up of {warmup} is longer than the run of {duration}"


def length_rules(task: Task, architecture: Architecture) -> Iterator[tuple[Keys, str]]:
    """Sequences longer than the architecture has positions for."""
    wanted, usable = task.max_length, architecture.usable_positions
    if wanted is not None and usable is not None and wanted > usable:
        yield ("task", "max_length"), f"{wanted} tokens are more than the architecture's {usable} positions"


def attention_rules(task: Task, architecture: Architecture) -> Iterator[tuple[Keys, str]]:
    """What a token may see: only those before it where the next is predicted, else all."""
    if task.causal and not architecture.causal:
        yield (
            ("architecture",),
            "lets a token see those after it; this task predicts the next one and needs a causal one",
        )


def pair_rules(training: TrainingSettings, loss: Loss) -> Iterator[tuple[Keys, str]]:
    """A setting about pairs in the batch for a loss that makes none."""
    if training.no_duplicates_in_batch and not loss.whole_step:
        yield (
            ("training", "no_duplicates_in_batch"),
            "is for a loss over pairs in the batch (in_batch_contrastive); with this one it would do nothing",
        )


def split_rules(data: DataSettings) -> Iterator[tuple[Keys, str]]:
    """Shares that take nothing or everything, and sets that have a table too."""
    split = data.split or Split()
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
    """Losses and metrics, by their tables, for targets of another kind than the task's."""
    kind = task.target_kind
    for keys, part in parts.items():
        if kind is not None and part.target_kinds and kind not in part.target_kinds:
            wanted = " or ".join(_TARGETS[other] for other in part.target_kinds)
            yield keys, f"takes targets that are {wanted}; this task's are {_TARGETS[kind]}"


def metric_rules(metrics: Mapping[str, Metric]) -> Iterator[tuple[Keys, str]]:
    """Two metrics that would write the same value."""
    owner = {"loss": "the loss"}
    for table, metric in metrics.items():
        for name in metric.names():
            if name in owner:
                yield ("metrics", table), f'gives "{name}", as does {owner[name]}'
            owner.setdefault(name, f"[metrics.{table}]")


def monitor_rules(monitor: str, values: Mapping[str, Direction | None]) -> Iterator[tuple[Keys, str]]:
    """A monitor that no evaluation produces."""
    keys = ("training", "monitor")
    if not values:
        yield keys, f'nothing produces "{monitor}": there is neither a [data.eval] nor a split'
    elif monitor not in values:
        usable = ", ".join(name for name, way in values.items() if way is not None)
        yield keys, f'no evaluation produces "{monitor}"; there are {usable}'
    elif values[monitor] is None:
        yield keys, f'"{monitor}" is not a single number that gets better one way, so it can\'t be the monitor'


def missing_files(data: DataSettings) -> Iterator[tuple[Keys, str]]:
    """Data files that aren't there."""
    for keys, source in data.by_place().items():
        for index, path in enumerate(getattr(source, "files", ())):
            problem = _missing(path)
            if problem is not None:
                yield (*keys, "files", index), problem


def _missing(path: Path) -> str | None:
    if glob.has_magic(str(path)) and not path.exists():
        found = any(True for _ in glob.iglob(str(path), recursive=True))  # noqa: PTH207 - the pattern is absolute
        return None if found else f"no file matches {path}"
    if path.is_dir():
        return f'{path} is a folder; name its files, as "{path.name}/*"'
    return None if path.exists() else f"no such file: {path}"
