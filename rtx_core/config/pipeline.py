"""The checked pipeline: one attrs class for each table that is not a plugin's, and the object that holds them all."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from rtx_core import components
from rtx_core.config.shapes import shown
from rtx_core.lengths import Length
from rtx_core.packing import Packing

if TYPE_CHECKING:
    from rtx_core.config.tree import Keys, Origin
    from rtx_core.registry import Chosen
    from rtx_core.samples import Record

_NAME = re.compile(r"[^/\\\0]*[^/\\\0. ]")
_DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d+)?")
_positive = attrs.validators.and_(attrs.validators.ge(1), attrs.validators.le(2**31))
# More than any machine has: OpenMP dies of some thousands of threads, and a million processes take the machine along.
_at_most_1024 = attrs.validators.le(1024)
"""No machine has room for more; arithmetic with such integers would overflow instead."""


def _positive_or_auto(instance: object, attribute: attrs.Attribute[Any], value: int | str | None) -> None:
    """A validator: a number of samples, or ``auto``, which the type allows.

    :raises ValueError: it is a number out of range.
    """
    if isinstance(value, int):
        _positive(instance, attribute, value)


def _file_name(_instance: object, _attribute: attrs.Attribute[str], value: str) -> None:
    """A validator: the text can be the name of a folder on every system.

    :raises ValueError: it can't.
    """
    if not _NAME.fullmatch(value):
        raise ValueError(f"must be a name without / or \\, not ending in a dot or space, got {shown(value)}")


def _device(_instance: object, _attribute: attrs.Attribute[str], value: str) -> None:
    """A validator: the text is a device that torch may have here.

    :raises ValueError: it isn't.
    """
    if not _DEVICE.fullmatch(value):
        raise ValueError(f"must be auto, cpu, cuda, cuda:N or mps, got {shown(value)}")


@attrs.frozen(kw_only=True)
class RunSettings:
    """``[run]``: what the run is called, where it computes, and its chance."""

    name: str = attrs.field(validator=_file_name)
    """Name of the run and of its folder; the file's name without ``.toml`` unless written."""
    seed: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    """All chance of the run is derived from it."""
    device: str = attrs.field(default="auto", validator=_device)
    """``auto``, ``cpu``, ``cuda``, ``cuda:1`` or ``mps``."""


@attrs.frozen(kw_only=True)
class Split:
    """``[data] split``: parts taken out of the training data, a pure function of the records and the seed."""

    eval: float = attrs.field(default=0.0, validator=[attrs.validators.ge(0.0), attrs.validators.lt(1.0)])
    """Share of the records for evaluation."""
    test: float = attrs.field(default=0.0, validator=[attrs.validators.ge(0.0), attrs.validators.lt(1.0)])
    """Share of the records for the test set."""
    stratify: bool = False
    """Take the share of each label."""
    seed: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(0)))
    """Which records are taken depends on it; None: the run's seed."""


@attrs.frozen(kw_only=True)
class Folds:
    """``[data] folds`` and ``fold``: each record is evaluated by a model that has not seen it."""

    count: int
    """K, the parts that the training records are cut into."""
    index: int | None
    """The part that this run holds out for its evaluation, from 1; None: ``run`` makes a run for each."""


Level = Literal["error", "warning", "note", "off"]
"""How loudly something is told: an error ends the command before the model is built."""


@attrs.frozen(kw_only=True)
class Lint:
    """``[data] lint``: how loudly each oddity of the data is told."""

    empty: Level = "warning"
    """Records without any text."""
    duplicates: Level = "note"
    """Records of one set with equal texts."""
    contradictions: Level = "warning"
    """Equal texts in the training data with different labels."""
    leaks: Level = "warning"
    """Texts of an evaluation or test set that are in the training data too."""
    balance: Level = "note"
    """A label that is at least twenty times as frequent as another."""
    unseen_labels: Level = "warning"
    """Labels that occur in the training data alone, or in an evaluation set alone."""
    cut: Level = "warning"
    """More than a twentieth of the samples fill ``max_length``, so that much of their text may be cut off."""
    unknown_tokens: Level = "warning"
    """More than a hundredth of the tokens are the unknown one: the tokenizer may be another language's."""


