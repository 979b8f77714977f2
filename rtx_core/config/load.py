"""From a file to a checked pipeline: every table is given to what it names, and all mistakes are reported at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
from packaging.utils import canonicalize_name

from rtx_core.components import Architecture, Command, Component, Head, Loss, Metric, Task
from rtx_core.config import checks
from rtx_core.config.architecture_table import architecture
from rtx_core.config.data_table import data_settings, eval_names, resolved_data
from rtx_core.config.findings import Finding, problems_of
from rtx_core.config.layers import read_layers
from rtx_core.config.pipeline import Pipeline, PluginSettings, RunSettings, TrainingSettings, evaluated
from rtx_core.config.resolved import plain
from rtx_core.config.structure import FAILED, Structurer
from rtx_core.config.tree import COMMAND_LINE, Keys, Node, Origin, dotted
from rtx_core.errors import PipelineError, PluginError
from rtx_core.sources import Hub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rtx_core.config.layers import Layers
    from rtx_core.config.pipeline import DataSettings
    from rtx_core.registry import Chosen, Registry

TABLES: Final = (
    *("run", "task", "data", "tokenizer", "architecture", "head", "loss", "metrics", "optimizer", "scheduler"),
    *("strategy", "training", "callbacks", "plugins"),
)
"""The top-level tables that are not a command's."""
FORMAT: Final = 1


def load(
    path: Path | str,
    *,
    sets: Sequence[str] = (),
    registry: Registry,
    working_directory: Path | None = None,
    data: Mapping[str, Any] | None = None,
    hub: Hub | None = None,
) -> Pipeline:
    """Read a pipeline and check all of it; torch is not imported.

    :param sets: the ``key=value`` of each ``--set``.
    :param data: sources of records by set, in place of what the file says of it; of ``eval`` a mapping of names.
    :param working_directory: what ``path``, paths in ``--set`` and ``run:`` are relative to; None is the current one.
    :param hub: who finds ``hub:`` sources; None finds those that are in the cache, without the network.
    :raises PipelineError: with every problem, in the order of the file.
    """
    directory = Path.cwd() if working_directory is None else working_directory.absolute()
    layers = read_layers(Path(path), sets, directory)
    return _Assembly(layers, registry, directory, data or {}, hub).pipeline()


@attrs.frozen(kw_only=True)
class Checked:
    """A file without mistakes, as far as it can be looked into without the network."""

    pipeline: Pipeline | None
    """None where a source has to be fetched first."""
    chosen: Mapping[str, Chosen]
    """The plugin behind each table, by dotted path."""
    notes: tuple[str, ...]
    """What could not be checked, one sentence each."""


def check(path: Path | str, *, sets: Sequence[str] = (), registry: Registry) -> Checked:
    """Check all of a pipeline that can be checked without the network; nothing is created.

    :raises PipelineError: with every problem, in the order of the file.
    """
    directory = Path.cwd()
    return _Assembly(read_layers(Path(path), sets, directory), registry, directory).checked()


def run_name(path: Path, *, sets: Sequence[str] = ()) -> str:
    """The run's name alone, before any plugin is looked for: it says where an earlier start of the run is.

    :raises PipelineError: the file is not TOML.
    """
    node = read_layers(path, sets, Path.cwd()).tree.find(("run", "name"))
    return path.stem if node is None or node.text is None else node.text


@attrs.frozen(kw_only=True)
class ModelParts:
    """What a trained model is built from."""

    task_name: str
    task: Task
    architecture: Architecture
    head: Head


def load_parts(path: Path, *, registry: Registry) -> ModelParts:
    """The parts of a trained model, from its run's ``resolved.toml``; its data and first weights may be gone.

    :raises PipelineError: with every problem.
    """
    return _Assembly(read_layers(path, (), path.parent), registry, path.parent).model_parts()


