"""Which parameter gets which rate and decay: roles by module type, then the optimizer's rules."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from rapidfuzz import process
from rapidfuzz.distance import OSA
from torch import nn

from rtx_core.components import ParameterGroup, Role
from rtx_core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rtx_core.components import GroupRule, Optimizer
    from rtx_core.model import Model

_DECAYED: frozenset[Role] = frozenset({"embedding", "matrix", "head"})


def parameter_groups(model: Model, layers: Sequence[str], optimizer: Optimizer) -> list[ParameterGroup]:
    """Every distinct trainable parameter in exactly one group.

    :param layers: prefixes of public names from input to output.
    :raises InputError: a rule's pattern matches no parameter, or a rule changes nothing.
    """
    roles = _roles(model)
    _refuse_unmatched(optimizer.groups, roles, model.tied_names())
    _refuse_idle(optimizer.groups, roles)
    members: dict[tuple[float, float, int | None, Role, str | None, int], dict[str, nn.Parameter]] = {}
    for name, parameter in model.parameters_by_name().items():
        if not parameter.requires_grad:
            continue
        role, layer, decay = roles[name], None, 0.0
        if optimizer.layer_lr_decay is not None:
            layer = next((i for i, prefix in enumerate(layers) if name.startswith(prefix)), len(layers))
        if role in _DECAYED:
            decay = optimizer.weight_decay
        lr, cause = _rate_of_place(optimizer, optimizer.peak_lr(role, parameter), role, layer, layers)
        index, rule = _rule_of(name, optimizer.groups)
        if rule is not None and rule.weight_decay is not None:
            decay = rule.weight_decay
        if rule is not None and rule.lr is not None:
            lr, cause = rule.lr, f"groups.{index}"
        rate_name = None if lr == optimizer.lr else cause
        members.setdefault((lr, decay, layer, role, rate_name, parameter.ndim), {})[name] = parameter
    return [
        ParameterGroup(parameters=named, lr=lr, weight_decay=decay, layer=layer, role=role, rate_name=rate_name)
        for (lr, decay, layer, role, rate_name, _), named in members.items()
    ]


def _rate_of_place(
    optimizer: Optimizer, peak: float, role: Role, layer: int | None, layers: Sequence[str]
) -> tuple[float, str]:
    """The rate that role and layer give, and a name for it of those of the two that matter."""
    causes: list[str] = [] if peak == optimizer.lr else [role]
    if layer is None or optimizer.layer_lr_decay is None:
        return peak, "/".join(causes)
    below = [prefix.rstrip(".") for prefix in layers[layer : layer + 1]]  # of the head, above all layers, none
    return peak * optimizer.layer_lr_decay ** (len(layers) - layer), "/".join(below + causes)


def unmatched_hint(pattern: str, names: Iterable[str], tied: Mapping[str, str]) -> str:
    """What the author of a pattern that matches no parameter's name may have meant.

    :param tied: further names of parameters, each to the one in ``names``.
    """
    alias = next((other for other in tied if fnmatch.fnmatchcase(other, pattern)), None)
    if alias is not None:
        return f'{alias} is tied to "{tied[alias]}", which is its name here'
    names = list(names)
    pieces = {piece for name in names for piece in name.split(".")}
    unknown = [piece for piece in pattern.split(".") if piece.strip("*?") and not fnmatch.filter(pieces, piece)]
    near = [found for piece in unknown for found in _nearest(piece.strip("*?"), sorted(pieces))]
    near = near or [found for found, *_ in process.extract(pattern, names, scorer=OSA.distance, limit=3)]
    return f"near it {'is' if len(near) == 1 else 'are'} " + ", ".join(f'"{name}"' for name in near)


def _nearest(name: str, candidates: Sequence[str]) -> list[str]:
    """At most three that may be meant, the nearest first; of a short name less may be wrong."""
    most = min(3, len(name) // 2)
    return [found for found, *_ in process.extract(name, candidates, scorer=OSA.distance, score_cutoff=most, limit=3)]


def _rule_of(name: str, rules: Sequence[GroupRule]) -> tuple[int, GroupRule | None]:
    """The first rule that matches, with its place."""
    for index, rule in enumerate(rules):
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in rule.match):
            return index, rule
    return len(rules), None


def _refuse_unmatched(rules: Sequence[GroupRule], names: Iterable[str], tied: Mapping[str, str]) -> None:
    names = list(names)
    for index, rule in enumerate(rules):
        for pattern in rule.match:
            if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
                hint = unmatched_hint(pattern, names, tied)
                raise InputError(f'optimizer.groups.{index}.match: "{pattern}" matches no parameter; {hint}')


def _refuse_idle(rules: Sequence[GroupRule], names: Iterable[str]) -> None:
    """Each rule matches something, as :func:`_refuse_unmatched` has seen; it has to change something too."""
    ruled = {name: _rule_of(name, rules)[0] for name in names}
    for index, rule in enumerate(rules):
        own = [name for name, chosen in ruled.items() if chosen == index]
        if not own:
            raise InputError(
                f"optimizer.groups.{index}: every parameter that it matches has an earlier rule, and the first that "
                "matches wins; put the narrower rule first"
            )
        # Without a setting it may still keep some from a later rule.
        if (
            rule.lr is None
            and rule.weight_decay is None
            and all(_rule_of(n, rules[index + 1 :])[1] is None for n in own)
        ):
            raise InputError(f"optimizer.groups.{index}: sets neither lr nor weight_decay, so it does nothing")


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
