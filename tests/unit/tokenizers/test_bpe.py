"""The trained byte-level BPE: its merges against a plain implementation, its ids against transformers."""

import json
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from rtx_core import InputError, SpecialTokens
from rtx_plugins.tokenizers.bpe import Bpe

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())


def entries(tokenizer):
    """The vocabulary in the order of its numbers."""
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.get)


def merged(words, first, size, min_frequency):
    """Merge the most frequent pair until the vocabulary is full; of equal ones that with the lowest numbers."""
    numbers = {token: number for number, token in enumerate(first)}
    split = {word: list(word) for word in words}
    while len(numbers) < size:
        pairs = Counter()
        for word, pieces in split.items():
            for pair in pairwise(pieces):
                pairs[pair] += words[word]
        pair = min(pairs, key=lambda p: (-pairs[p], numbers[p[0]], numbers[p[1]]), default=None)
        if pair is None or pairs[pair] < min_frequency:
            break
        numbers.setdefault("".join(pair), len(numbers))
        for pieces in split.values():
            at = 0
            while at + 1 < len(pieces):
                if (pieces[at], pieces[at + 1]) == pair:
                    pieces[at : at + 2] = ["".join(pair)]
                at += 1
    return sorted(numbers, key=numbers.get)


def test_vocabulary_begins_with_special_tokens_and_every_byte(special_tokens):
    """The special tokens have the first numbers, then come the 256 bytes, and no number is left out."""
    tokenizer = Bpe(vocab_size=270).build(["hello world, hello there"] * 3, special_tokens)
    assert entries(tokenizer)[: 5 + 256] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *BYTES]
    assert sorted(tokenizer.get_vocab().values()) == list(range(tokenizer.get_vocab_size()))


@pytest.mark.parametrize("size", [261, 262, 300, 1000])
def test_vocabulary_is_never_larger_than_asked(special_tokens, random_texts, size):
    """With room for the bytes alone nothing is merged."""
    tokenizer = Bpe(vocab_size=size).build(random_texts(60, seed=1), special_tokens)
    assert tokenizer.get_vocab_size() <= size
    assert (tokenizer.get_vocab_size() == 261) == (size == 261)


@pytest.mark.parametrize("min_frequency", [1, 2, 5])
def test_merges_are_those_of_the_plain_algorithm(special_tokens, min_frequency):
    """The whole vocabulary is that of counting all pairs anew before each merge, each word as often as it occurs."""
    words = {"hug": 10, "hugs": 5, "pug": 5, "pun": 12, "bun": 4, "bunny": 1, "gun": 3, "rerun": 2}
    texts = [word for word, count in words.items() for _ in range(count)]
    tokenizer = Bpe(vocab_size=400, min_frequency=min_frequency).build(texts, special_tokens)
    assert entries(tokenizer) == merged(words, [*special_tokens.names, *BYTES], 400, min_frequency)


def test_the_space_is_part_of_the_word_after_it(special_tokens):
    """A word at the beginning has other pieces than the same word further on, unless a space is put before it."""
    texts = ["low low low"] * 5
    assert Bpe().build(texts, special_tokens).encode("low low").tokens[1:-1] == ["low", "Ġlow"]
    prefixed = Bpe(add_prefix_space=True).build(texts, special_tokens)
    assert prefixed.encode("low low").tokens[1:-1] == ["Ġlow", "Ġlow"]


def test_lower_case(special_tokens):
    """Case is kept unless it is asked not to be."""
    texts = ["Low LOW"] * 5
    assert Bpe().build(texts, special_tokens).encode("Low LOW").tokens[1:-1] == ["Low", "ĠLOW"]
    assert Bpe(lowercase=True).build(texts, special_tokens).encode("Low LOW").tokens[1:-1] == ["low", "Ġlow"]


def test_offsets_leave_the_space_out(special_tokens):
    """A piece's place in the text is that of its letters, with and without a space put before the text."""
    for add_prefix_space in (False, True):
        tokenizer = Bpe(add_prefix_space=add_prefix_space).build(["ab cd"] * 5, special_tokens)
        assert tokenizer.encode("ab cd").offsets[1:-1] == [(0, 2), (3, 5)]


