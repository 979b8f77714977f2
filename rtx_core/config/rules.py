"""Run the validators of a field one by one, each on the element that it is about, and say plainly what is broken."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import attrs

from rtx_core.config.shapes import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rtx_core.config.tree import Node

# attrs stops at a field's first broken rule and has no public way to the others, so rules are taken apart by type.
_And: Any = type(attrs.validators.and_())
_Optional: Any = type(attrs.validators.optional(attrs.validators.ge(0)))
_DeepIterable: Any = type(attrs.validators.deep_iterable(attrs.validators.ge(0)))
_DeepMapping: Any = type(attrs.validators.deep_mapping(attrs.validators.ge(0), attrs.validators.ge(0)))

_PLAIN = (
    (re.compile(r"'\w+' must be (?P<rule>[<>]=?) (?P<bound>\S+): .*"), "must be {rule} {bound}, got {value}"),
    (
        re.compile(r"Length of '\w+' must be (?P<rule>[<>]=) (?P<bound>\d+): .*"),
        "needs {count} {bound} of them, got {size}",
    ),
    (re.compile(r"'\w+' must be in (?P<options>.*) \(got .*"), "must be one of {options}, got {value}"),
    (re.compile(r"'\w+' must match regex '(?P<pattern>.*)' \(.*"), "must have the form {pattern}, got {value}"),
    (re.compile(r"'\w+' (?P<rest>must .*)"), "{rest}"),
)


def broken_rules(field: attrs.Attribute[Any], part: object, value: Any, node: Node) -> Iterator[tuple[Node, str]]:
    """What is wrong with a field's value: the element at fault, and what it should be.

    :param part: an object whose other fields are set, as far as they are valid; validators may look at them.
    :param node: where the value was written.
    """
    for validator, element, place in _alone(field.validator, value, node):
        try:
            validator(part, field, element)
        except AttributeError:  # the rule looks at a field that is wrong itself, so it can't be judged
            continue
        except (ValueError, TypeError) as error:
            yield place, plain_words(str(error.args[0]) if error.args else str(error), element)


def plain_words(message: str, value: object) -> str:
    """A message of attrs' validators without its field's name, as ``must be < 1.0, got 1.0``."""
    for pattern, words in _PLAIN:
        match = pattern.fullmatch(message)
        if match:
            groups = match.groupdict()
            count = {">=": "at least", "<=": "at most"}.get(groups.get("rule", ""), "")
            size = len(value) if hasattr(value, "__len__") else 0
            return words.format(**groups, value=shown(value), count=count, size=size)
    return message


def _alone(validator: Any, value: Any, node: Node) -> Iterator[tuple[Any, Any, Node]]:
    """Every single rule with the element that it is for."""
    if validator is None:
        return
    if isinstance(validator, _And):
        for rule in validator._validators:  # noqa: SLF001 - see above
            yield from _alone(rule, value, node)
    elif isinstance(validator, _Optional):
        if value is not None:
            yield from _alone(validator.validator, value, node)
    elif isinstance(validator, _DeepIterable):
        yield from _alone(validator.iterable_validator, value, node)
        for index, element in enumerate(value):
            yield from _alone(validator.member_validator, element, node.part(index))
    elif isinstance(validator, _DeepMapping):
        yield from _alone(validator.mapping_validator, value, node)
        for key, element in value.items():
            yield from _alone(validator.key_validator, key, node.part(key))
            yield from _alone(validator.value_validator, element, node.part(key))
    else:
        yield validator, value, node
