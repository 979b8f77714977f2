"""The kinds of component: what each is given, what it gives back, and in which shapes.

A component is a frozen attrs class whose fields are a TOML table; ``build`` makes the working object, the part.
Shapes: B sequences, T tokens of all sequences packed end to end, N targets, H hidden size, K outputs.

A component's module is imported to check a file, so it keeps torch out of its top level: import it inside ``build``.
"""

from __future__ import annotations

import enum
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NewType, Protocol, Self

import attrs

from rtx_core.errors import InputError
from rtx_core.lengths import Length

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import tokenizers
    import torch

    from rtx_core.lengths import Horizon
    from rtx_core.registry import Registry
    from rtx_core.samples import Batch, Record, Sample

InputPath = NewType("InputPath", Path)
"""A path that a pipeline names: relative to the file that it is written in. In ``files`` it may be a glob."""

Direction = Literal["max", "min"]
"""Which way a metric gets better."""

TargetKind = Literal["class", "labels", "values", "span", "embedding"]
"""What targets are.

``class``: the number of a class, int64 ``[N]``, negative where it is ignored. ``labels``: a 0 or 1 for each of K
labels, float32 ``[N, K]``; ``values``: K numbers, float32 ``[N, K]``; NaN is an ignored entry of both.

``span``: int64 ``[N, 5]``, ``(place, start, end, first, last)`` for each token of each sequence: its place in it, from
0, 1 where the answer starts, or ends, here (both -1 where the sequence is ignored), and the characters of the text from
which, or up to which, an answer reads that starts, or ends, here; -1 where none can. Further rows have a negative
place, see :class:`SpanRole`.

``embedding``: int64 ``[N, 3]`` for each text, ``(role, identity, grade)``, see :class:`TextRole`."""


class SpanRole(enum.IntEnum):
    """What a row of ``span`` targets is about that is no token: the first number of it.

    An answer is measured by its text, so a sample carries the text, behind its tokens.
    """

    REFERENCE = -1
    """A right answer: the fourth and the fifth number are its characters. A sample without one has no answer."""
    TEXT = -2
    """The other four numbers are the next 32 bytes of the text in UTF-8, low bytes first, filled up with 255."""


class TextRole(enum.IntEnum):
    """What a text is among texts that are embedded: the first number of its target, whose second is its identity.

    A sample is an anchor, then its positive, then its negatives, each with its content's hash as identity, so that
    equal texts can be told. Where judgments are given apart, it is a document, or a query with a row for each judgment.
    """

    ANCHOR = 0
    POSITIVE = 1
    NEGATIVE = 2
    QUERY = 3
    """A query of an evaluation; its identity is its number."""
    JUDGMENT = 4
    """How relevant a document, by its number, is for the query of the same sample: the third number is the grade."""
    DOCUMENT = 5
    """A document of an evaluation; its identity is its number."""


@attrs.frozen(kw_only=True)
class Component:
    """A table of settings of one kind. Subclass a kind below, decorated with ``@attrs.frozen(kw_only=True)``.

    A field's type is checked without coercion, its validators run one by one, and the docstring under it is what
    ``plugins show`` and the reference print.
    """

    kind: ClassVar[str]

    def check(self) -> Iterable[tuple[str, str]]:
        """Rules across fields: yield ``(field, what is wrong with it)`` for each that is broken."""
        return ()


# --- model ------------------------------------------------------------------------------------------------------------


