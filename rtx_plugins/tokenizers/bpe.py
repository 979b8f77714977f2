"""Byte-level byte-pair encoding, trained on the training text as a stage of the run.

Sennrich et al. 2016 (arXiv:1508.07909), on bytes as in GPT-2 (Radford et al. 2019) and RoBERTa (arXiv:1907.11692). The
256 bytes are in every vocabulary, so no text has an unknown token. The vocabulary is a pure function of the text: the
trainer numbers the bytes by their characters' code points, and breaks ties between merges by those numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from rtx_core import SpecialTokens, Tokenizer, hookimpl
from rtx_plugins.tokenizers.common import LARGEST, byte_level_bpe, to_train_on

if TYPE_CHECKING:
    from collections.abc import Iterable

_SMALLEST = 5 + 256  # the special tokens and every byte


@attrs.frozen(kw_only=True)
class Bpe(Tokenizer):
    """Pieces of words in bytes; the space before a word is part of its first piece (written ``Ġ``)."""

    vocab_size: int = attrs.field(
        default=30_000, validator=[attrs.validators.ge(_SMALLEST), attrs.validators.le(LARGEST)]
    )
    """Most entries of the vocabulary, special tokens and the 256 bytes included; a small text may give fewer."""
    min_frequency: int = attrs.field(default=2, validator=attrs.validators.ge(1))
    """Two pieces are joined into one only where they stand together at least this often."""
    lowercase: bool = False
    """Make all text lower case."""
    add_prefix_space: bool = False
    """Put a space before each text that has none, so that its first word has the pieces that it has further on."""

    def build(self, texts: Iterable[str], special_tokens: SpecialTokens) -> tokenizers.Tokenizer:
        """Train; the special tokens come first in the vocabulary, in the order of ``special_tokens.names``.

        :raises InputError: the texts hold no word.
        """
        scratch = tokenizers.Tokenizer(models.BPE())
        if self.lowercase:
            scratch.normalizer = normalizers.Lowercase()
        scratch.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=self.add_prefix_space)
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocab_size,
            min_frequency=self.min_frequency,
            special_tokens=list(special_tokens.names),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        scratch.train_from_iterator(to_train_on(texts, "bpe"), trainer)
        return byte_level_bpe(
            scratch.model, special_tokens, add_prefix_space=self.add_prefix_space, normalizer=scratch.normalizer
        )


@hookimpl
def tokenizer() -> dict[str, type[Tokenizer]]:
    """Offer the component."""
    return {"bpe": Bpe}
