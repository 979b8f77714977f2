"""A part's state as JSON and tensors, there and back: what ``state_dict()`` may hold, and nothing else.

A state holds tensors, numbers, booleans, strings and None in dicts with string keys, lists and tuples. Most of that is
JSON already; what JSON can't say becomes an object with one key that starts with ``$`` (``{"$float": "nan"}``), and a
tensor becomes its flat name. So a checkpoint needs no pickle, and every value comes back equal to the bit.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from rtx_core.errors import InputError, PluginError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

_PLAIN = (type(None), bool, int, float, str)

_DTYPES = frozenset(
    f"torch.{name}"
    for name in (
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "bfloat16", "float32", "float64", "complex64"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    )
)
"""What safetensors can write."""


def encode(name: str, state: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """A state as a tree for strict JSON and its tensors by flat name (``early_stopping/history/0``).

    The tensors are the state's own, not copies. Numbers keep their type and their bits, also NaN, infinities and -0.0;
    tuples stay tuples; an ``OrderedDict`` (what ``torch.nn.Module`` gives) becomes a dict.

    :param name: the part, for flat names and errors.
    :raises PluginError: the state holds anything else, subclasses of these types included, since they would come back
        as something else than they were.
    """
    tensors: dict[str, torch.Tensor] = {}
    try:
        tree = _encode(state, (name,), tensors)
    except RecursionError:
        raise PluginError(f"{name}: state_dict() is nested too deeply, or contains itself") from None
    return tree, tensors


def decode(tree: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """The state that :func:`encode` was given; it holds the tensors of the mapping, not copies.

    :raises InputError: the tree has a form that this version doesn't know, or lacks a tensor.
    """
    if isinstance(tree, list):
        return [decode(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    tag = next((key for key in tree if key.startswith("$")), None)
    if tag is None:
        return {key: decode(value, tensors) for key, value in tree.items()}
    return _decode_tagged(tag, tree[tag], tensors)


def _encode(value: Any, path: tuple[str | int, ...], tensors: dict[str, torch.Tensor]) -> Any:
    import torch

    # Exact types: numpy.float64 is a float, Counter a dict and a named tuple a tuple, but none would come back as one.
    kind = type(value)
    if kind in _PLAIN:
        return _encode_plain(value)
    if kind is list:
        return [_encode(item, (*path, index), tensors) for index, item in enumerate(value)]
    if kind is tuple:
        return {"$tuple": _encode(list(value), path, tensors)}
    if kind in (dict, OrderedDict):
        return _encode_dict(value, path, tensors)
    if isinstance(value, torch.Tensor):
        return _encode_tensor(value, path, tensors)
    raise _refusal(path, _type_name(value))


def _encode_plain(value: Any) -> Any:
    if type(value) is float and not math.isfinite(value):
        return {"$float": repr(value)}
    if type(value) is int and not -(2**63) <= value < 2**63:
        return {"$int": hex(value)}  # Python refuses to read back very long decimals
    return value


def _encode_dict(value: Mapping[Any, Any], path: tuple[str | int, ...], tensors: dict[str, torch.Tensor]) -> Any:
    wrong = next((key for key in value if type(key) is not str), None)
    if wrong is not None:
        raise _refusal(path, f"a dict with a key of type {_type_name(wrong)}")
    items = {key: _encode(item, (*path, key), tensors) for key, item in value.items()}
    if any(key.startswith("$") for key in items):
        return {"$dict": [[key, item] for key, item in items.items()]}
    return items


def _encode_tensor(value: torch.Tensor, path: tuple[str | int, ...], tensors: dict[str, torch.Tensor]) -> Any:
    if value.is_meta or str(value.layout) != "torch.strided" or str(value.dtype) not in _DTYPES:
        form = "meta" if value.is_meta else str(value.layout).removeprefix("torch.")
        raise _refusal(path, f"a {form} tensor of {value.dtype}, which safetensors can't hold")
    flat = "/".join(_escaped(str(piece)) for piece in path)
    tensors[flat] = value.detach()
    return {"$tensor": flat}


def _escaped(piece: str) -> str:
    """A piece of a path as in a JSON pointer (RFC 6901), so that keys with a slash can't make two names equal."""
    return piece.replace("~", "~0").replace("/", "~1")


def _decode_tagged(tag: str, value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    match tag:
        case "$tensor" if value in tensors:
            return tensors[value]
        case "$tuple":
            return tuple(decode(value, tensors))
        case "$float":
            return float(value)
        case "$int":
            return int(value, 16)
        case "$dict":
            return {key: decode(item, tensors) for key, item in value}
        case "$tensor":
            raise InputError(f'the checkpoint has no tensor "{value}", which a part\'s state names')
    raise InputError(f"a part's state in the checkpoint uses \"{tag}\", which this version of rtx doesn't know")


def _refusal(path: tuple[str | int, ...], found: str) -> PluginError:
    name, *pieces = path
    where = "".join(f"[{piece!r}]" for piece in pieces)
    return PluginError(
        f"{name}: state_dict(){where} is {found}; a state may hold tensors, numbers, booleans, strings and None "
        "in dicts with string keys, lists and tuples"
    )


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
