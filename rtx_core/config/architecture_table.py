"""``[architecture]``: the table's own fields over a preset's, over those of a ``config.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from rtx_core.components import Source
from rtx_core.config.findings import Finding
from rtx_core.config.shapes import field_types, settable, shown
from rtx_core.config.structure import FAILED
from rtx_core.config.tree import Node, Origin, merged
from rtx_core.errors import InputError
from rtx_core.model_config import read_object
from rtx_core.model_folder import CONFIG, missing_weights
from rtx_core.sources import folder_of, has_weights

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rtx_core.config.structure import Structurer
    from rtx_core.registry import Chosen

KIND = "architecture"
_CONFIG_OF = "config.json of"
"""How the origin of what a checkpoint gives begins."""
_NOT_THE_CHECKPOINTS = ("preset", "from_pretrained", "load")
"""Fields of every architecture that a ``config.json`` has no say in, least of all in what may be missing beside it."""


def architecture(given: Node, make: Structurer, working_directory: Path) -> Any:
    """The architecture, or :data:`FAILED`."""
    node = Node({"type": given}, given.origin, given.keys) if given.table is None and given.text else given
    table = make.as_table(node)
    if table is None:
        return FAILED
    config = _hf_config(table, make, working_directory)
    fallback = None
    if "type" not in table.value:
        if "from_pretrained" in table.value:
            fallback = None if config is None else _name_of(config, table, make)
        elif not make.report_misspelt(table, ("type", "from_pretrained")):
            make.findings.append(Finding.missing(table, "type", f"missing; {_choices(make)}, or write from_pretrained"))
        if fallback is None:  # nothing says what it is, and why has been reported
            return FAILED
    chosen = make.choose(KIND, table, fallback=fallback)
    if chosen is None:
        return FAILED
    given_by_hf = _from_hf(table, chosen, config, make, working_directory)
    fields = _over((given_by_hf or {}) | _preset(table, chosen, make), table.value)
    whole = attrs.evolve(table, value=fields).without("type")
    reported = len(make.findings)
    part = make.table(whole, chosen.component, owner=chosen, complete=given_by_hf is not None)
    make.findings[reported:] = map(_with_way_out, make.findings[reported:])
    return part


def _hf_config(table: Node, make: Structurer, working_directory: Path) -> dict[str, Any] | None:
    """The ``config.json`` behind ``from_pretrained``: empty without one, None where it can't be had."""
    written = table.value.get("from_pretrained")
    if written is None:
        return {}
    source = make.value(written, Source)
    if source is FAILED or (source.scheme == "hub" and source not in make.hub):
        return None
    folder = folder_of(source, working_directory)
    if source.scheme == "hub" and not (folder / CONFIG).is_file():
        _without_config(source, written, make)
        return None
    try:
        config = read_object(folder / CONFIG)
    except InputError as error:
        kept = f'; the model that a run has kept there is "{written.text}/model"'
        hint = kept if (folder / "model" / CONFIG).is_file() else ""
        make.findings.append(Finding.at(written, f"{error}{hint}"))
        return None
    if source.scheme == "hub":
        _look_for_weights(source, folder, written, make)
    elif (problem := missing_weights(folder)) is not None:
        make.findings.append(Finding.at(written, f"{folder} {problem}"))
    return config


def _without_config(source: Source, written: Node, make: Structurer) -> None:
    """Report that a repository has no ``config.json``; without the network that is not known."""
    if make.hub.network:
        make.findings.append(Finding.at(written, f"{source} has no {CONFIG}"))
    else:
        message = f"the {CONFIG} of {source} is not in the cache yet; it and the weights are looked at when it runs"
        make.unknown.append(Finding.at(written, message))


def _look_for_weights(source: Source, folder: Path, written: Node, make: Structurer) -> None:
    """Report what is known of a repository's weights before they are fetched."""
    if (problem := make.hub.missing_weights(source)) is not None:
        make.findings.append(Finding.at(written, f"{source} {problem}"))
    elif not make.hub.network and not has_weights(folder):
        make.notes.append(f"the weights of {source} are not in the cache yet; they are fetched when it runs")


