"""Finds plugins, decides which one a name means, and loads only those that are named.

This module alone touches pluggy's managers: one holds the modules that were loaded, a second a run's live parts.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import attrs
import pluggy
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from rapidfuzz import process
from rapidfuzz.distance import OSA

from rtx_core.components import KINDS, Component
from rtx_core.errors import PluginError
from rtx_core.hooks import PROJECT, KindHooks, LoopHooks

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from rtx_core.config.pipeline import PluginSettings
    from rtx_core.run import Run

Part = TypeVar("Part")

GROUP = "rtx.v1"
OURS = "rtx-transformers"


def nearest(name: str, candidates: Iterable[str], *, most: int = 3) -> str | None:
    """The candidate that a misspelt name probably means, None where none is near (a transposition is one edit)."""
    limit = min(most, len(name) // 2)
    found = process.extractOne(name, list(candidates), scorer=OSA.distance, score_cutoff=limit)
    return found[0] if found else None


@attrs.frozen(kw_only=True)
class Entry:
    """One offer of a component, read from a package's metadata without importing it."""

    kind: str
    name: str
    module: str
    distribution: str
    """Normalised name, or the file's name for ``--plugin``."""
    version: str
    """Of the distribution; for a file the first 12 digits of its sha256."""
    group: str = GROUP
    file: Path | None = None

    @property
    def source(self) -> str:
        """Distribution and version, as messages write it."""
        return f"{self.distribution} {self.version}"

    @property
    def problem(self) -> str:
        """Why this can be no component, by its name alone; empty where it can."""
        if self.kind in KINDS and self.name:
            return ""
        written = f"{self.kind}.{self.name}" if self.name else self.kind
        told = f"{self.kind} is no kind" if self.name else "its name is not KIND.NAME"
        return f'entry point "{written}" of {self.source}: {told}; kinds are {", ".join(KINDS)}'

    def summary(self) -> str:
        """The first line of the module's docstring, read without running the module; empty where there is none."""
        path = self.file or _source_file(self.module)
        if path is None:
            return ""
        try:
            text = ast.get_docstring(ast.parse(path.read_bytes()))
        except (
            OSError,
            SyntaxError,
            ValueError,
        ):  # a broken plugin is reported where it is used, not where it is listed
            return ""
        return text.partition("\n")[0] if text else ""


@attrs.frozen(kw_only=True)
class Chosen:
    """The component that a name means, and where it comes from."""

    kind: str
    name: str
    component: type[Component]
    distribution: str
    version: str
    module: str
    replaces: str | None = None
    """The distribution whose component of this name is not used; None where there is no other."""

    @property
    def source(self) -> str:
        """Distribution and version, as messages write it."""
        return f"{self.distribution} {self.version}"


@attrs.frozen(kw_only=True)
class PluginFile:
    """A file given with ``--plugin``: kept in the run's folder, and asked for again by what goes on with the run."""

    path: Path
    sha256: str
    module: ModuleType

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return self.path.name


