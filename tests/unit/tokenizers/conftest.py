"""Special tokens, a small text, and random texts that hold what real ones hold."""

import numpy as np
import pytest

from rtx_core import SpecialTokens

PIECES = (
    *("the", "whale", "Whales", "swam", "unbelievably", "naïve", "Café", "ÉCOLE", "straße", "I'm", "3.14", "€5"),
    *("汉字", "東京tower", "カタカナ", "한국어", "привет", "مرحبا", "שלום", "😀", "👩\u200d👩\u200d👧", "🇩🇪"),
    *("e\u0301", "a\u00a0b", "x\u2028y", "\u200b", "\ufeff", "\x07", "\ufffd"),
    *("--", "...", "[MASK]", "#hash", "@user", "x" * 120),
)


@pytest.fixture
def special_tokens():
    return SpecialTokens(pad="[PAD]", unk="[UNK]", cls="[CLS]", sep="[SEP]", mask="[MASK]")


@pytest.fixture
def roberta_tokens():
    """RoBERTa's: two separators in a pair, and one token type."""
    return SpecialTokens(
        pad="<pad>", unk="<unk>", cls="<s>", sep="</s>", mask="<mask>", pair_separators=2, pair_token_type=0
    )


@pytest.fixture
def random_texts():
    """A function: so many texts of 0 to 12 words each, the same ones for the same seed."""

    def make(count, seed):
        chance = np.random.default_rng(seed)
        spaces = np.array([" ", "  ", "\t", "\n", "\r\n", ""])
        texts = []
        for _ in range(count):
            words = chance.choice(PIECES, size=chance.integers(0, 13))
            texts.append(
                "".join(word + space for word, space in zip(words, chance.choice(spaces, len(words)), strict=True))
            )
        return texts

    return make