class _Assembly:
    """Makes the parts of a pipeline one by one; what could not be made is not among them."""

    def __init__(
        self,
        layers: Layers,
        registry: Registry,
        working_directory: Path,
        data: Mapping[str, Any] | None = None,
        hub: Hub | None = None,
    ) -> None:
        self._layers = layers
        self._tree = layers.tree
        self._working_directory = working_directory
        self._given = {} if data is None else data
        """Sources of records from Python."""
        self._hub = Hub() if hub is None else hub
        self._make = Structurer(registry, working_directory, self._hub)
        self._parts: dict[str, Any] = {}
        self._named: dict[str, dict[str, tuple[Component, bool]]] = {}
        """Callbacks and metrics by table, with whether each is on."""
        self._meant: set[str] = set()
        """Top-level tables that a misspelt one was probably meant to be."""
        self._head_is_native = False

    def pipeline(self) -> Pipeline:
        """The pipeline.

        :raises PipelineError: with every problem, a source that can't be looked into here among them.
        """
        self._check(whole=True)
        return self._made()

    def checked(self) -> Checked:
        """What is to say of it, and the pipeline if that is known.

        :raises PipelineError: with every problem.
        """
        self._check(whole=False)
        unknown = [finding.message for finding in self._make.unknown]
        pipeline = None if unknown else self._made()
        return Checked(pipeline=pipeline, chosen=self._make.chosen, notes=(*dict.fromkeys(unknown), *self._notes()))

    def _check(self, *, whole: bool) -> None:
        """Make all parts.

        :param whole: a source that can't be looked into here is a problem too.
        :raises PipelineError: with every problem.
        """
        self._make_all(
            ("plugins", self._plugins),  # first: it says where the others come from
            ("commands", self._commands),
            ("run", self._run),
            ("task", self._task),
            ("data", self._data),
            ("architecture", self._architecture),
            ("tokenizer", self._tokenizer),
            ("head", self._head),
            ("loss", self._loss),
            ("metrics", self._metrics),
            ("optimizer", lambda: self._defaulted("optimizer")),
            ("scheduler", lambda: self._defaulted("scheduler")),
            ("strategy", lambda: self._defaulted("strategy")),
            ("callbacks", lambda: self._by_name("callback", "callbacks", self._entries("callbacks"))),
            ("training", self._training),
        )
        self._cross_checks()
        if whole:
            self._make.findings += self._make.unknown
        self._raise_if_any()
        self._report(checks.missing_files(self._parts["data"]))
        self._raise_if_any()

    def _made(self) -> Pipeline:
        return Pipeline(
            **self._parts,
            text=self._layers.main.text,
            resolved=self._resolved(),
            origins=self._make.origins,
            chosen=self._make.chosen,
            commits=dict(self._hub.commits),
            notes=self._notes(),
        )

    def _notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._hub.notes, *self._make.notes)))

    def model_parts(self) -> ModelParts:
        """The task and the model, without their data and without the weights that training started from.

        :raises PipelineError: with every problem in these tables.
        """
        table = self._tree.value.get("architecture")
        if table is not None and table.table is not None:
            self._tree = attrs.evolve(
                self._tree, value=self._tree.value | {"architecture": table.without("from_pretrained")}
            )
        self._make_all(
            ("plugins", self._plugins),
            ("task", self._task),
            ("architecture", self._architecture),
            ("head", self._head),
        )
        self._raise_if_any()
        parts = {name: self._parts[name] for name in ("task", "architecture", "head")}
        return ModelParts(task_name=self._make.chosen["task"].name, **parts)

    def _make_all(self, *makers: tuple[str, Callable[[], Any]]) -> None:
        for name, make in makers:
            part = make()
            if part is not FAILED:
                self._parts[name] = part

    def _raise_if_any(self) -> None:
        if self._make.findings:
            raise PipelineError(problems_of(self._make.findings, self._layers.files))

    # --- tables of the core -------------------------------------------------------------------------------------------

    def _plugins(self) -> Any:
        settings = self._settings("plugins", PluginSettings)
        if settings is FAILED:
            return FAILED
        refused = list(self._refused_plugins(settings))
        for keys, error in refused:
            message = " ".join(str(error).removeprefix(f"[plugins] {keys[1]}: ").split())
            self._report([(keys, message)])
        if not refused:
            self._make.use(self._make.registry.configured(settings))
        return settings

    def _refused_plugins(self, settings: PluginSettings) -> Iterator[tuple[Keys, PluginError]]:
        """What ``[plugins]`` asks for in vain, each entry by itself, so that one doesn't hide the next."""
        alone: dict[Keys, PluginSettings] = {
            **{("plugins", "require", i): PluginSettings(require=(text,)) for i, text in enumerate(settings.require)},
            **{("plugins", "prefer", key): PluginSettings(prefer={key: name}) for key, name in settings.prefer.items()},
        }
        for keys, setting in alone.items():
            try:
                self._make.registry.configured(setting)
            except PluginError as error:
                yield keys, error

    def _blocked(self) -> Iterator[tuple[Keys, str]]:
        """Distributions to block that offer nothing here: a misspelt one would be used after all."""
        registry = self._make.registry
        offering = {entry.distribution for entry in (*registry.entries, *registry.other_versions)}
        for index, name in enumerate(self._parts["plugins"].block):
            if canonicalize_name(name) not in map(canonicalize_name, offering):
                near = self._make.suggestions.near(name, offering)
                hint = f'did you mean "{near}"?' if near else f"those with plugins are {', '.join(sorted(offering))}"
                yield ("plugins", "block", index), f'no plugins of "{name}" are installed; {hint}'

    def _run(self) -> Any:
        return self._settings("run", RunSettings, {"name": self._layers.main.path.stem})

    def _training(self) -> Any:
        if "training" not in self._tree.value:
            return self._absent("training", "it needs duration and batch_size or batch_tokens")
        self._require_a_size(self._tree.value["training"])
        return self._settings("training", TrainingSettings)

    def _require_a_size(self, table: Node) -> None:
        """Report that a step has no size, unless a misspelt key is probably meant to be it."""
        sizes = ("batch_size", "batch_tokens")
        if table.table is None or any(size in table.value for size in sizes):
            return
        unknown = table.without(*(field.name for field in attrs.fields(TrainingSettings)))
        if not self._make.likely_keys(unknown, sizes):
            self._refuse(Finding.missing(table, sizes[0], f"missing; a step needs it, or {sizes[1]}"))

    def _data(self) -> Any:
        if "data" not in self._tree.value and "train" not in self._given:
            return self._absent("data", "[data.train] says where the records are")
        table = self._tree.value.get("data") or Node.of({}, Origin("default"), ("data",))
        return data_settings(table, self._make, self._given)

    def _settings(self, table: str, cls: type, defaults: Mapping[str, Any] | None = None) -> Any:
        """A table whose keys the core knows."""
        node = self._make.as_table(self._tree.value.get(table) or Node.of({}, Origin("default"), (table,)))
        if node is None:
            return FAILED
        lowest = Node.of(dict(defaults or {}), Origin("default"), (table,))
        return self._make.table(attrs.evolve(node, value=lowest.value | node.value), cls)

    def _commands(self) -> dict[str, Any]:
        """The settings of commands; what else is no table of a pipeline is the format, or a mistake."""
        commands: dict[str, Any] = {}
        known = [name for name in self._make.registry.names(Command.kind) if name not in TABLES]
        for name, node in self._tree.value.items():
            if name == "format":
                self._format(node)
            elif name in known:
                table = self._make.as_table(node)
                commands[name] = FAILED if table is None else self._make.component(Command.kind, table, fallback=name)
            elif name not in TABLES:
                self._unknown(name, node, known)
        return commands

    def _unknown(self, name: str, node: Node, commands: Sequence[str]) -> None:
        suggestion = self._make.suggestions.table(name, TABLES, commands)
        self._meant.add(suggestion.meant or "")
        message = f"unknown {'key' if node.table is None else 'table'}; {suggestion.message}"
        self._refuse(Finding.at(node, message, spot="key", replacement=suggestion.replacement))

    def _format(self, node: Node) -> None:
        version = self._make.value(node, int)
        if version is not FAILED and version != FORMAT:
            self._refuse(Finding.at(node, f"this rtx reads format {FORMAT}, got {version}; a newer one may be needed"))

    # --- components ---------------------------------------------------------------------------------------------------

    def _task(self) -> Any:
        if "task" not in self._tree.value:
            return self._absent("task", f"its type is one of {', '.join(self._make.registry.names('task'))}")
        return self._make.component("task", self._tree.value["task"])

    def _architecture(self) -> Any:
        if "architecture" not in self._tree.value:
            return self._absent("architecture", "it needs a type, or from_pretrained")
        return architecture(self._tree.value["architecture"], self._make, self._working_directory)

    def _tokenizer(self) -> Any:
        if "tokenizer" in self._tree.value:
            return self._make.component("tokenizer", self._tree.value["tokenizer"])
        given = self._tree.value.get("architecture")
        source = None if given is None else given.find(("from_pretrained",))
        if source is None:
            if "architecture" in self._meant or (
                given is not None and self._make.likely_keys(given, ("from_pretrained",))
            ):
                return FAILED  # the misspelt key has been reported
            return self._absent("tokenizer", "it can only be left out with from_pretrained in [architecture]")
        path = source.moved(("tokenizer", "path"))
        table = Node({"path": path}, Origin("default with from_pretrained"), ("tokenizer",))
        return self._make.component("tokenizer", table, fallback="pretrained")

    def _head(self) -> Any:
        """The one that is written, else the architecture's own for the task, else the task's default."""
        if "head" in self._tree.value:
            return self._make.component("head", self._tree.value["head"])
        task = self._make.chosen.get("task")
        if task is None or "architecture" not in self._parts:
            return FAILED
        native = self._parts["architecture"].native_head(task.name)
        if native is not None:
            self._head_is_native = True
            return native
        return self._make.component("head", _left_out("head", task), fallback=_class(task).default_head)

    def _loss(self) -> Any:
        """The one that is written, else the task's."""
        task, node = self._make.chosen.get("task"), self._tree.value.get("loss")
        if task is not None:
            return self._make.component("loss", node or _left_out("loss", task), fallback=_class(task).default_loss)
        return FAILED if node is None else self._make.component("loss", node)

    def _metrics(self) -> Any:
        """The task's own first, then those that are written."""
        task = self._make.chosen.get("task")
        names = None if task is None else self._own_metrics(task)
        own = {} if task is None else {name: _left_out("metrics", task, name) for name in names or ()}
        metrics = self._by_name("metric", "metrics", own | self._entries("metrics"))
        return FAILED if names is None else metrics

    def _own_metrics(self, task: Chosen) -> Sequence[str] | None:
        """What measures the task unless the file says otherwise; None: its settings decide, and they have mistakes."""
        part: Task | None = self._parts.get("task")
        if part is not None:
            return part.own_metrics
        names: Sequence[str] = _class(task).default_metrics
        return names if _class(task).own_metrics is Task.own_metrics else None

    def _defaulted(self, kind: str) -> Any:
        """A component that ``defaults.toml`` gives where the file does not."""
        if kind not in self._tree.value:  # --set KIND=unset
            return self._absent(kind, f"there are {', '.join(self._make.registry.names(kind))}")
        return self._make.component(kind, self._tree.value[kind])

    def _entries(self, table: str) -> dict[str, Node]:
        """The entries of a table of named tables, none where it is left out."""
        node = self._make.as_table(self._tree.value.get(table) or Node.of({}, Origin("default"), (table,)))
        return {} if node is None else node.value

    def _by_name(self, kind: str, table: str, entries: Mapping[str, Node]) -> Any:
        """Parts by the names of their tables; a name is the type where none is written. What is off is only checked."""
        found = {name: self._one_of(kind, name, node) for name, node in entries.items()}
        if any(FAILED in pair for pair in found.values()):
            return FAILED
        self._named[table] = found
        return {name: part for name, (part, enabled) in found.items() if enabled}

    def _one_of(self, kind: str, name: str, node: Node) -> tuple[Any, Any]:
        table = self._make.as_table(node)
        if table is None:
            return FAILED, FAILED
        enabled = self._make.value(table.value["enabled"], bool) if "enabled" in table.value else True
        return self._make.component(kind, table.without("enabled"), fallback=name), enabled

    # --- mistakes -----------------------------------------------------------------------------------------------------

    def _refuse(self, finding: Finding) -> Any:
        self._make.findings.append(finding)
        return FAILED

    def _absent(self, table: str, needs: str) -> Any:
        """A required table that isn't there, unless a misspelt one is meant to be it."""
        if table not in self._meant:
            self._refuse(Finding.missing(self._tree, table, f"missing table; {needs}"))
        return FAILED

    def _report(self, broken: Iterable[tuple[Keys, str]]) -> None:
        for keys, message in broken:
            origin = self._blamed(keys)
            self._refuse(Finding(origin=origin, keys=origin.keys or keys, message=message))

    def _blamed(self, keys: Keys) -> Origin:
        """Where a key was written. Of a table that ``--set`` changed, this change: the file alone may be right."""
        origins, place = self._make.origins, dotted(keys)
        own = origins.get(place, Origin("default"))
        if own.source == COMMAND_LINE:
            return own
        inside = [f"{place}.type"] if f"{place}.type" in origins else [k for k in origins if k.startswith(f"{place}.")]
        changed = [origins[key] for key in inside if origins[key].source == COMMAND_LINE]
        return changed[0] if changed else own

    def _cross_checks(self) -> None:
        """Rules between tables, as far as the tables are valid."""
        training, data, metrics = (self._parts.get(name) for name in ("training", "data", "metrics"))
        if "plugins" in self._parts:
            self._report(self._blocked())
        if data is not None:
            self._report(checks.held_out_rules(data))
        if "architecture" in self._parts:
            self._report(checks.loading_rules(self._parts["architecture"]))
        if "task" in self._parts and "architecture" in self._parts:
            self._report(checks.length_rules(self._parts["task"], self._parts["architecture"]))
            self._report(checks.attention_rules(self._parts["task"], self._parts["architecture"]))
        if "task" in self._parts:
            self._report(checks.target_rules(self._parts["task"], self._measures()))
            if (sets := eval_names(self._tree, data)) is not None:
                self._report(checks.tuning_rules(self._parts["task"], sets))
        if training is not None:
            self._check_training(training, data)
        self._report(checks.once_rules(self._parts.get("callbacks") or {}))
        if metrics is not None:
            self._check_measuring(metrics, data)

    def _check_measuring(self, metrics: Mapping[str, Metric], data: DataSettings | None) -> None:
        """Rules for ``[metrics]``, and for what goes by their values."""
        self._report(checks.metric_rules(metrics))
        sets = eval_names(self._tree, data)
        if sets is None:
            return
        keys, values = ("training", "monitor"), evaluated(metrics, sets)
        # Out of the tree, so that another mistake in [training] does not hide this one.
        written = self._tree.find(keys)
        if written is not None and written.text is not None:
            self._report(checks.monitor_rules(keys, written.text, values))
        self._report(checks.watched_rules(self._parts.get("callbacks") or {}, values))

    def _check_training(self, training: TrainingSettings, data: DataSettings | None) -> None:
        """Rules for ``[training]``, in itself and beside other tables."""
        self._report(checks.training_rules(training))
        if data is not None:
            self._report(checks.sampler_rules(training, data))
            self._report(checks.stream_rules(training, data, self._with_lengths()))
        if "task" in self._parts:
            self._report(checks.epoch_rules(training, self._parts["task"]))
        if "loss" in self._parts:
            self._report(checks.pair_rules(training, self._parts["loss"]))
        if "scheduler" in self._parts:
            self._report(checks.warmup_rules(self._parts["scheduler"].warmup, training.duration))

    def _with_lengths(self) -> dict[Keys, Component]:
        """The valid components, beside the tables of the core, that may hold lengths, by their tables."""
        named = self._parts.get("callbacks") or {}
        parts: dict[Keys, Component] = {("callbacks", name): callback for name, callback in named.items()}
        return {("scheduler",): self._parts["scheduler"], **parts} if "scheduler" in self._parts else parts

    def _measures(self) -> dict[Keys, Loss | Metric]:
        """The loss and the metrics that are on, as far as they are valid, by their tables."""
        loss, metrics = self._parts.get("loss"), self._parts.get("metrics") or {}
        named: dict[Keys, Loss | Metric] = {("metrics", name): metric for name, metric in metrics.items()}
        return named if loss is None else {("loss",): loss, **named}

    # --- the result ---------------------------------------------------------------------------------------------------

    def _resolved(self) -> dict[str, Any]:
        """Every value, in a form that gives the same pipeline again."""
        resolved: dict[str, Any] = {"format": FORMAT}
        for name in TABLES:
            if name == "data":
                resolved[name] = resolved_data(self._parts[name], self._make.types)
            else:
                resolved[name] = plain(self._parts[name], (name,), self._make.types)
        for name, command in self._parts["commands"].items():
            resolved[name] = plain(command, (name,), {})  # its name is its type
        for table, parts in self._named.items():
            resolved[table] = {name: self._resolved_one((table, name), *pair) for name, pair in parts.items()}
        if self._head_is_native:  # it follows from the architecture and has no name of its own
            del resolved["head"]
        return resolved

    def _resolved_one(self, keys: Keys, part: Component, enabled: bool) -> dict[str, Any]:  # noqa: FBT001 - a pair's second
        values: dict[str, Any] = plain(part, keys, self._make.types)
        return values if enabled else {"type": values.pop("type"), "enabled": False, **values}


def _left_out(table: str, task: Chosen, *name: str) -> Node:
    """An empty table in place of one that the task supplies."""
    return Node.of({}, Origin(f"default of task.{task.name}"), (table, *name))


def _class(task: Chosen) -> Any:
    return task.component