def _name_of(config: Mapping[str, Any], table: Node, make: Structurer) -> str | None:
    """The architecture that a ``config.json`` is of: the one named like its ``model_type``, or one of ours for it."""
    model_type = config.get("model_type")
    if model_type in make.registry.names(KIND):
        return str(model_type)
    for chosen in make.suggestions.ours(KIND):
        component: Any = chosen.component
        if model_type is not None and component.model_type == model_type:
            return chosen.name
    if not isinstance(model_type, str):
        message = f"config.json names no model_type, so the type must be written; {_choices(make)}"
        make.findings.append(Finding.at(table.value["from_pretrained"], message))
        return None
    message = f"config.json has model_type {shown(model_type)}, and no such architecture is installed"
    general = [chosen.name for chosen in make.suggestions.ours(KIND) if _takes_any_family(chosen)]
    hint = f'type = "{general[0]}" builds any encoder, more slowly' if general else _choices(make)
    make.findings.append(Finding.at(table.value["from_pretrained"], f"{message}; {hint}"))
    return None


def _takes_any_family(chosen: Chosen) -> bool:
    component: Any = chosen.component
    return bool(component.any_model_type)


def _choices(make: Structurer) -> str:
    return f"type can be {', '.join(make.registry.names(KIND))}"


def _from_hf(
    table: Node, chosen: Chosen, config: Mapping[str, Any] | None, make: Structurer, working_directory: Path
) -> dict[str, Node] | None:
    """The fields that the folder of a ``config.json`` gives; None where something is wrong with it, or it is None."""
    written = table.value.get("from_pretrained")
    if config is None or written is None:
        return None if config is None else {}
    component: Any = chosen.component
    try:
        found = component.from_folder(folder_of(make.value(written, Source), working_directory), config)
    except ValueError as error:
        other = config.get("model_type")
        wrong_type = "type" in table.value and other in make.registry.names(KIND) and other != component.model_type
        way_out = f'; write type = "{other}", or leave it out' if wrong_type else ""
        make.findings.append(Finding.at(written, f"{error}{way_out}"))
        return None
    fields = {name: value for name, value in found.items() if name not in _NOT_THE_CHECKPOINTS}
    if missing := _missing_sizes(table, component, fields):
        message = f"config.json has no {', '.join(missing)}; write in [architecture] what the weights were trained with"
        make.findings.append(Finding.at(written, message))
        return None
    resize = table.find(("load", "resize"))
    if resize is not None and make.value(resize, bool) is True:
        fields.pop("vocab_size", None)  # the rows are the tokenizer's, unless the file says how many
    return _taken_over(fields, Origin(f"{_CONFIG_OF} {written.text}"), component)


def _missing_sizes(table: Node, component: Any, fields: Mapping[str, Any]) -> list[str]:
    """The sizes that nothing gives, by the names in the family's presets.

    Defaults would be another model's, and not all that are wrong show in a shape: the number of heads doesn't.
    """
    written = table.value.get("preset")
    preset = {} if written is None else component.presets.get(written.text, {})
    sizes = dict.fromkeys(name for each in component.presets.values() for name in each)
    given = table.value.keys() | preset.keys() | fields.keys()
    return [name for name in sizes if name not in given and field_types(component).get(name) is int]


def _preset(table: Node, chosen: Chosen, make: Structurer) -> dict[str, Node]:
    """The fields of the named preset."""
    component: Any = chosen.component
    written = table.value.get("preset")
    name = FAILED if written is None else make.value(written, str)
    if written is None or not isinstance(name, str):
        return {}
    if name in component.presets:
        return _taken_over(component.presets[name], Origin(f'preset "{name}"'), component)
    near = make.suggestions.near(name, component.presets)
    hint = f'did you mean "{near}"?' if near else f"there are: {', '.join(component.presets) or 'none'}"
    message = f'{KIND}.{chosen.name} has no preset "{name}"; {hint}'
    make.findings.append(Finding.at(written, message, replacement=near and f'"{near}"'))
    return {}


def _with_way_out(finding: Finding) -> Finding:
    """The same, and what can be done without touching the checkpoint if it is one in its ``config.json``."""
    if not finding.origin.source.startswith(_CONFIG_OF):
        return finding
    return attrs.evolve(finding, message=f"{finding.message}; a value in [architecture] takes its place")


def _over(low: Mapping[str, Node], high: Mapping[str, Node]) -> dict[str, Node]:
    """Fields over those below them; of a table single keys."""
    return {**low, **{name: merged(low[name], node, {}) if name in low else node for name, node in high.items()}}


def _taken_over(fields: Mapping[str, Any], origin: Origin, component: type) -> dict[str, Node]:
    """Values that something else than the file gives to the table."""
    names = {field.name for field in settable(component)}
    return {
        name: Node.of(value, attrs.evolve(origin, keys=(KIND, name))) for name, value in fields.items() if name in names
    }