@attrs.define(eq=False)
class Registry:
    """What is installed, and what of it may be used. Holds no state beyond the modules it loaded."""

    entries: tuple[Entry, ...]
    """Every offer for this plugin API, in no order that matters."""
    malformed: tuple[Entry, ...] = ()
    """Entry points for this plugin API whose name says no kind; nothing can mean them."""
    other_versions: tuple[Entry, ...] = ()
    """Offers for other plugin APIs (``rtx.v2``)."""
    files: tuple[PluginFile, ...] = ()
    prefer: Mapping[str, str] = attrs.field(factory=dict)
    block: frozenset[str] = frozenset()
    _manager: pluggy.PluginManager = attrs.field(factory=lambda: _module_manager())  # noqa: PLW0108 - it is defined below

    @classmethod
    def discover(cls, plugins: Sequence[Path | ModuleType] = ()) -> Registry:
        """Read the metadata of everything installed, and load the given files and modules.

        :raises PluginError: rtx itself isn't installed, or a given plugin can't be loaded.
        """
        entries: list[Entry] = []
        malformed: list[Entry] = []
        others: list[Entry] = []
        installed = importlib.metadata.entry_points()
        groups = sorted(group for group in installed.groups if group.startswith("rtx.v"))
        for point in (point for group in groups for point in installed.select(group=group)):
            if point.dist is None:
                continue
            kind, _, name = point.name.partition(".")
            entry = Entry(
                kind=kind,
                name=name,
                module=point.value,
                distribution=canonicalize_name(point.dist.name),
                version=point.dist.version,
                group=point.group,
            )
            if point.group != GROUP:
                others.append(entry)
            else:
                (malformed if entry.problem else entries).append(entry)
        if not any(entry.distribution == OURS for entry in entries):
            raise PluginError(
                "rtx isn't installed in this Python, so none of its parts can be found; "
                "in the folder of the clone run: pip install -e ."
            )
        registry = cls(entries=tuple(entries), malformed=tuple(malformed), other_versions=tuple(others))
        for plugin in plugins:
            registry.add(plugin)
        return registry

    def configured(self, settings: PluginSettings) -> Registry:
        """The same registry under a pipeline's ``[plugins]``.

        :raises PluginError: a required distribution is missing or of another version, or a preference names nothing.
        """
        for text in settings.require:
            _check_requirement(text)
        prefer = {key: canonicalize_name(value) for key, value in settings.prefer.items()}
        for key, distribution in prefer.items():
            if not any(f"{e.kind}.{e.name}" == key and e.distribution == distribution for e in self.entries):
                raise PluginError(f'[plugins] prefer: "{distribution}" has no {key}; {self._sources_of(key)}')
        return attrs.evolve(self, prefer=prefer, block=frozenset(canonicalize_name(name) for name in settings.block))

    def names(self, kind: str) -> list[str]:
        """Every name of a kind that may be used, sorted."""
        return sorted({entry.name for entry in self._usable(kind)})

    def ours(self, kind: str) -> list[str]:
        """The names of a kind that rtx-transformers itself supplies; these may be loaded to make a suggestion."""
        usable = self._usable(kind)
        others = {entry.name for entry in usable if entry.distribution != OURS}
        return sorted({entry.name for entry in usable if entry.distribution == OURS} - others)

    def find(self, kind: str, name: str) -> Chosen:
        """Load the component that a name means; ``distribution:name`` pins one.

        :raises PluginError: there is none, two are equally good, or its module can't be imported.
        """
        pinned, _, bare = name.rpartition(":")
        entry = self._pick(kind, bare, canonicalize_name(pinned) if pinned else None)
        component = self._load(entry)
        others = {e.distribution for e in self._usable(kind) if e.name == bare} - {entry.distribution}
        return Chosen(
            kind=kind,
            name=bare,
            component=component,
            distribution=entry.distribution,
            version=entry.version,
            module=entry.module,
            replaces=OURS if OURS in others else None,
        )

    def entry(self, kind: str, name: str) -> Entry:
        """The offer that a name means, without loading it.

        :raises PluginError: there is none, or two are equally good.
        """
        return self._pick(kind, name)

    def _usable(self, kind: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind == kind and entry.distribution not in self.block]

    def _pick(self, kind: str, name: str, pinned: str | None = None) -> Entry:
        offers = [entry for entry in self._usable(kind) if entry.name == name]
        wanted = pinned or self.prefer.get(f"{kind}.{name}")
        if wanted is not None:
            offers = [entry for entry in offers if entry.distribution == wanted]
        if not offers:
            raise PluginError(self._missing(kind, name, pinned))
        for choice in (
            [entry for entry in offers if entry.file is not None][-1:],
            [entry for entry in offers if entry.distribution != OURS],
            offers,
        ):
            if len(choice) == 1:
                return choice[0]
            if choice:
                first, second = sorted(entry.distribution for entry in choice)[:2]
                raise PluginError(
                    f"{kind}.{name} is supplied by {first} and by {second}; choose one with\n"
                    f'    [plugins]\n    prefer = {{ "{kind}.{name}" = "{first}" }}'
                )
        raise AssertionError  # pragma: no cover - offers is not empty

    def _missing(self, kind: str, name: str, pinned: str | None) -> str:
        key = f"{kind}.{name}"
        if pinned:
            return f'no {key} in "{pinned}"; {self._sources_of(key)}'
        for entry in self.entries:
            if (entry.kind, entry.name) == (kind, name):
                return f"{key} is only supplied by {entry.distribution}, which [plugins] block rules out"
        for entry in self.other_versions:
            if (entry.kind, entry.name) == (kind, name):
                return f"{key} of {entry.source} needs plugin API {entry.group.removeprefix('rtx.')}, this is v1"
        known = self.names(kind)
        near = nearest(name, known)
        hint = f'did you mean "{near}"?' if near else f"there are: {', '.join(known) or 'none'}"
        return f'no {kind} "{name}" is installed; {hint}'

    def _sources_of(self, key: str) -> str:
        sources = sorted({e.distribution for e in self.entries if f"{e.kind}.{e.name}" == key})
        return f"{key} is supplied by {', '.join(sources) or 'nobody'}"

    def _load(self, entry: Entry) -> type[Component]:
        label = f"{entry.kind}.{entry.name} of {entry.source}"
        module = self._manager.get_plugin(entry.module)
        if module is None:
            try:
                module = importlib.import_module(entry.module)
            except (Exception, SystemExit) as error:
                raise PluginError(f"{label} can't be imported: module {entry.module}: {_told(error)}") from error
            self._register(module, entry.module, label)
        offered = self._ask(module, entry.kind, label)
        if entry.name not in offered:
            raise PluginError(f"{label}: module {entry.module} offers {sorted(offered) or 'nothing'} as {entry.kind}")
        component = offered[entry.name]
        base = KINDS[entry.kind]
        if not (isinstance(component, type) and issubclass(component, base) and attrs.has(component)):
            raise PluginError(f"{label}: {component!r} is no attrs class derived from rtx_core.{base.__name__}")
        return cast("type[Component]", component)

    def _register(self, module: ModuleType, name: str, label: str) -> None:
        try:
            self._manager.register(module, name)
            self._manager.check_pending()
        except pluggy.PluginValidationError as error:
            self._manager.unregister(name=name)
            raise PluginError(f"{label}: {' '.join(str(error).split())}") from error

    def _ask(self, module: ModuleType, kind: str, label: str) -> dict[str, type[Component]]:
        others = [plugin for plugin in self._manager.get_plugins() if plugin is not module]
        try:
            answers = self._manager.subset_hook_caller(kind, others)()
        except (Exception, SystemExit) as error:
            raise PluginError(f"{label}: {kind}() fails: {_told(error)}") from error
        if answers and not isinstance(answers[0], dict):
            raise PluginError(f"{label}: {kind}() gives no dict of components by name, but {answers[0]!r}")
        return cast("dict[str, type[Component]]", answers[0]) if answers else {}

    def add(self, plugin: Path | ModuleType) -> None:
        """Take a file's (or a module's) components in front of everything installed.

        :raises PluginError: it can't be loaded, or offers nothing.
        """
        if isinstance(plugin, ModuleType):
            module, path = plugin, Path(str(plugin.__file__))
        else:
            path = plugin.resolve()
            module = _load_file(path)
        text = path.read_bytes()
        loaded = PluginFile(path=path, sha256=hashlib.sha256(text).hexdigest(), module=module)
        label = f"plugin {path.name}"
        self._register(module, module.__name__, label)
        offered = [(kind, name) for kind in KINDS for name in self._ask(module, kind, label)]
        if not offered:
            raise PluginError(f"plugin {path}: no function marked @rtx_core.hookimpl offers a component")
        self.files = (*self.files, loaded)
        self.entries = (
            *self.entries,
            *(
                Entry(
                    kind=kind,
                    name=name,
                    module=module.__name__,
                    distribution=path.name,
                    version=loaded.sha256[:12],
                    file=path,
                )
                for kind, name in offered
            ),
        )


