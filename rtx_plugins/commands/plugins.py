"""List what is installed, and show what a part can be set to."""

from __future__ import annotations

import inspect
import json
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import attrs

from rtx_core import Command, InputError, PluginError, Scheduler, hookimpl
from rtx_core.components import KINDS
from rtx_core.registry import nearest
from rtx_plugins.commands.curve import curve
from rtx_plugins.commands.describe import Field, describe

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Sequence

    from rtx_core.registry import Chosen, Entry, Registry


@attrs.frozen(kw_only=True)
class Plugins(Command):
    """List what is installed, and show what a part can be set to."""

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """``list`` or ``show``; nothing is ``list``."""
        actions = parser.add_subparsers(dest="action", metavar="list | show NAME")
        listing = actions.add_parser("list", help="every part that is installed; imports none of them")
        listing.add_argument("kind", nargs="?", choices=KINDS, metavar="KIND", help=f"one of {', '.join(KINDS)}")
        listing.add_argument(
            "--all", action="store_true", help="also those that others shadow; imports each, and says which can't be"
        )
        showing = actions.add_parser("show", help="a part's settings")
        showing.add_argument(
            "name",
            metavar="NAME",
            help='"adamw", "optimizer.adamw" or, of one package, "acme-rtx:optimizer.adamw"',
        )
        for action in (listing, showing):
            action.add_argument("--json", action="store_true", help="print it for a program to read")

    @classmethod
    def main(cls, arguments: argparse.Namespace, registry: Registry) -> int:
        """Print the table or the part."""
        if arguments.action == "show":
            return _show(registry, arguments.name, as_json=arguments.json)
        if arguments.action is None:
            arguments.kind, arguments.all, arguments.json = None, False, False
        offers = [offer for kind in KINDS for offer in _offers(registry, kind) if arguments.kind in (None, kind)]
        if arguments.all:
            offers = [attrs.evolve(offer, problem=_problem(registry, offer)) for offer in offers]
            offers += [Offer.of(entry, state=f"needs {entry.group}") for entry in registry.other_versions]
        else:
            offers = [offer for offer in offers if offer.used]
        if arguments.kind is None:
            offers += [Offer.of(entry, state="broken") for entry in registry.malformed]
        if arguments.json:
            print(json.dumps([attrs.asdict(offer) for offer in offers], indent=2))
        else:
            _print_table(offers)
        return 0


# --- list -------------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Offer:
    """A line of the list."""

    kind: str
    name: str
    distribution: str
    version: str
    module: str
    file: str | None
    """Where it comes from with ``--plugin``."""
    summary: str
    state: str = ""
    """Why a pipeline that names it gets another, or an error; empty for the one that it gets."""
    problem: str = ""
    """Why it can't be imported, or its name says no kind; empty where that was not tried."""

    @classmethod
    def of(cls, entry: Entry, *, state: str = "") -> Offer:
        """What an entry point says of itself, without importing it."""
        return cls(
            kind=entry.kind,
            name=entry.name,
            distribution=entry.distribution,
            version=entry.version,
            module=entry.module,
            file=None if entry.file is None else str(entry.file),
            summary=entry.summary(),
            state=state,
            problem=entry.problem,
        )

    @property
    def used(self) -> bool:
        """Whether it is the one that its name means, or one of two that are equally good."""
        return self.state in ("", _AMBIGUOUS)


_AMBIGUOUS = "ambiguous"


def _offers(registry: Registry, kind: str) -> Iterator[Offer]:
    """Every offer of a kind by name, the one that is taken first."""
    entries = sorted((e for e in registry.entries if e.kind == kind), key=lambda e: (e.name, e.distribution))
    for entry in entries:
        try:
            taken = registry.entry(kind, entry.name)
        except PluginError:
            yield Offer.of(entry, state=_AMBIGUOUS)
            continue
        yield Offer.of(entry, state="" if entry == taken else f"shadowed by {taken.distribution}")


