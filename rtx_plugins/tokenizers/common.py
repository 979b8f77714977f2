"""BERT's WordPiece around a vocabulary, and the template that puts an architecture's special tokens around a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rtx_core import SpecialTokens

CONTINUATION = "##"
"""What a piece that continues a word begins with."""
MAX_WORD_LENGTH = 100
"""Characters of the longest word that is cut into pieces; BERT takes a longer one as unknown."""


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


def template(special_tokens: SpecialTokens, vocabulary: Mapping[str, int]) -> processors.TemplateProcessing:
    """``[CLS] A [SEP]`` and ``[CLS] A [SEP] B [SEP]``, as the architecture wants separators and token types."""
    cls, sep, second = special_tokens.cls, special_tokens.sep, special_tokens.pair_token_type
    between = " ".join([sep] * special_tokens.pair_separators)
    return processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {between} $B:{second} {sep}:{second}",
        special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])],
    )