def _module_manager() -> pluggy.PluginManager:
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(KindHooks)
    return manager


def _check_requirement(text: str) -> None:
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise PluginError(f'[plugins] require: "{text}" is no requirement: {error}') from error
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        raise PluginError(f'[plugins] require: "{requirement.name}" is not installed') from None
    if not requirement.specifier.contains(version, prereleases=True):
        raise PluginError(f'[plugins] require: "{text}", but version {version} is installed')


def _load_file(path: Path) -> ModuleType:
    # attrs resolves annotations through sys.modules, so the module needs a name there that no other file has.
    name = f"{_OF_A_FILE}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise PluginError(f"plugin {path}: no such Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise PluginError(f"plugin {path} can't be loaded: {_told(error)}") from error
    return module


_OF_A_FILE = "rtx_plugin_"
"""What the names of modules begin with that are loaded from files."""


def supplier(module: str, file: str) -> str | None:
    """Who supplies a module of a plugin: a package with its version, or the plugin file; None for rtx's and for others.

    :param file: where its code is.
    """
    if module.startswith(_OF_A_FILE):
        return Path(file).name
    top = module.partition(".")[0]
    of_plugins = (entry for entry in Registry.discover().entries if entry.distribution != OURS)
    return next((entry.source for entry in of_plugins if entry.module.partition(".")[0] == top), None)