def test_templates_follow_the_architecture(special_tokens, roberta_tokens):
    """BERT's pair and RoBERTa's."""
    bert = Bpe().build(["a b"], special_tokens).encode("a", "b")
    assert (bert.tokens, bert.type_ids) == (["[CLS]", "a", "[SEP]", "b", "[SEP]"], [0, 0, 0, 1, 1])
    roberta = Bpe().build(["a b"], roberta_tokens).encode("a", "b")
    assert (roberta.tokens, roberta.type_ids) == (["<s>", "a", "</s>", "</s>", "b", "</s>"], [0] * 6)


def test_the_mask_takes_the_space_before_it(roberta_tokens):
    """As RoBERTa's: a mask in a text stands for a word and its space."""
    tokenizer = Bpe().build(["a b c"] * 3, roberta_tokens)
    ids = tokenizer.encode("a <mask> c").ids
    assert [tokenizer.id_to_token(number) for number in ids] == ["<s>", "a", "<mask>", "Ġc", "</s>"]


TRAINED = Bpe(vocab_size=300).build(
    ["the naïve whale swam, the 汉字 😀 swam"] * 3, SpecialTokens("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
)


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.characters(codec="utf-8")))
def test_no_text_is_unknown(text):
    """Any text comes back from its ids as it was, and none of them is the unknown token."""
    ids = TRAINED.encode(text, add_special_tokens=False).ids
    assert TRAINED.decode(ids, skip_special_tokens=False) == text
    assert TRAINED.token_to_id("[UNK]") not in ids


@pytest.mark.parametrize("texts", [[], [""], [" \n", "\u00a0"]])
def test_no_words_is_one_clear_error(special_tokens, texts):
    """Without a word there is nothing to train on."""
    with pytest.raises(InputError, match="tokenizer.bpe: the training text holds no words to train on"):
        Bpe().build(texts, special_tokens)


def test_texts_are_read_once(special_tokens):
    """An iterator that can't start again is enough."""
    assert "hello" in Bpe().build(iter(["", "hello", "hello"]), special_tokens).get_vocab()


def test_a_word_without_an_end_is_trained_on(special_tokens):
    """200,000 letters or spaces in a row take no longer than as many words, and don't end the process."""
    letters = "hawk" * 50_000
    tokenizer = Bpe(vocab_size=400).build(["the whale the whale " * 500, letters, " " * 200_000], special_tokens)
    assert "".join(tokenizer.encode(letters).tokens[1:-1]).removeprefix("▁") == letters


def test_what_reading_raises_comes_through(special_tokens):
    """An error in a file of data is said as it is, not as the tokenizer's."""

    def texts():
        yield "a"
        raise InputError("data.csv:3: broken")

    with pytest.raises(InputError, match="^data.csv:3: broken$"):
        Bpe().build(texts(), special_tokens)


@pytest.mark.parametrize("size", [260, 0, -1])
def test_vocabulary_without_room_for_bytes_is_refused(size):
    """The size must hold the special tokens and every byte."""
    with pytest.raises(ValueError, match="vocab_size"):
        Bpe(vocab_size=size)


@pytest.mark.parametrize("add_prefix_space", [False, True])
def test_ids_equal_those_of_transformers(roberta_tokens, random_texts, add_prefix_space):
    """100 random texts and 100 pairs of them have the ids of transformers' RobertaTokenizer over the same merges."""
    transformers = pytest.importorskip("transformers", reason="the test extra is not installed")
    component = Bpe(vocab_size=500, add_prefix_space=add_prefix_space)
    ours = component.build(random_texts(100, seed=4), roberta_tokens)
    model = json.loads(ours.to_str())["model"]
    theirs = transformers.RobertaTokenizer(
        vocab=model["vocab"], merges=[tuple(pair) for pair in model["merges"]], add_prefix_space=add_prefix_space
    )
    texts = random_texts(200, seed=3)
    first, second = texts[:100], texts[100:]
    for inputs, expected in ((first, theirs(first)), (list(zip(first, second, strict=True)), theirs(first, second))):
        assert [encoding.ids for encoding in ours.encode_batch(inputs)] == expected["input_ids"]