@attrs.frozen
class SpecialTokens:
    """The tokens that an architecture needs, by role, and how it wraps its input."""

    pad: str
    unk: str
    cls: str
    sep: str
    mask: str
    pair_separators: int = 1
    """How many separators stand between the two texts of a pair (RoBERTa: 2)."""
    pair_token_type: int = 1
    """Token type of the second text (0 for families without token types)."""

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, in the order in which a trained vocabulary starts."""
        return (self.pad, self.unk, self.cls, self.sep, self.mask)


@attrs.frozen
class Source:
    """Where weights or a tokenizer come from: a folder, ``run:NAME`` or ``hub:ORG/NAME[@REVISION]``."""

    scheme: Literal["folder", "run", "hub"]
    location: str
    """The folder's path, the run's name, or the repository's name."""
    revision: str | None = None

    @classmethod
    def parse(cls, text: str, base: Path) -> Self:
        """Read a source as written in a file of the folder ``base``.

        :raises ValueError: ``org/name`` without a prefix and without such a folder, or an empty name.
        """
        scheme, colon, rest = text.partition(":")
        if colon and scheme == "run" and rest:
            return cls("run", rest)
        if colon and scheme == "hub" and rest:
            name, at, revision = rest.partition("@")
            if not name or (at and not revision):
                raise ValueError(f'expected "hub:ORG/NAME" or "hub:ORG/NAME@REVISION", got "{text}"')
            return cls("hub", name, revision or None)
        if not text or (colon and scheme in ("run", "hub")):
            raise ValueError(f'expected a folder, "run:NAME" or "hub:ORG/NAME", got "{text}"')
        folder = base / text
        if not folder.is_dir():
            looks_like_hub = re.fullmatch(r"\w[\w.-]*/[\w.-]+", text) is not None
            hint = f'; for the hub write "hub:{text}"' if looks_like_hub else ""
            raise ValueError(f'no folder "{folder}"{hint}')
        return cls("folder", str(folder))

    def __str__(self) -> str:
        prefix = "" if self.scheme == "folder" else f"{self.scheme}:"
        return f"{prefix}{self.location}" + (f"@{self.revision}" if self.revision else "")


@attrs.frozen(kw_only=True)
class LoadRules:
    """What may differ between a checkpoint and the model, beyond a new or an unused head and pooler."""

    allow_new: tuple[str, ...] = ()
    """Patterns of tensors that the checkpoint may lack; they are initialised from the seed."""
    allow_unused: tuple[str, ...] = ()
    """Patterns of tensors in the checkpoint that the model may ignore."""
    resize: bool = False
    """Give the token table a row for each token, or architecture.vocab_size, whatever the checkpoint has: the first
    rows are the checkpoint's, further ones are initialised from the seed, those at the end are left out."""
    first_layers: bool = False
    """Take the first layers of a checkpoint that has more than the number of layers that is written."""
    positions: Literal["repeat", "interpolate", "new"] | None = None
    """What a position table is filled with that is longer than the checkpoint's: its rows again from the first, rows
    between its own, or rows initialised from the seed behind its own. None: such a table is refused."""
    reinit_head: bool = False
    """Initialise the head from the seed though the checkpoint has one that fits; a pooler is no part of it."""


class Backbone(Protocol):
    """What :meth:`Architecture.build` returns: a ``torch.nn.Module`` with these members."""

    def __call__(self, batch: Batch) -> torch.Tensor:
        """Hidden states ``[T, H]`` of the packed tokens."""
        ...

    @property
    def input_embeddings(self) -> torch.nn.Parameter:
        """The token table ``[V, H]``, for heads that tie their decoder to it."""
        ...


