"""What the ``config.json`` of every family of Hugging Face's says alike."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs

from rtx_core import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rtx_core import Architecture, Outputs

PROBLEM_TYPES = {
    "sequence_classification": "single_label_classification",
    "multi_label_classification": "multi_label_classification",
    "regression": "regression",
}
"""The tasks of a family's class for sequence classification, and the ``problem_type`` that tells its losses apart."""

LANGUAGE = ("masked_lm", "causal_lm")
"""The tasks that predict tokens; both have the same head."""

_OWN = ("preset", "from_pretrained", "load")
"""Fields of every architecture that ``config.json`` knows nothing of."""


def refuse_another_model(config: Mapping[str, Any], only: Mapping[str, Any]) -> None:
    """See that a ``config.json`` describes what the component computes.

    :param only: keys that make another model of it, ``model_type`` first, and the value that doesn't; a config may
        leave them out, or null.
    :raises ValueError: a key says that this is another model.
    """
    for key, expected in only.items():
        value = config.get(key)
        if value not in (None, expected):
            raise ValueError(
                f"config.json has {key} {json.dumps(value)}; {only['model_type']} takes {json.dumps(expected)} only"
            )


def heads_rule(field: str, width: int, heads: int) -> Iterator[tuple[str, str]]:
    """Attention heads share the width equally; as ``check`` yields it.

    :param field: where the width is written.
    """
    if width % heads:
        yield field, f"{width} can't be shared equally by {heads} attention heads"


def padding_rule(architecture: Architecture) -> Iterator[tuple[str, str]]:
    """The padding token has a row in the token table; as ``check`` yields it."""
    pad, rows = architecture.pad_token_id, architecture.vocab_size
    if rows is not None and pad is not None and pad >= rows:
        yield "pad_token_id", f"{pad} is not below vocab_size, {rows}"


def table_rows(architecture: Architecture, vocab_size: int) -> int:
    """Rows of the token table for a vocabulary of that many entries.

    :raises InputError: the vocabulary is larger than the token table that the settings ask for.
    """
    rows = vocab_size if architecture.vocab_size is None else architecture.vocab_size
    if rows < vocab_size:
        raise InputError(
            f"architecture.vocab_size: the token table has {rows} rows, but the vocabulary {vocab_size} entries; "
            "take the tokenizer that belongs to the weights, or a larger table"
        )
    return rows


def kept_config(
    architecture: Architecture, classes: Mapping[str | None, str], task: str | None, outputs: Outputs
) -> dict[str, Any]:
    """``config.json`` of the kept model, without ``vocab_size`` where that is None: the token table knows it.

    :param classes: transformers' class by task; under None the encoder's, which any other task keeps alone.
    """
    unknown = {field.name for field in attrs.fields(type(architecture)) if not field.init}.union(_OWN)
    config = attrs.asdict(architecture, recurse=False, filter=attrs.filters.exclude(*unknown))
    if architecture.vocab_size is None:
        del config["vocab_size"]
    config |= {
        "model_type": architecture.model_type,
        "architectures": [classes.get(task, classes[None])],
        "dtype": "float32",
    }
    return config | (head_config(task, outputs) if task in classes and task is not None else {})


def head_config(task: str, outputs: Outputs) -> dict[str, Any]:
    """What ``config.json`` says of a task's own head: its labels, and which loss it is for."""
    config: dict[str, Any] = {"problem_type": PROBLEM_TYPES[task]} if task in PROBLEM_TYPES else {}
    if task not in LANGUAGE:
        labels = outputs.labels or tuple(f"LABEL_{index}" for index in range(outputs.size))
        config["id2label"] = {str(index): label for index, label in enumerate(labels)}
        config["label2id"] = {label: index for index, label in enumerate(labels)}
    return config