@attrs.frozen(kw_only=True)
class Sources(components.Data):
    """Several sources of training records, ``train = [{ …, weight = 1 }, { …, weight = 3 }]``."""

    sources: tuple[components.Data, ...]
    """In the order of the file."""
    weights: tuple[float, ...] | None = None
    """How much of an epoch is of each source, in relation to the others; None takes all of each in every epoch."""

    def records(self) -> Iterator[Record]:
        """Those of the first source, then those of the next."""
        return itertools.chain.from_iterable(source.records() for source in self.sources)

    def fingerprint(self) -> str:
        """Sha256 of the fingerprints."""
        return hashlib.sha256("".join(source.fingerprint() for source in self.sources).encode()).hexdigest()


@attrs.frozen(kw_only=True)
class Stream:
    """``[data.train] streaming = true``: the records are read and encoded as they are needed, epoch after epoch."""

    shuffle_window: int
    """Records that are shuffled together."""


@attrs.frozen(kw_only=True)
class DataSettings:
    """``[data]``: where the records of training, evaluation and test come from."""

    train: components.Data
    """The training records; :class:`Sources` where there are several."""
    eval: Mapping[str, components.Data] = attrs.field(factory=dict)
    """Evaluation sets by name; the name is empty for a single ``[data.eval]``."""
    test: components.Data | None = None
    """Read once, at the end, by the model that is kept."""
    split: Split | None = None
    """Take evaluation and test records out of the training data."""
    folds: Folds | None = None
    """Cut the training data into parts, each of which one run holds out."""
    lint: Lint = attrs.field(factory=Lint)
    """How loudly each oddity of the data is told."""
    stream: Stream | None = None
    """How the training records are streamed; None: all are encoded before the first step."""

    @property
    def eval_names(self) -> list[str]:
        """The names of the evaluation sets; the name is empty for a single one, be it read, split off or held out."""
        held_out = (self.split is not None and self.split.eval > 0) or self.folds is not None
        return list(self.eval) or ([""] if held_out else [])

    def by_place(self) -> dict[Keys, components.Data]:
        """Every single source by its place in the pipeline, the training sources first."""
        sources: dict[Keys, components.Data] = {}
        if isinstance(self.train, Sources):
            sources |= {("data", "train", index): source for index, source in enumerate(self.train.sources)}
        else:
            sources["data", "train"] = self.train
        for name, source in self.eval.items():
            sources[("data", "eval", name) if name else ("data", "eval")] = source
        if self.test is not None:
            sources["data", "test"] = self.test
        return sources

    def files(self) -> Iterator[tuple[Keys, Path]]:
        """Every path that a source's settings hold, by the place of the setting, or of the entry of a list."""
        for keys, source in self.by_place().items():
            for field in attrs.fields(type(source)):
                value = getattr(source, field.name)
                if isinstance(value, Path):
                    yield (*keys, field.name), value
                elif isinstance(value, tuple):
                    paths = ((index, path) for index, path in enumerate(value) if isinstance(path, Path))
                    yield from (((*keys, field.name, index), path) for index, path in paths)


@attrs.frozen(kw_only=True)
class TrainingSettings:
    """``[training]``: how long, in which pieces, and how it is measured."""

    duration: Length
    """How long to train: ``"3 epochs"``, ``"500 steps"``, ``"2e9 tokens"``, ``"10000 samples"``."""
    batch_size: int | None = attrs.field(default=None, validator=attrs.validators.optional(_positive))
    """Sequences per step, over all processes (packed ones, with ``packing``). None: ``batch_tokens`` says it."""
    batch_tokens: int | None = attrs.field(default=None, validator=attrs.validators.optional(_positive))
    """About so many tokens per step, over all processes, in place of ``batch_size``; an epoch is divided evenly into as
    many steps as its tokens ask for."""
    micro_batch_size: int | Literal["auto"] | None = attrs.field(default=None, validator=_positive_or_auto)
    """Sequences per forward pass and process; gradients are accumulated. ``auto``: as many as fit into the memory,
    measured before the first step and kept. None: the batch divided by the processes."""
    packing: Packing = "none"
    """Several documents in one sequence of about ``max_length`` tokens, none seeing another, for tasks that learn from
    text alone. ``best_fit``: whole ones; ``concat``: end to end, cut every ``max_length`` tokens."""
    group_by_length: int | None = attrs.field(default=None, validator=attrs.validators.optional(_positive))
    """Sort windows of so many batches by length, so that the samples of a step are about as long as each other; worth
    it for models that pad. None: a step holds whatever comes."""
    sampler: Literal["shuffle", "balanced"] = "shuffle"
    """``shuffle``: each sample once an epoch; ``balanced``: every label equally often, rare ones again and again."""
    eval_every: Length = attrs.field(factory=lambda: Length.parse("1 epoch"))
    """How often to evaluate; an evaluation always follows the last step."""
    eval_at_start: bool = False
    """Evaluate before the first step too."""
    eval_batch_size: int | None = attrs.field(default=None, validator=attrs.validators.optional(_positive))
    """Sequences per forward pass in an evaluation; changes no result. None takes the micro-batch's."""
    monitor: str | None = None
    """The evaluation that best, early stopping and the kept model go by, as ``eval/accuracy``. None: the loss of the
    first evaluation set."""
    no_duplicates_in_batch: bool = False
    """For a loss over pairs in the batch: leave equal texts out of each other's negatives. The order doesn't change."""
    deterministic: bool = False
    """Use only operations that give the same bits each time; on a GPU this is slower."""
    workers: int = attrs.field(default=0, validator=[attrs.validators.ge(0), _at_most_1024])
    """Processes that prepare batches; 0 prepares them in the training process. Changes no result."""
    threads: int | None = attrs.field(
        default=None, validator=attrs.validators.optional([attrs.validators.ge(1), _at_most_1024])
    )
    """CPU threads of the computation; it changes bits. None: OMP_NUM_THREADS, else the physical cores divided by the
    processes on the machine."""


