"""What tasks share: values of a record with errors that name file and line, labels, and encoding in chunks."""

from __future__ import annotations

import json
import re
from collections import Counter
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import numpy as np
import tokenizers

from rtx_core import DataError, InputError, Outputs, Record, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import torch
    from tokenizers import Encoding

T = TypeVar("T")

IGNORED = -100
"""The target of a position that is neither learnt nor measured."""

_CHUNK_ITEMS = 1000
_CHUNK_CHARACTERS = 1_000_000  # the library needs some 100 bytes a token while a chunk is encoded
_NUMBER = re.compile(r"-?[0-9]+")
_SHOWN = 10
_SHOWN_CHARACTERS = 40


# --- columns ----------------------------------------------------------------------------------------------------------


def value_of(record: Record, column: str) -> Any:
    """The value of a column.

    :raises DataError: there is no such column; names those that there are.
    """
    try:
        return record.values[column]
    except KeyError:
        there = f"the columns are {quoted(record.values)}" if record.values else "there are none"
        message = f'no column "{column}"; {there}{_delimiter_hint(list(record.values))}'
        raise DataError(record.file, record.line, message) from None


def _delimiter_hint(columns: Sequence[str]) -> str:
    """A single column whose name looks like several: the table was cut at another character than the one it has."""
    mark = next((mark for mark in ";\t|" if mark in columns[0]), None) if len(columns) == 1 else None
    return "" if mark is None else f"; if they are several, write delimiter = {json.dumps(mark)} in [data]"


def text_of(record: Record, column: str) -> str:
    """The text in a column.

    :raises DataError: there is no such column, or it holds no text.
    """
    return _checked_text(value_of(record, column), record, column)


def words_of(record: Record, column: str) -> list[str]:
    """The words in a column that holds lists.

    :raises DataError: there is no such column, or it holds no list of texts.
    """
    return [_checked_text(word, record, column) for word in list_of(record, column, "words")]


def list_of(record: Record, column: str, content: str) -> list[Any]:
    """The list in a column; ``content`` says of what, for the error."""
    value = value_of(record, column)
    if not isinstance(value, list | tuple):
        message = f'column "{column}": expected a list of {content}, got {described(value)}'
        raise DataError(record.file, record.line, message)
    return list(value)


def label_of(value: Any, record: Record, column: str) -> str:
    """A label as text; an integer is the label of its decimal digits.

    :raises DataError: it is anything else, or empty.
    """
    if isinstance(value, str) and value:
        return _checked_text(value, record, column)
    if isinstance(value, Integral) and not isinstance(value, bool):
        return str(int(value))
    message = f'column "{column}": expected a label (text or an integer), got {described(value)}'
    raise DataError(record.file, record.line, message)


def _checked_text(value: Any, record: Record, column: str) -> str:
    if not isinstance(value, str):
        message = f'column "{column}": expected text, got {described(value)}'
        raise DataError(record.file, record.line, message)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            broken = f"\\u{ord(value[error.start]):04x}"
            message = f'column "{column}": half a surrogate pair ({broken}) at character {error.start + 1} is no text'
            raise DataError(record.file, record.line, message) from None
    return value


def described(value: Any) -> str:
    """A value in words, for an error: as a file of data has it, cut short."""
    if value is None:
        return "null"
    if isinstance(value, str) and not value:
        return "an empty text"
    names = {bool: "the truth value", str: "the text", list: "the list", tuple: "the list", dict: "the object"}
    name = names.get(type(value), "the number" if isinstance(value, Real) else f"a {type(value).__name__}")
    text = json.dumps(value, ensure_ascii=False, default=str)
    return f"{name} {text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + '…'}"


def quoted(names: Iterable[str]) -> str:
    """Names for an error: quoted, at most ten of them."""
    names = list(names)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(f'"{name}"' for name in names[:_SHOWN]) + more


# --- labels -----------------------------------------------------------------------------------------------------------


def at_least_two_names(_instance: object, _attribute: attrs.Attribute[Any], value: tuple[str, ...] | None) -> None:
    """Validator of a ``labels`` field.

    :raises ValueError: the names are too few, or one occurs twice.
    """
    if value is None:
        return
    if len(value) < 2:  # noqa: PLR2004 - with one class there is nothing to decide
        raise ValueError("expected at least two labels")
    _refuse_repeated(value)


def names_once(_instance: object, _attribute: attrs.Attribute[Any], value: str | tuple[str, ...] | None) -> None:
    """Validator of a field of labels of which one is enough, or of columns.

    :raises ValueError: there is no name, or one occurs twice.
    """
    if value is None or isinstance(value, str):
        return
    if not value:
        raise ValueError("expected at least one name")
    _refuse_repeated(value)


def _refuse_repeated(value: tuple[str, ...]) -> None:
    twice = [name for name, count in Counter(value).items() if count > 1]
    if twice:
        raise ValueError(f"{quoted(twice)} occurs more than once")


