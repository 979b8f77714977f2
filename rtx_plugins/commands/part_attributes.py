"""What a part keeps in its attributes, saved or not: to find out what a checkpoint of it misses."""

from __future__ import annotations

import hashlib
from collections import deque
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import torch

from rtx_core import MetricPart, Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_ARRAYS = (torch.Tensor, np.ndarray, np.generic)
_SEQUENCES = (list, tuple, deque)
_SETS = (set, frozenset)
_DATA = (*_PLAIN, *_ARRAYS, *_SEQUENCES, *_SETS, dict)
_CLASS_DATA = (int, float, str, list, dict, set, deque)
"""What a class may count with; anything else that it holds is code."""
_DEEPEST = 4
"""Objects inside of objects of a part."""
_SHOWN = 60
"""Characters of a value; a longer one is shown by its hash."""


@attrs.frozen(eq=False)
class Attribute:
    """One attribute of an object, or of its class."""

    owner: Any
    name: str
    value: Any

    @property
    def told(self) -> str:
        """The value in words that two processes can compare."""
        text = _told(self.value)
        return text if len(text) <= _SHOWN else f"{type(self.value).__name__} {_hash(text.encode())}"

    @property
    def plain(self) -> Any:
        """The value in types that a state may have, as far as it goes."""
        return list(self.value) if isinstance(self.value, (deque, *_SETS)) else self.value

    def put(self, plain: Any) -> None:
        """Take the ``plain`` of the same attribute in another process."""
        if isinstance(self.value, deque):
            self.value.clear()
            self.value.extend(plain)
            return
        value = type(self.value)(plain) if isinstance(self.value, _SETS) else plain
        # A frozen component may be a part too, and one that cheats is what is looked for.
        (type if isinstance(self.owner, type) else object).__setattr__(self.owner, self.name, value)


def attributes(part: object) -> dict[str, Attribute]:
    """By dotted name: those of the part, of the objects that it holds, and what is data in their classes."""
    return dict(_walk(part, "", {id(part)}))


def _walk(owner: object, prefix: str, seen: set[int]) -> Iterator[tuple[str, Attribute]]:
    kept = _kept(owner)
    for name, value in kept.items():
        if isinstance(value, _DATA):
            yield prefix + name, Attribute(owner, name, value)
        elif id(value) not in seen and prefix.count(".") < _DEEPEST:
            seen.add(id(value))
            yield from _walk(value, f"{prefix}{name}.", seen)
    for name, value in vars(type(owner)).items():
        if name not in kept and not name.startswith("__") and isinstance(value, _CLASS_DATA):
            yield prefix + name, Attribute(type(owner), name, value)


def _kept(owner: object) -> Mapping[str, Any]:
    """An object's attributes, without what the run itself saves and what is made anew before it is used."""
    values = {**_in_slots(owner), **getattr(owner, "__dict__", {})}
    match owner:
        case Run():
            return {}
        case MetricPart():
            return _without(values, {"sums", "rows"})
        case torch.nn.Module():
            # torch has no public way to ask which buffers a checkpoint leaves out.
            transient = {name: getattr(owner, name) for name in owner._non_persistent_buffers_set}  # noqa: SLF001
            return {**_without(values, vars(torch.nn.Module())), **transient, **dict(owner.named_children())}
        case torch.optim.Optimizer():
            # Those of torch's own with an underscore say what it has found out already.
            own = {name for name in values if name.startswith("_")}
            return _without(values, {"state", "param_groups", "defaults", *own})
    return values


def _in_slots(owner: object) -> dict[str, Any]:
    names = [name for kind in type(owner).__mro__ for name in np.atleast_1d(vars(kind).get("__slots__", ())).tolist()]
    return {name: getattr(owner, name) for name in names if not name.startswith("__") and hasattr(owner, name)}


def _without(values: Mapping[str, Any], names: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _told(value: Any) -> str:
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, _ARRAYS):
        return f"{value.dtype} {list(value.shape)} {_hash(_content(value))}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_told(key)}: {_told(item)}" for key, item in value.items()) + "}"
    if isinstance(value, _SEQUENCES):
        return "[" + ", ".join(map(_told, value)) + "]"
    if isinstance(value, _SETS):
        return "{" + ", ".join(sorted(map(_told, value))) + "}"
    return type(value).__qualname__


def _content(array: Any) -> bytes:
    if not isinstance(array, torch.Tensor):
        return bytes(array.tobytes())
    flat = array.detach().cpu().contiguous().flatten()
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