def _problem(registry: Registry, offer: Offer) -> str:
    if offer.file is not None:  # loaded already
        return ""
    try:
        registry.find(offer.kind, f"{offer.distribution}:{offer.name}")
    except PluginError as error:
        return str(error)
    return ""


def _print_table(offers: Sequence[Offer]) -> None:
    """One line for each part. A terminal gets what fits, a program everything."""
    rows = [("kind", "name", "from", "what it is")]
    for offer in offers:
        remarks = (offer.state, offer.problem, offer.summary.replace("``", ""))
        source = f"{offer.distribution} {offer.version}"
        rows.append((offer.kind, offer.name, source, " · ".join(filter(None, remarks))))
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    for *cells, last in rows:
        line = "  ".join([*(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)), last])
        print(_cropped(line) if sys.stdout.isatty() else line)


def _cropped(line: str) -> str:
    width = shutil.get_terminal_size().columns
    return line if len(line) <= width else f"{line[: width - 1]}…"


# --- show -------------------------------------------------------------------------------------------------------------


def _show(registry: Registry, name: str, *, as_json: bool) -> int:
    chosen = _find(registry, name)
    fields = describe(chosen.component)
    origin = inspect.getdoc(inspect.getmodule(chosen.component)) or ""
    doc = inspect.cleandoc(chosen.component.__doc__ or "")
    if as_json:
        print(json.dumps(_as_json(chosen, origin, doc, fields), indent=2, ensure_ascii=False))
        return 0
    print(f"{chosen.kind}.{chosen.name} of {chosen.source} (module {chosen.module})")
    if chosen.replaces:
        print(f"taken instead of that of {chosen.replaces}")
    # The module's docstring has the paper or the formula.
    for text in dict.fromkeys(filter(None, (origin, doc))):
        print(f"\n{text.replace('``', '')}")
    for field in fields:
        print(f"\n{field.name}: {_value(field)}")
        for line in textwrap.wrap(field.doc.replace("``", ""), width=100):
            print(f"    {line}")
    if issubclass(chosen.component, Scheduler):
        print("\n" + "\n".join(curve(chosen.component)))
    return 0


def _value(field: Field) -> str:
    rules = f" {' and '.join(field.rules)}" if field.rules else ""
    default = "required" if field.required else f"default {field.default}" if field.default else "may be left out"
    return f"{field.type}{rules}, {default}"


def _as_json(chosen: Chosen, origin: str, doc: str, fields: Iterable[Field]) -> dict[str, Any]:
    return {
        "kind": chosen.kind,
        "name": chosen.name,
        "distribution": chosen.distribution,
        "version": chosen.version,
        "module": chosen.module,
        "replaces": chosen.replaces,
        "module_doc": origin,
        "doc": doc,
        "fields": [attrs.asdict(field) for field in fields],
    }


def _find(registry: Registry, text: str) -> Chosen:
    """The part that a person means by ``adamw``, ``optimizer.adamw`` or ``acme-rtx:optimizer.adamw``."""
    distribution, _, name = text.rpartition(":")
    kind, dot, rest = name.partition(".")
    if not dot:
        kind, rest = _kind_of(registry, name), name
    elif kind not in KINDS:
        raise InputError(f'no kind "{kind}"; kinds are {", ".join(KINDS)}')
    return registry.find(kind, f"{distribution}:{rest}" if distribution else rest)


def _kind_of(registry: Registry, name: str) -> str:
    kinds = [kind for kind in KINDS if name in registry.names(kind)]
    if len(kinds) > 1:
        raise InputError(f'there are several parts "{name}"; write {" or ".join(f"{kind}.{name}" for kind in kinds)}')
    if not kinds:
        near = nearest(name, {known for kind in KINDS for known in registry.names(kind)})
        hint = f'did you mean "{near}"?' if near else "rtx plugins list shows what there is"
        raise InputError(f'no part "{name}" is installed; {hint}')
    return kinds[0]


@hookimpl
def command() -> dict[str, type[Command]]:
    """Offer it as ``plugins``."""
    return {"plugins": Plugins}
