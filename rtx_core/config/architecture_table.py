"""``[architecture]``: the table's own fields over a preset's, over those of a ``config.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from rtx_core.components import Source
from rtx_core.config.findings import Finding
from rtx_core.config.shapes import settable, shown
from rtx_core.config.structure import FAILED, run_model
from rtx_core.config.tree import Node, Origin
from rtx_core.model_folder import CONFIG, missing_weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rtx_core.config.structure import Structurer
    from rtx_core.registry import Chosen

KIND = "architecture"


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
    fields = _from_hf(table, chosen, config or {}, make) | _preset(table, chosen, make) | table.value
    whole = attrs.evolve(table, value=fields).without("type")
    return make.table(whole, chosen.component, owner=chosen, complete=config is not None)


def _hf_config(table: Node, make: Structurer, working_directory: Path) -> dict[str, Any] | None:
    """The ``config.json`` behind ``from_pretrained``: empty without one, None where it can't be had."""
    written = table.value.get("from_pretrained")
    if written is None:
        return {}
    source = make.value(written, Source)
    if source is FAILED:
        return None
    folder = run_model(source, working_directory) if source.scheme == "run" else Path(source.location)
    file = folder / CONFIG
    try:
        config: Any = json.loads(file.read_bytes())
    except FileNotFoundError:
        message = f"there is no {file}"
    except (OSError, ValueError) as error:
        message = f"{file} can't be read: {error}"
    else:
        if isinstance(config, dict):
            if (problem := missing_weights(folder)) is not None:
                make.findings.append(Finding.at(written, f"{folder} {problem}"))
            return config
        message = f"{file} holds no object"
    make.findings.append(Finding.at(written, message))
    return None


def _name_of(config: Mapping[str, Any], table: Node, make: Structurer) -> str | None:
    """The architecture that a ``config.json`` is of: the one named like its ``model_type``, or one of ours for it."""
    model_type = config.get("model_type")
    if model_type in make.registry.names(KIND):
        return str(model_type)
    for chosen in make.suggestions.ours(KIND):
        component: Any = chosen.component
        if model_type is not None and component.model_type == model_type:
            return chosen.name
    message = f"config.json has model_type {shown(model_type)}, and no such architecture is installed"
    make.findings.append(Finding.at(table.value["from_pretrained"], f"{message}; {_choices(make)}"))
    return None


def _choices(make: Structurer) -> str:
    return f"type can be {', '.join(make.registry.names(KIND))}"


def _from_hf(table: Node, chosen: Chosen, config: Mapping[str, Any], make: Structurer) -> dict[str, Node]:
    """The fields that a ``config.json`` gives."""
    if not config:
        return {}
    component: Any = chosen.component
    written = table.value["from_pretrained"]
    try:
        fields = component.from_hf(config)
    except ValueError as error:
        make.findings.append(Finding.at(written, str(error)))
        return {}
    return _taken_over(fields, Origin(f"config.json of {written.text}"), component)


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


def _taken_over(fields: Mapping[str, Any], origin: Origin, component: type) -> dict[str, Node]:
    """Values that something else than the file gives to the table."""
    names = {field.name for field in settable(component)}
    return {
        name: Node.of(value, attrs.evolve(origin, keys=(KIND, name))) for name, value in fields.items() if name in names
    }