@attrs.frozen(kw_only=True)
class PluginSettings:
    """``[plugins]``: which distributions may supply parts."""

    prefer: Mapping[str, str] = attrs.field(factory=dict)
    """``kind.name`` to the distribution that supplies it."""
    require: tuple[str, ...] = ()
    """Requirements that must be installed, as ``"acme-rtx>=1.2"``."""
    block: tuple[str, ...] = ()
    """Distributions whose plugins are not used."""


@attrs.frozen(kw_only=True, eq=False)
class Pipeline:
    """One TOML file, checked: every table as the object that it names."""

    run: RunSettings
    task: components.Task
    data: DataSettings
    tokenizer: components.Tokenizer
    architecture: components.Architecture
    head: components.Head
    loss: components.Loss
    metrics: Mapping[str, components.Metric]
    """By table name, the task's own first."""
    optimizer: components.Optimizer
    scheduler: components.Scheduler
    strategy: components.Strategy
    callbacks: Mapping[str, components.Callback]
    """By table name, in the order of calls."""
    training: TrainingSettings
    plugins: PluginSettings = attrs.field(factory=PluginSettings)
    commands: Mapping[str, components.Command] = attrs.field(factory=dict)
    """Settings of commands, by table name."""

    text: str
    """The file as it was given."""
    resolved: Mapping[str, Any]
    """Every value used, as plain TOML data; a key that is None was left out."""
    origins: Mapping[str, Origin]
    """Where the value of each dotted key came from."""
    chosen: Mapping[str, Chosen]
    """The plugin behind each table, by dotted path (``optimizer``, ``callbacks.amp``)."""
    commits: Mapping[str, str] = attrs.field(factory=dict)
    """The commit of each ``hub:`` source, by source as it was written."""
    notes: tuple[str, ...] = ()
    """What could not be checked here, one sentence each."""

    @property
    def monitor(self) -> str:
        """The name of the monitored value, as ``eval/loss``."""
        if self.training.monitor is not None:
            return self.training.monitor
        return f"{eval_name(next(iter(self.data.eval), ''))}/loss"

    @property
    def evaluated(self) -> dict[str, components.Direction | None]:
        """Every value that the evaluations give, as ``eval/loss``, and which way it gets better, if it has one."""
        return evaluated(self.metrics, self.data.eval_names)


def eval_name(name: str) -> str:
    """The prefix of an evaluation set's values: ``eval`` or ``eval/NAME``."""
    return f"eval/{name}" if name else "eval"


def evaluated(
    metrics: Mapping[str, components.Metric], evals: Collection[str]
) -> dict[str, components.Direction | None]:
    """Every value that evaluations of these sets give, and which way it gets better; None: it can't be the monitor."""
    values: dict[str, components.Direction | None] = {"loss": "min"}
    for metric in metrics.values():
        values |= metric.names()
    return {f"{eval_name(name)}/{value}": way for name in evals for value, way in values.items()}


def folder_of(pipeline: Pipeline, output: Path | None, working_directory: Path) -> Path:
    """The run's folder: ``--output``, or ``runs/<name>`` in the working directory."""
    return output if output is not None else working_directory / "runs" / pipeline.run.name
