"""A tokenizer whose vocabulary is written by hand, records, and random texts to compare with transformers."""

import numpy as np
import pytest
from tokenizers import normalizers

from rtx_core import Record, SpecialTokens
from rtx_plugins.tokenizers.common import bert_wordpiece

TOKENS = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "anna", "lives", "un", "##believ", "##ably", "in", "new", "york"),
    *("a", "b", "c", "d", "##a", "##b", "##c", "##d", ",", ".", "😀", "字"),
)


@pytest.fixture
def special_tokens():
    """BERT's."""
    return SpecialTokens(*TOKENS[:5])


@pytest.fixture
def tokenizer(special_tokens):
    """BERT's lower-case WordPiece over :data:`TOKENS`."""
    vocabulary = {token: number for number, token in enumerate(TOKENS)}
    return bert_wordpiece(vocabulary, special_tokens, normalizer=normalizers.BertNormalizer(lowercase=True))


@pytest.fixture
def theirs(tokenizer):
    """The BertTokenizer of transformers over the same vocabulary."""
    transformers = pytest.importorskip("transformers", reason="the test extra is not installed")
    return transformers.BertTokenizerFast(vocab=tokenizer.get_vocab(), do_lower_case=True)


@pytest.fixture
def record():
    """A function: a record of line 7 of ``data.jsonl`` with these columns."""

    def make(**values):
        return Record(values, "data.jsonl", 7)

    return make


@pytest.fixture
def tokens_of(tokenizer):
    """A function: a sample's tokens as text."""

    def decode(sample):
        return [tokenizer.id_to_token(number) for number in sample.input_ids.tolist()]

    return decode


@pytest.fixture
def random_words():
    """A function: so many lists of 0 to 20 words, the same ones for the same seed."""
    pieces = [
        *("Anna", "lives", "unbelievably", "unably", "new", "York", "abcd", "dcba", "bab", "xyz", "a,b.", "字a字"),
        *("😀", "😀a", "[MASK]", "b\u200dc", "\u200d", "á", "\ufffd", "a\u00a0b"),
    ]

    def make(count, seed):
        chance = np.random.default_rng(seed)
        return [chance.choice(pieces, size=chance.integers(0, 21)).tolist() for _ in range(count)]

    return make