@attrs.frozen(kw_only=True)
class Architecture(Component):
    """The body of the model. Settings are named as in Hugging Face's ``config.json``."""

    kind: ClassVar[str] = "architecture"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Named sets of fields, below the fields that the table writes."""
    model_type: ClassVar[str | None] = None
    """``model_type`` of ``config.json``; lets ``from_pretrained`` find this component."""
    any_model_type: ClassVar[bool] = False
    """Whether it builds families of any ``model_type``; it has to be named in ``type`` then, never found."""
    special_tokens: ClassVar[SpecialTokens]

    preset: str | None = None
    """A named set of sizes; single fields on top of it win."""
    from_pretrained: Source | None = None
    """Where the weights come from: a folder, ``run:NAME`` or ``hub:ORG/NAME``; None starts from the seed."""
    load: LoadRules = attrs.field(factory=LoadRules)
    """What may be missing or unused when weights are loaded."""
    vocab_size: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(1)))
    """Rows of the token table; None takes as many as the tokenizer has tokens."""
    hidden_size: int
    """H, the width of the hidden states."""

    @property
    def usable_positions(self) -> int | None:
        """The longest sequence that fits; None where there is no limit."""
        return None

    @property
    def pad_token_id(self) -> int | None:
        """The number that the model takes for the padding token's, which the tokenizer has to give it; None: none.

        A family that goes by one has a field of this name.
        """
        return None

    @property
    def causal(self) -> bool:
        """Whether a token sees only those before it, which predicting the next token needs."""
        return False

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """This component's fields out of a ``config.json``; unknown keys are left out.

        :raises ValueError: a key says that this is another model.
        """
        names = {field.name for field in attrs.fields(cls)}
        return {name: value for name, value in config.items() if name in names}

    @classmethod
    def from_folder(cls, folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG003 - part of the signature
        """This component's fields out of a folder with weights; those of ``config.json`` unless there is more to say.

        :param config: what ``config.json`` holds.
        :raises ValueError: the folder is another model's.
        """
        return cls.from_hf(config)

    def build(self, vocab_size: int) -> torch.nn.Module:
        """The :class:`Backbone`. May be called on the meta device.

        A backbone or head with ``initialize(name, tensor, generator)`` has each parameter filled from (seed, its name);
        without it the module's own initialisation is used, seeded once.
        """
        raise NotImplementedError

    def native_head(self, task: str) -> Head | None:  # noqa: ARG002 - part of the signature
        """The head that Hugging Face's class for the task has, None where this family has none."""
        return None

    def layer_names(self) -> Sequence[str]:
        """Prefixes of parameter names from input to output (embeddings first), for layer-wise rates and freezing."""
        return ()

    def hf_names(self, task: str | None) -> Sequence[tuple[str, str]]:  # noqa: ARG002 - part of the signature
        """Pairs (our prefix, Hugging Face's prefix), the first match wins: ``("backbone.", "bert.")``.

        :param task: whose native head the model wears; None where the head is another, which keeps its names.
        """
        return ()

    @property
    def hf_encoder_options(self) -> Mapping[str, Any]:
        """What ``transformers``' class of the body alone is called with so that it has no more parameters than this."""
        return {}

    def hf_config(self, task: str | None, outputs: Outputs) -> dict[str, Any]:
        """``config.json`` for the kept model: what ``transformers`` needs to build the same.

        :param task: whose native head the model wears; None: the body alone is what ``transformers`` can build.
        """
        raise NotImplementedError


@attrs.frozen(kw_only=True)
class Head(Component):
    """Turns hidden states into logits, at the positions of the targets alone."""

    kind: ClassVar[str] = "head"

    def build(self, hidden_size: int, outputs: int) -> torch.nn.Module:
        """A module with two methods.

        ``features(hidden_states [T, H], batch) -> [N, H]``: at ``batch.target_positions``, or pooled, one row a target;
        ``project(features [N, H]) -> logits [N, K]``.
        ``tie(table)`` is called with the token table where the module has such a method.
        """
        raise NotImplementedError

    def sentence_transformers_modules(self, hidden_size: int) -> Sequence[tuple[str, Mapping[str, Any]]] | None:  # noqa: ARG002 - part of the signature
        """The modules of ``sentence-transformers`` that do to hidden states what this head does, one after the other.

        Of each the name of its class and the content of its ``config.json``. None: there are none, as for a head with
        parameters.
        """
        return None


# --- optimisation -----------------------------------------------------------------------------------------------------

Role = Literal["embedding", "matrix", "norm", "bias", "head"]