def outputs_of(labels: Iterable[tuple[str, Record]], column: str, names: tuple[str, ...] | None) -> Outputs:
    """Count the labels of the training data.

    :param labels: each label with the record that it stands in.
    :param names: the labels that there are; None takes those of the data, sorted.
    :raises DataError: a label is not among the names.
    :raises InputError: the data have fewer than two labels.
    """
    counts: Counter[str] = Counter()
    known = frozenset(names or ())
    for label, record in labels:
        if names is not None and label not in known:
            raise unknown_label(label, names, record, column)
        counts[label] += 1
    if names is None:
        names = sorted_labels(counts)
    if len(names) < 2:  # noqa: PLR2004 - with one class there is nothing to decide
        there = f"only the label {quoted(names)}" if names else "no label"
        raise InputError(f'task: column "{column}" of the training data has {there}; at least two are needed')
    return Outputs(size=len(names), labels=names, counts=tuple(counts[name] for name in names))


def sorted_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """By code points; by value where all are integers, so that label 10 comes after 9."""
    labels = sorted(labels)
    if all(_NUMBER.fullmatch(label) for label in labels):
        labels.sort(key=int)
    return tuple(labels)


def unknown_label(label: str, names: Iterable[str], record: Record, column: str) -> DataError:
    """The error about a label that the training data don't have."""
    message = f'column "{column}": unknown label "{label}"; the labels are {quoted(names)}'
    return DataError(record.file, record.line, message)


@attrs.frozen
class Labels:
    """The classes of a task by number and by name."""

    names: tuple[str, ...]
    _numbers: dict[str, int] = attrs.field(init=False, repr=False, eq=False)

    @_numbers.default
    def _(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    @classmethod
    def of(cls, outputs: Outputs) -> Labels:
        """The labels of a task's outputs.

        :raises InputError: the outputs have no names.
        """
        if outputs.labels is None:
            raise InputError("task: its outputs have no labels, but classes need names")
        return cls(outputs.labels)

    def number(self, value: Any, record: Record, column: str) -> int:
        """The class of a label in the data.

        :raises DataError: it is no label, or none of these.
        """
        label = label_of(value, record, column)
        number = self._numbers.get(label)
        if number is None:
            raise unknown_label(label, self.names, record, column)
        return number

    def scores(self, logits: torch.Tensor) -> dict[str, float]:
        """Each label's probability, from logits ``[K]``."""
        return dict(zip(self.names, logits.double().softmax(-1).tolist(), strict=True))


# --- encoding ---------------------------------------------------------------------------------------------------------


def truncating(tokenizer: tokenizers.Tokenizer, max_length: int, *, pair: bool = False) -> tokenizers.Tokenizer:
    """A copy that keeps sequences to ``max_length`` tokens; the original goes into the model's folder as it is.

    A pair loses tokens of its longer text first. What is cut off is in an encoding's ``overflowing``.

    :raises InputError: the special tokens leave no room for text.
    """
    text_room(tokenizer, max_length, pair=pair)
    copy = tokenizers.Tokenizer.from_str(tokenizer.to_str())
    copy.enable_truncation(max_length, strategy="longest_first")
    return copy


def text_room(tokenizer: tokenizers.Tokenizer, max_length: int, *, pair: bool = False) -> int:
    """How many tokens of a text, or of a pair, fit beside the special tokens.

    :raises InputError: none.
    """
    special = tokenizer.num_special_tokens_to_add(is_pair=pair)
    if max_length <= special:
        raise InputError(
            f"task.max_length: {max_length} tokens leave no room for text beside {special} special tokens; "
            f"write at least {special + 1}"
        )
    return max_length - special


def chunks(
    items: Iterable[T], size: Callable[[T], int], *, characters_of_each: int = _CHUNK_CHARACTERS
) -> Iterator[list[T]]:
    """Lists of consecutive items, for calls that encode many texts at once; ``size`` counts an item's characters."""
    chunk: list[T] = []
    characters = 0
    for item in items:
        chunk.append(item)
        characters += size(item)
        if len(chunk) == _CHUNK_ITEMS or characters >= characters_of_each:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def sample_of(encoding: Encoding, target_positions: Sequence[int], targets: Sequence[int] | np.ndarray) -> Sample:
    """A sample of one encoded sequence and its targets: classes, or an array that is kept as it is."""
    return Sample(
        input_ids=np.array(encoding.ids, dtype=np.int32),
        token_types=np.array(encoding.type_ids, dtype=np.uint8),
        target_positions=np.array(target_positions, dtype=np.int32),
        targets=targets if isinstance(targets, np.ndarray) else np.array(targets, dtype=np.int64),
    )


def special_ids(tokenizer: tokenizers.Tokenizer) -> dict[str, int]:
    """The tokenizer's special tokens and their ids."""
    return {token.content: number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