def _told(error: BaseException) -> str:
    """An error of a plugin in one line. One that ends the process does so for itself alone."""
    if isinstance(error, SystemExit):
        return f"it calls sys.exit({error.code!r})"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _source_file(module: str) -> Path | None:
    """Where a module's text is. Only the top-level package is looked up by Python, which runs none of its code."""
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if not rest:
        return Path(spec.origin) if spec.origin else None
    for folder in spec.submodule_search_locations or ():
        path = Path(folder, *rest)
        for candidate in (path.with_suffix(".py"), path / "__init__.py"):
            if candidate.is_file():
                return candidate
    return None


# --- the parts of a live run --------------------------------------------------------------------------------------

HOOKS = {name: value for name, value in vars(LoopHooks).items() if not name.startswith("_")}
FIRST_RESULT = {name for name, value in HOOKS.items() if getattr(value, f"{PROJECT}_spec")["firstresult"]}
_ARGUMENTS = {name: tuple(inspect.signature(value).parameters)[1:] for name, value in HOOKS.items()}
_FOREIGN = frozenset({"builtins", "torch", "typing", "rtx_core"})
"""Top-level modules whose classes have methods for reasons of their own."""


def built(name: str, source: str, build: Callable[..., Part], *arguments: Any, **settings: Any) -> Part:
    """What a component's ``build`` gives; what it raises says whose it is, as with hooks.

    :param name: of the part, as messages write it (``callback.ema``).
    :param source: what supplies it, with its version.
    :raises PluginError: it gives None, or tries to end the process.
    """
    try:
        part = build(*arguments, **settings)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - raised again
        failure = _failure(error, name, "build", source)
        raise failure  # noqa: B904 - usually the same error
    if part is None:
        raise PluginError(f"{name}: build returned None")
    return part


def _failure(error: Exception | SystemExit, name: str, where: str, source: str = "") -> Exception:
    """The same error with a note on whose it is. Only a run's end ends it, so SystemExit becomes a part's mistake."""
    if isinstance(error, SystemExit):
        return PluginError(f"{name}: {where} calls sys.exit({error.code!r}); run.stop(reason) ends a run")
    error.add_note(f"in {where} of {name}" + (f" ({source})" if source else ""))
    return error


