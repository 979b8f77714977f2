"""Which tokens of a vocabulary begin a word: what a sample, which has ids alone, can still tell of words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import tokenizers

_BYTE_LEVEL_SPACES = "ĠĊĉč"
"""What byte-level pieces have for a space, the end of a line, a tab and a carriage return."""


def begins_word(tokenizer: tokenizers.Tokenizer) -> np.ndarray | None:
    """By id (bool): True where a token begins a word; None where the vocabulary has no mark for it.

    WordPiece marks the pieces that go on with a word (``##``); a comma is a word. Byte-level (``Ġ``) and Metaspace
    vocabularies (``▁``) mark those that begin one; a comma belongs to the word before it, as in RoBERTa's masking.
    """
    settings = json.loads(tokenizer.to_str())
    prefix = settings["model"].get("continuing_subword_prefix")
    types = {step["type"]: step for step in _steps(settings.get("pre_tokenizer"))}
    if prefix:
        marks, first = prefix, False
    elif "ByteLevel" in types:
        marks, first = tuple(_BYTE_LEVEL_SPACES), True
    elif "Metaspace" in types:
        marks, first = types["Metaspace"]["replacement"], True
    else:
        return None
    vocabulary = tokenizer.get_vocab()
    begins = np.zeros(max(vocabulary.values(), default=-1) + 1, dtype=bool)
    for token, number in vocabulary.items():
        begins[number] = token.startswith(marks) == first
    return begins


def _steps(pre_tokenizer: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """A pre-tokenizer's settings, and those of the steps that it consists of."""
    if pre_tokenizer is not None:
        yield pre_tokenizer
        for step in pre_tokenizer.get("pretokenizers", ()):
            yield from _steps(step)