@attrs.frozen(kw_only=True, eq=False)
class ParameterGroup:
    """Parameters that share a rate, a decay, a layer, a role and a number of axes. A tied tensor occurs once."""

    parameters: Mapping[str, torch.nn.Parameter]
    """By name, as in the kept model's ``model.safetensors``."""
    lr: float
    """Peak rate; the schedule multiplies it."""
    weight_decay: float
    layer: int | None
    """Place in ``layer_names()``, the head after the last; None where no rate depends on the layer."""
    role: Role
    """What its tensors are: only ``embedding``, ``matrix`` and ``head`` are decayed unless a rule says otherwise."""
    rate_name: str | None = None
    """Why its rate differs from the optimizer's, as rows of metrics name it (``lr/NAME``): the layer, the role, or the
    rule. None where it is the same."""

    def options(self) -> dict[str, Any]:
        """The dict that ``torch.optim`` takes for a group: ``params``, ``lr``, ``weight_decay``."""
        return {"params": list(self.parameters.values()), "lr": self.lr, "weight_decay": self.weight_decay}


@attrs.frozen(kw_only=True)
class GroupRule:
    """Another rate or decay for the parameters that match."""

    match: tuple[str, ...] = attrs.field(validator=attrs.validators.min_len(1))
    """Patterns of parameter names (``"*.bias"``); the first rule that matches wins."""
    lr: float | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(0.0)))
    """Peak rate; None keeps the optimizer's."""
    weight_decay: float | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.ge(0.0))
    )
    """Decay; None keeps the optimizer's."""