class PartHooks:
    """The hooks of a run's parts, called in file order; the first part is the outermost wrapper."""

    def __init__(self, parts: Mapping[str, object], *, default: str) -> None:
        """Register each part by its name in messages (``callback.early_stopping``).

        :param default: the part whose answers to ``firstresult`` hooks are the default: the strategy.
        :raises PluginError: a method is no hook, has other arguments, or two parts replace the same hook.
        """
        self.run: Run
        """Set once the run exists, before the first hook is called."""
        self.failures: list[Exception] = []
        """What parts raised in ``on_run_end``; it did not keep the others from theirs."""
        self._manager = _PartManager(PROJECT)
        self._manager.add_hookspecs(LoopHooks)
        # pluggy calls the last registered first.
        for name, part in reversed(list(parts.items())):
            adapter = self._adapter(name, part)
            try:
                self._manager.register(adapter, name)
            except pluggy.PluginValidationError as error:
                raise PluginError(f"{name}: {' '.join(str(error).split())}") from error
        for hook in sorted(FIRST_RESULT):
            _refuse_two_answers(hook, getattr(self._manager.hook, hook), default)
        direct = {hook: _direct(getattr(self._manager.hook, hook), first=hook in FIRST_RESULT) for hook in HOOKS}
        self.call = cast("LoopHooks", SimpleNamespace(**direct))

    def _adapter(self, name: str, part: object) -> _Adapter:
        """The part's hook methods, each of which says whose it is while it runs."""
        adapter = _Adapter()
        own = _own_methods(type(part))
        for attribute in dir(type(part)):
            if attribute in HOOKS:
                method = getattr(part, attribute)
                _refuse_unknown_arguments(name, attribute, method)
                make = self._wrapper if _is_wrapper(method) else self._plain
                setattr(adapter, attribute, make(name, attribute, method))
            elif attribute.startswith("on_"):
                near = nearest(attribute, HOOKS)
                hint = f'did you mean "{near}"?' if near else f"hooks are {', '.join(HOOKS)}"
                raise PluginError(f"{name}: method {attribute} is no hook; {hint}")
            elif attribute in own and (near := nearest(attribute, FIRST_RESULT, most=2)):
                raise PluginError(f'{name}: method {attribute} is no hook; did you mean "{near}"?')
        return adapter

    def _plain(self, name: str, hook: str, method: Callable[..., Any]) -> Callable[..., Any]:
        must_answer = hook in FIRST_RESULT
        speaker = name.partition(".")[2]

        @functools.wraps(method)
        def call(*arguments: Any) -> Any:
            before = self.run.speaker
            self.run.speaker = speaker
            try:
                answer = method(*arguments)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - raised again, or kept until all were called
                failure = _failure(error, name, hook)
                if hook == "on_exception":  # the run ends with what went wrong first
                    self.run.console.warn(f"{name}: {hook} failed too: {type(error).__name__}: {error}")
                    return None
                if hook != "on_run_end":
                    raise failure  # noqa: B904 - usually the same error
                self.failures.append(failure)
                return None
            finally:
                self.run.speaker = before
            if must_answer and (hook == "compute_loss" or (answer is not True and answer is not False)):
                _refuse_answer(name, hook, answer)
            return answer

        return call

    def _wrapper(self, name: str, hook: str, method: Callable[..., Any]) -> Callable[..., Any]:
        if not inspect.isgeneratorfunction(method):
            raise PluginError(f"{name}: {hook} is a wrapper, so it must yield once, where the hook is called")
        speaker = name.partition(".")[2]

        @functools.wraps(method)
        def call(*arguments: Any) -> Generator[None, Any, Any]:
            body = method(*arguments)
            passing: BaseException | None = None
            resume: Callable[[], Any] | None = None
            try:
                self._advance(speaker, body.__next__)
                try:
                    answer = yield
                except BaseException as error:  # noqa: BLE001 - handed to the wrapper, which raises it again
                    passing = error
                    resume = functools.partial(body.throw, error)
                else:
                    resume = functools.partial(body.send, answer)
                self._advance(speaker, resume)
            except StopIteration as end:
                if resume is not None:
                    return end.value
            except (Exception, SystemExit) as error:
                if error is passing:  # somebody else's
                    raise
                failure = _failure(error, name, hook)
                raise failure  # noqa: B904 - usually the same error
            times = "twice" if resume is not None else "never"
            raise PluginError(f"{name}: a wrapper yields once, this one did {times}")

        return call

    def _advance(self, speaker: str, move: Callable[[], Any]) -> None:
        """Run a wrapper's code up to its next yield, under its name."""
        before, self.run.speaker = self.run.speaker, speaker
        try:
            move()
        finally:
            self.run.speaker = before


