"""What tokenizers share: BERT's WordPiece, byte-level BPE, and an architecture's special tokens around a text."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from rtx_core import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rtx_core import SpecialTokens

CONTINUATION = "##"
"""What a piece that continues a word begins with."""
MAX_WORD_LENGTH = 100
"""Characters of the longest word that is cut into pieces; BERT takes a longer one as unknown."""

LARGEST = 2**24
"""Entries of the largest vocabulary to train; the trainers set memory aside for as many as are asked for, and abort the
process where there is not so much."""

_LONGEST_WORD = 1000
_LONG_RUN = re.compile(rf"\S{{{_LONGEST_WORD}}}|\s{{{_LONGEST_WORD}}}")  # white space is a word too where it is kept


def bert_wordpiece(
    vocabulary: Mapping[str, int],
    special_tokens: SpecialTokens,
    *,
    normalizer: normalizers.Normalizer,
) -> tokenizers.Tokenizer:
    """BERT's tokenizer over a vocabulary that holds the special tokens."""
    model = models.WordPiece(
        dict(vocabulary),
        unk_token=special_tokens.unk,
        continuing_subword_prefix=CONTINUATION,
        max_input_chars_per_word=MAX_WORD_LENGTH,
    )
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix=CONTINUATION)
    tokenizer.add_special_tokens(list(special_tokens.names))
    tokenizer.post_processor = template(special_tokens, vocabulary)
    return tokenizer


def byte_level_bpe(
    model: models.BPE,
    special_tokens: SpecialTokens,
    *,
    add_prefix_space: bool,
    normalizer: normalizers.Normalizer | None = None,
) -> tokenizers.Tokenizer:
    """RoBERTa's tokenizer over a model whose vocabulary holds the special tokens."""
    tokenizer = tokenizers.Tokenizer(model)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(registered(special_tokens))
    tokenizer.post_processor = wrapping(tokenizer, special_tokens)
    return tokenizer


def registered(special_tokens: SpecialTokens) -> list[tokenizers.AddedToken]:
    """The special tokens where a space belongs to the word after it: the mask takes the one before it, as a word would.

    That is how RoBERTa and XLM-RoBERTa have it.
    """
    return [
        tokenizers.AddedToken(token, lstrip=token == special_tokens.mask, normalized=False, special=True)
        for token in special_tokens.names
    ]


def wrapping(tokenizer: tokenizers.Tokenizer, special_tokens: SpecialTokens) -> processors.PostProcessor:
    """The architecture's template; where the space belongs to the word after it (byte-level), offsets leave it out."""
    around = template(special_tokens, tokenizer.get_vocab())
    if not isinstance(tokenizer.decoder, decoders.ByteLevel):
        return around
    add_prefix_space = getattr(tokenizer.pre_tokenizer, "add_prefix_space", False)
    return processors.Sequence([processors.ByteLevel(add_prefix_space=add_prefix_space, trim_offsets=True), around])


def to_train_on(texts: Iterable[str], name: str) -> Iterator[str]:
    """The texts, from the first that is not blank, with an end to each word: after 1,000 characters a text is cut.

    The library's trainers take a word as a whole: for bytes time grows with the square of its length (25 s for 200,000
    characters), and for pieces by likelihood a long one ends the process.

    :param name: the tokenizer's, for the error.
    :raises InputError: all are blank.
    """
    texts = iter(texts)
    for text in texts:
        if text.strip():
            return (part for each in itertools.chain([text], texts) for part in _with_short_words(each))
    raise InputError(f"tokenizer.{name}: the training text holds no words to train on")


def _with_short_words(text: str) -> list[str]:
    if len(text) <= _LONGEST_WORD:
        return [text]
    ends = [match.end() for match in _LONG_RUN.finditer(text)]
    return [text[start:end] for start, end in itertools.pairwise([0, *ends, len(text)])]


def template(special_tokens: SpecialTokens, vocabulary: Mapping[str, int]) -> processors.TemplateProcessing:
    """``[CLS] A [SEP]`` and ``[CLS] A [SEP] B [SEP]``, as the architecture wants separators and token types."""
    cls, sep, second = special_tokens.cls, special_tokens.sep, special_tokens.pair_token_type
    between = " ".join([sep] * special_tokens.pair_separators)
    return processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {between} $B:{second} {sep}:{second}",
        special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])],
    )