@attrs.frozen(kw_only=True)
class Optimizer(Component):
    """Owns the peak rate. The part is a ``torch.optim.Optimizer``."""

    kind: ClassVar[str] = "optimizer"

    lr: float = attrs.field(validator=attrs.validators.gt(0.0))
    """Peak learning rate; the schedule's factor multiplies it."""
    weight_decay: float = attrs.field(default=0.0, validator=attrs.validators.ge(0.0))
    """Decay of weights; biases and norms are left out."""
    groups: tuple[GroupRule, ...] = ()
    """Rules for single parameters; a pattern that matches nothing is an error."""
    layer_lr_decay: float | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(attrs.validators.and_(attrs.validators.gt(0.0), attrs.validators.le(1.0))),
    )
    """Factor of the rate from each layer to the one below it; None gives every layer the same rate."""

    def peak_lr(self, role: Role, parameter: torch.nn.Parameter) -> float:  # noqa: ARG002 - part of the signature
        """The peak rate of a parameter, before layers and rules; for an optimizer with more than one."""
        return self.lr

    def build(self, groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:
        """The optimizer over the groups; ``[group.options() for group in groups]`` is what torch's classes take.

        Its ``param_groups`` are these groups, in order: the loop writes each one's ``lr``. Its state (``state_dict``)
        may hold tensors, numbers, booleans, strings and None.

        Optional: ``train()`` and ``eval()``, for one that trains other weights than are to be measured. The part is
        told of both around evaluation, saving and export, and of ``train()`` before the first step; the core puts
        the weights of training back itself. ``implementation``, a text for ``run.json``: which code updates the
        weights, where that is chosen by device or version, since it changes bits. ``reset_state()``: see
        :func:`rtx_core.optimizers.reset_state`.
        """
        raise NotImplementedError


class Schedule(Protocol):
    """A rate over time, as a pure function."""

    def factor(self, i: int) -> float:
        """What multiplies the peak rate at the 0-based update ``i``; holds past its end.

        An optional method ``momentum(i)`` gives what momentum or beta1 is at that update, or None throughout, which
        leaves it to the optimizer.
        """
        ...


@attrs.frozen(kw_only=True)
class Scheduler(Component):
    """The course of the learning rate."""

    kind: ClassVar[str] = "scheduler"

    warmup: Length = attrs.field(factory=lambda: Length.parse("0 steps"))
    """The rate rises linearly from 0 for this long; put in front of the schedule by the core."""

    def build(self, horizon: Horizon) -> Schedule:
        """The schedule for what remains after warm-up, ``horizon.total`` steps; ``horizon.steps(length)`` converts."""
        raise NotImplementedError


class LossPart(Protocol):
    """What :meth:`Loss.build` returns; a ``torch.nn.Module`` where it has parameters or buffers.

    One of ``of_logits`` and ``of_features`` is needed. A loss over pairs in the batch that can leave equal texts out of
    each other's negatives has ``leave_out_duplicates()``, which is called once where the pipeline asks for it.
    """

    def weight(self, targets: torch.Tensor) -> float:
        """How much these targets count, on the host, before the forward pass. 0: nothing to learn."""
        ...

    def of_logits(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The sum over the targets, float32 scalar, of logits ``[N, K]`` and targets ``[N, …]``.

        A loss that never builds all logits has ``of_features(features [N, H], project, targets)`` instead.
        """
        ...


@attrs.frozen(kw_only=True)
class Outputs:
    """What a task predicts, known after its training data were read."""

    size: int
    """K, the width of the logits; 0 where the head's features themselves are what is predicted."""
    labels: tuple[str, ...] | None = None
    """Names of the classes, in order; None where the outputs have no names."""
    counts: tuple[int, ...] | None = None
    """How often each label occurs in the training data."""
    records: int | None = None
    """How many training records there are, where one may have several labels or none; None: the sum of the counts."""
    center: tuple[float, ...] | None = None
    """What the task takes from each of K numbers before it is learnt; None where targets are learnt as they are."""
    scale: tuple[float, ...] | None = None
    """What it divides them by after that."""
    scheme: str | None = None
    """How the labels of neighbouring targets make up spans (``IOB2``, ``IOBES``); None: each stands alone."""
    thresholds: tuple[float, ...] | None = None
    """The probability above which each label is predicted, as written or chosen on the evaluation data; None: the
    task's own rule."""


@attrs.frozen(kw_only=True)
class Loss(Component):
    """What is minimised: a sum over targets, divided by the weight of the whole step."""

    kind: ClassVar[str] = "loss"
    whole_step: ClassVar[bool] = False
    """True for a loss over pairs in the batch: it sees all features of the step at once, by cached gradients
    (Gao et al. 2021, arXiv:2101.06983)."""
    target_kinds: ClassVar[tuple[TargetKind, ...]] = ()
    """Targets that it can learn from; a task with others is refused by ``check``. Empty: not said, so not checked."""

    def build(self, outputs: Outputs) -> LossPart:
        """The part that computes it."""
        raise NotImplementedError


# --- measuring --------------------------------------------------------------------------------------------------------


class MetricPart:
    """Counts over one evaluation. Only sums and collected rows are kept, so batches and processes add up exactly."""

    def __init__(self) -> None:
        self.sums: dict[str, Any] = {}
        """Tensors or numbers that add."""
        self.rows: dict[str, list[torch.Tensor]] = {}
        """Tensors that are concatenated along their first axis."""

    def reset(self) -> None:
        """Forget the last evaluation."""
        self.sums = {}
        self.rows = {}

    def add(self, **values: Any) -> None:
        """Add each value to the sum of its name."""
        for name, value in values.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value

    def collect(self, **tensors: torch.Tensor) -> None:
        """Keep the rows of each tensor under its name."""
        for name, tensor in tensors.items():
            self.rows.setdefault(name, []).append(tensor)

    def update(self, predictions: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> None:
        """Count one batch.

        :param predictions: what the task predicts, logits ``[N, K]`` unless it says otherwise.
        :param targets: ``[N, …]``.
        :param weights: float32 ``[N]``; 0 leaves a target out.
        """
        raise NotImplementedError

    def update_by_sample(
        self,
        predictions: torch.Tensor,
        targets: torch.Tensor,
        weights: torch.Tensor,
        samples: torch.Tensor,  # noqa: ARG002 - for metrics that need to know
    ) -> None:
        """Count one batch, knowing which targets belong together; what a metric of spans or rankings overrides.

        :param samples: int64 ``[N]``: the sample that each target is of. Those of one sample stand side by side in the
            order of their positions, and come in one call.
        """
        self.update(predictions, targets, weights)

    def compute(self) -> Mapping[str, Any]:
        """The values by name: floats, or nested lists of floats (a matrix can't be the monitor)."""
        raise NotImplementedError


@attrs.frozen(kw_only=True)
class Metric(Component):
    """A figure of an evaluation, logged as ``eval/NAME``."""

    kind: ClassVar[str] = "metric"
    target_kinds: ClassVar[tuple[TargetKind, ...]] = ()
    """Targets that it can count; a task with others is refused by ``check``. Empty: not said, so not checked."""
    needs_scheme: ClassVar[bool] = False
    """True for a metric of spans: a task whose labels make up none is refused by ``check``."""

    def names(self) -> Mapping[str, Direction | None]:
        """Every name that ``compute`` gives, and which way it gets better (None: it can't be the monitor)."""
        raise NotImplementedError

    def build(self, outputs: Outputs) -> MetricPart:
        """The part; it lives for the whole run and is reset before each evaluation."""
        raise NotImplementedError


@attrs.frozen(kw_only=True)
class Callback(Component):
    """Implements hooks of the loop: methods with a name of ``hooks.py``.

    With state: ``build`` returns a part with ``state_dict()`` and ``load_state_dict(state)``. A part with ``train()``
    and ``eval()`` is told of both as an optimizer is (:meth:`Optimizer.build`): it may show other weights than are
    trained around evaluation, saving and export.
    """

    kind: ClassVar[str] = "callback"
    measures_machine: ClassVar[bool] = False
    """True where what it logs is of the clock or of the machine, so that equal runs have other values: no checkpoint
    has them, and ``verify-resume`` doesn't compare them."""
    once: ClassVar[bool] = False
    """True where a second table of this type would repeat or undo what the first does; ``check`` refuses it."""
    monitors: ClassVar[tuple[str, ...]] = ()
    """Fields that name a value of the evaluations (``eval/loss``), or are None for the run's monitor; ``check`` refuses
    a value that no evaluation gives, and a run without one."""

    def inactive_on(self, device: torch.device) -> str | None:  # noqa: ARG002 - part of the signature
        """Why it does nothing on this device, a clause that is said in one line before the model is built.

        Such a callback isn't built at all, so it costs nothing. ``""`` leaves that unsaid; None: it works there.
        """
        return None

    def build(self) -> object:
        """The part; the component itself where there is no state."""
        return self


# --- data -------------------------------------------------------------------------------------------------------------


class TaskPart(Protocol):
    """A task bound to a tokenizer and to the labels of its training data."""

    def samples(self, records: Iterable[Record], *, targets: bool = True) -> Iterator[Sample]:
        """Encode records in order, one sample each: of several sequences where a long text is read in windows.

        Only a task that is learnt from text alone may cut a record into several samples.

        :param targets: False for ``predict``: the columns of targets may be missing, and every position that would have
            a target has one that is ignored.
        :raises DataError: a value is missing or of the wrong type, with its file and line.
        """
        ...

    def notes(self) -> Sequence[str]:
        """What was lost in encoding since the last call ("3 texts cut at max_length"), a line each."""
        ...

    # prepare(sample, seed) -> Sample is optional: what chance does to a sample in an epoch (masking), a pure function
    # of the two. A task without it learns each sample as it is.

    # measured(targets) -> targets is optional: what metrics are given as targets, where those that are learnt are in
    # another unit (standardised). Without it they are given those of the samples.

    # merged(logits, targets, samples) -> (logits, targets, samples) is optional: one row in place of several of a
    # sample that mean the same (windows of a text), before predictions and measured see them. ``samples`` is int64 [N].

    # thresholds(logits, targets) -> tuple of K floats is asked of a task with a tuned_field: the probability above
    # which each label is predicted, chosen on the evaluation data for the kept model. Outputs keep it, and the task is
    # built anew with them.

    def predictions(self, logits: torch.Tensor) -> torch.Tensor:
        """What metrics are given as predictions, from logits ``[N, K]``."""
        ...

    def answers(
        self, records: Sequence[Record], logits: Sequence[torch.Tensor], *, scores: bool
    ) -> list[dict[str, Any]]:
        """The columns that ``predict`` adds, one dict for each record, from its logits ``[N, K]`` on the host.

        :param scores: add the probabilities.
        """
        ...


@attrs.frozen(kw_only=True)
class Layout:
    """What the kept model's folder has beyond what ``transformers`` reads, and what its card says of that."""

    library: str = "transformers"
    """The library that loads it, as the Hugging Face hub calls it."""
    files: Mapping[str, str] = attrs.field(factory=dict)
    """The text of each further file, by its path in the folder."""
    usage: str | None = None
    """Python, run in the folder, that loads the model and asks it; None: by ``transformers``' class."""
    example: tuple[str, ...] = ("a text",)
    """The texts that ``transformers``' class is asked there, as the tokenizer takes them: two of a pair."""
    output_names: tuple[str, ...] = ()
    """What each of the model's outputs is of, where these are no labels: the columns of numbers."""
    limits: tuple[str, ...] = ()
    """Where another library's answers aren't those of rtx: sentences without a full stop."""


@attrs.frozen(kw_only=True)
class Task(Component):
    """What is learnt: how a record becomes a sample, and logits become answers."""

    kind: ClassVar[str] = "task"
    default_loss: ClassVar[str]
    default_head: ClassVar[str]
    default_metrics: ClassVar[tuple[str, ...]] = ()
    target_kind: ClassVar[TargetKind | None] = None
    """What its targets are, so that ``check`` can tell whether loss and metrics fit; None: not said."""
    packable: ClassVar[bool] = False
    """Whether samples may be cut anywhere and put together: they have no targets until chance gives them some."""
    causal: ClassVar[bool] = False
    """Whether it needs an architecture in which a token sees only those before it."""
    pipeline_tag: ClassVar[str | None] = None
    """What the Hugging Face hub calls it, for the model card; None: it has no word for it."""

    max_length: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(2)))
    """Tokens kept of each sequence, special tokens included; None takes what the architecture can."""

    @property
    def own_metrics(self) -> tuple[str, ...]:
        """The metrics that measure it unless they are switched off; for a task whose settings decide."""
        return self.default_metrics

    @property
    def span_scheme(self) -> str | None:
        """``scheme`` of its outputs, which ``check`` wants to know before there are any."""
        return None

    @property
    def longest(self) -> int | None:
        """The largest ``max_length``, where a task has several."""
        return self.max_length

    @property
    def tuned_field(self) -> str | None:
        """The field whose value the kept model chooses on the evaluation data (``thresholds`` of the part), if any."""
        return None

    def columns(self, *, targets: bool) -> tuple[str, ...]:
        """The columns that a record must have, without those of the targets for ``predict``."""
        raise NotImplementedError

    def layout(self, architecture: Architecture, head: Head, max_length: int) -> Layout:  # noqa: ARG002 - part of the signature
        """How the kept model's folder serves other libraries; :class:`Layout` alone where ``transformers``' files do.

        :param max_length: tokens of the longest sequence that is kept.
        """
        return Layout()

    def texts(self, record: Record) -> Iterator[str]:
        """The texts of a record, for training a tokenizer."""
        raise NotImplementedError

    def stratum(self, record: Record) -> str:  # noqa: ARG002 - part of the signature
        """The label whose shares a stratified split keeps.

        :raises InputError: this task has no labels to go by.
        """
        raise InputError("[data.split] stratify: this task has no label to stratify by")

    @property
    def has_stratum(self) -> bool:
        """Whether each record has one label to go by."""
        return type(self).stratum is not Task.stratum

    def outputs(self, records: Iterable[Record], vocab_size: int) -> Outputs:
        """What is predicted, from all training records.

        :raises DataError: a label is missing or of the wrong type.
        """
        raise NotImplementedError

    def build(
        self, tokenizer: tokenizers.Tokenizer, outputs: Outputs, *, max_length: int, special_tokens: SpecialTokens
    ) -> TaskPart:
        """The part that encodes and answers.

        :param max_length: tokens of the longest sequence that is kept.
        :param special_tokens: those of the architecture.
        """
        raise NotImplementedError


@attrs.frozen(kw_only=True)
class Data(Component):
    """A source of records."""

    kind: ClassVar[str] = "data"

    def records(self) -> Iterator[Record]:
        """Read from the beginning, in the order of the files.

        :raises DataError: a file is missing, empty or malformed, with its name and line.
        """
        raise NotImplementedError

    def fingerprint(self) -> str:
        """A sha256 of the contents, so that a resumed run can tell whether the data changed."""
        raise NotImplementedError

    def paths(self) -> Sequence[Path] | None:
        """The files that records and fingerprint depend on: while these stay as they are, neither is asked for again.

        None where that can't be told; then a fingerprint is taken at every start.
        """
        return None

    def shards(self) -> Sequence[Data]:
        """Sources that give the same records one after the other; streaming changes their order."""
        return (self,)


@attrs.frozen(kw_only=True)
class Tokenizer(Component):
    """Text to token ids: a ``tokenizers.Tokenizer``, trained as a stage of the run or loaded."""

    kind: ClassVar[str] = "tokenizer"

    def build(self, texts: Iterable[str], special_tokens: SpecialTokens) -> tokenizers.Tokenizer:
        """Train on the texts (read once, only if needed), or load; the same bytes for the same input."""
        raise NotImplementedError

    def notes(self, special_tokens: SpecialTokens) -> Sequence[str]:  # noqa: ARG002 - part of the signature
        """What a person should know of how :meth:`build` makes it, said once before the training."""
        return ()


# --- where and what to do ---------------------------------------------------------------------------------------------


class StrategyPart(Protocol):
    """One process or many. It also implements the default of each ``firstresult`` hook (``trylast``)."""

    device: torch.device
    rank: int
    world_size: int

    def wrap(self, module: torch.nn.Module) -> torch.nn.Module:
        """The module of model and loss, ready for this many processes."""
        ...

    def sum(self, *values: float) -> tuple[float, ...]:
        """Each host number summed over the processes."""
        ...

    def sum_tensors(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Each tensor summed over the processes, on its device."""
        ...

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        """The rows of all processes, concatenated in the order of ranks."""
        ...

    def barrier(self) -> None:
        """Wait for all processes."""
        ...


@attrs.frozen(kw_only=True)
class Strategy(Component):
    """How a step is spread over processes."""

    kind: ClassVar[str] = "strategy"

    @classmethod
    def processes(cls) -> int:
        """How many processes this command was started in (without starting any)."""
        return 1

    def build(self, device: str) -> StrategyPart:
        """The part, on ``auto``, ``cpu``, ``cuda``, ``cuda:1`` or ``mps``."""
        raise NotImplementedError


@attrs.frozen(kw_only=True)
class Command(Component):
    """A subcommand of ``python -m rtx_core``. Its fields are the top-level TOML table of its name."""

    kind: ClassVar[str] = "command"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""

    @classmethod
    def main(cls, arguments: argparse.Namespace, registry: Registry) -> int:
        """Do it; the exit status. Errors are raised as :class:`rtx_core.errors.RtxError`."""
        raise NotImplementedError


KINDS: dict[str, type[Component]] = {
    kind.kind: kind
    for kind in (
        Architecture,
        Head,
        Optimizer,
        Scheduler,
        Loss,
        Metric,
        Callback,
        Task,
        Data,
        Tokenizer,
        Strategy,
        Command,
    )
}
"""Every kind by its name in TOML and in entry points."""