class _Adapter:
    """Stands for a part in pluggy's eyes; holds a function for each hook that the part implements."""


class _PartManager(pluggy.PluginManager):
    """Takes every method with a hook's name as an implementation; the marker only adds an order or ``wrapper``."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
        if name not in HOOKS:
            return None
        return super().parse_hookimpl_opts(plugin, name) or {}


def _refuse_answer(name: str, hook: str, answer: Any) -> None:
    """What replaces a default has to answer with what the loop goes on with.

    :param answer: any of ``compute_loss``; of another hook one that is neither True nor False.
    :raises PluginError: it is something else.
    """
    if hook == "compute_loss":
        if hasattr(answer, "backward") and answer.ndim == 0:
            return
        expected = "the summed loss, a tensor without axes"
    else:
        expected = "True or False"
    if answer is None:
        raise PluginError(f"{name}: {hook} returned None; it replaces the default, so it must answer")
    shape = f"a tensor of shape {list(answer.shape)}" if hasattr(answer, "shape") else repr(answer)
    raise PluginError(f"{name}: {hook} returned {shape}; expected {expected}")


def _direct(caller: pluggy.HookCaller, *, first: bool) -> Callable[..., Any]:
    """What the caller does, in its order, without what it checks at each call; itself where a part wraps the hook.

    A step calls seven hooks, and their dispatch would take longer than what most of them do.

    :param first: whether the first answer is the only one; every implementation of such a hook answers.
    """
    implementations = caller.get_hookimpls()[::-1]
    if not implementations or any(one.wrapper or one.hookwrapper for one in implementations):
        return caller
    calls = [(one.function, one.argnames) for one in implementations]

    def every(**arguments: Any) -> None:
        for function, names in calls:
            function(*map(arguments.__getitem__, names))

    def only(**arguments: Any) -> Any:
        function, names = calls[0]
        return function(*map(arguments.__getitem__, names))

    return only if first else every


def _own_methods(part: type) -> set[str]:
    """Public methods that the part's authors wrote; those of torch and rtx have their names for other reasons."""
    own = (cls for cls in part.__mro__ if cls.__module__.partition(".")[0] not in _FOREIGN)
    return {name for cls in own for name, value in vars(cls).items() if not name.startswith("_") and callable(value)}


def _refuse_unknown_arguments(name: str, hook: str, method: Callable[..., Any]) -> None:
    known = _ARGUMENTS[hook]
    if not callable(method):
        raise PluginError(f"{name}: {hook} is the name of a hook, so it must be a method, not {method!r}")
    for parameter in inspect.signature(method).parameters.values():
        needed = parameter.default is parameter.empty and parameter.kind not in _OF_ANY_NAME
        if needed and parameter.name not in known:
            raise PluginError(f'{name}: {hook} takes {", ".join(known)}, not "{parameter.name}"')
        if needed and parameter.kind is parameter.KEYWORD_ONLY:
            raise PluginError(f"{name}: {hook} gets its arguments by place, so {parameter.name} can't stand after *")


_OF_ANY_NAME = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _is_wrapper(method: object) -> bool:
    return bool(getattr(method, f"{PROJECT}_impl", {}).get("wrapper"))


def _refuse_two_answers(hook: str, caller: pluggy.HookCaller, default: str) -> None:
    names = [i.plugin_name for i in caller.get_hookimpls() if not i.wrapper and i.plugin_name != default]
    if len(names) > 1:
        raise PluginError(f"{names[1]} and {names[0]} both replace {hook}; only one part may answer it")
