"""Which parameter gets which rate and decay: roles by module type, then the optimizer's rules."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from torch import nn

from rtx_core.components import ParameterGroup, Role
from rtx_core.errors import InputError
from rtx_core.registry import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtx_core.components import Optimizer
    from rtx_core.model import Model

_DECAYED: frozenset[Role] = frozenset({"embedding", "matrix", "head"})


def parameter_groups(model: Model, layers: Sequence[str], optimizer: Optimizer) -> list[ParameterGroup]:
    """Every distinct trainable parameter in exactly one group.

    :param layers: prefixes of public names from input to output.
    :raises InputError: a rule's pattern matches no parameter.
    """
    roles = _roles(model)
    grouped: dict[tuple[float, float, int | None, Role], dict[str, nn.Parameter]] = {}
    matched: set[str] = set()
    for name, parameter in model.parameters_by_name().items():
        if not parameter.requires_grad:
            continue
        role = roles[name]
        lr, decay = optimizer.lr, optimizer.weight_decay if role in _DECAYED else 0.0
        layer = None
        if optimizer.layer_lr_decay is not None:
            layer = next((i for i, prefix in enumerate(layers) if name.startswith(prefix)), len(layers))
            lr *= optimizer.layer_lr_decay ** (len(layers) - layer)
        matched.update(p for rule in optimizer.groups for p in rule.match if fnmatch.fnmatchcase(name, p))
        for rule in optimizer.groups:
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in rule.match):
                lr = lr if rule.lr is None else rule.lr
                decay = decay if rule.weight_decay is None else rule.weight_decay
                break
        grouped.setdefault((lr, decay, layer, role), {})[name] = parameter
    _refuse_unmatched(optimizer, matched, list(roles))
    return [
        ParameterGroup(parameters=members, lr=lr, weight_decay=decay, layer=layer, role=role)
        for (lr, decay, layer, role), members in grouped.items()
    ]


def _roles(model: Model) -> dict[str, Role]:
    """The role of each distinct parameter; of a tied one the first, which is the embedding's."""
    roles: dict[str, Role] = {}
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                full = f"{prefix}.{name}" if prefix else name
                roles[model.public_name(full)] = _role(module, name, parameter, in_head=prefix.startswith("head"))
    return roles


def _role(module: nn.Module, name: str, parameter: nn.Parameter, *, in_head: bool) -> Role:
    if "bias" in name:
        return "bias"
    if "Norm" in type(module).__name__ or parameter.ndim < 2:  # noqa: PLR2004 - a matrix has two axes
        return "norm"
    if isinstance(module, nn.Embedding):
        return "embedding"
    return "head" if in_head else "matrix"


def _refuse_unmatched(optimizer: Optimizer, matched: set[str], names: list[str]) -> None:
    for index, rule in enumerate(optimizer.groups):
        for pattern in rule.match:
            if pattern not in matched:
                near = nearest(pattern.strip("*."), {part for name in names for part in (name, *name.split("."))})
                hint = f'; near it is "{near}"' if near else f"; the first names are {', '.join(names[:4])}"
                raise InputError(f'optimizer.groups.{index}.match: "{pattern}" matches no parameter{hint}')
