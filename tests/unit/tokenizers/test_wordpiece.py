"""The trained WordPiece: its vocabulary against a plain implementation, its ids against transformers."""

from collections import Counter
from itertools import pairwise

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers

from rtx_core import InputError
from rtx_plugins.tokenizers import wordpiece
from rtx_plugins.tokenizers.wordpiece import WordPiece


def entries(tokenizer):
    """The vocabulary in the order of its numbers."""
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.get)


def merged(words, first, size, min_frequency):
    """Merge the most frequent pair until the vocabulary is full; of equal ones that with the lowest numbers."""
    numbers = {token: number for number, token in enumerate(first)}
    split = {word: [word[0], *(f"##{c}" for c in word[1:])] for word in words}
    while len(numbers) < size:
        pairs = Counter()
        for word, pieces in split.items():
            for pair in pairwise(pieces):
                pairs[pair] += words[word]
        if not pairs:
            break
        pair = min(pairs, key=lambda p: (-pairs[p], numbers[p[0]], numbers[p[1]]))
        if pairs[pair] < min_frequency:
            break
        new = pair[0] + pair[1].removeprefix("##")
        numbers.setdefault(new, len(numbers))
        for pieces in split.values():
            at = 0
            while at + 1 < len(pieces):
                if (pieces[at], pieces[at + 1]) == pair:
                    pieces[at : at + 2] = [new]
                at += 1
    return sorted(numbers, key=numbers.get)


def test_vocabulary_begins_with_special_tokens_and_has_no_gaps(special_tokens):
    """The special tokens have the first numbers, in their order, and no number is left out."""
    tokenizer = WordPiece(vocab_size=60).build(["hello world, hello there"] * 3, special_tokens)
    assert tuple(entries(tokenizer)[:5]) == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    assert sorted(tokenizer.get_vocab().values()) == list(range(tokenizer.get_vocab_size()))


@pytest.mark.parametrize("size", [7, 8, 20, 60, 300])
def test_vocabulary_is_never_larger_than_asked(special_tokens, random_texts, size):
    """Where not even the characters have room, only the most frequent ones are taken."""
    tokenizer = WordPiece(vocab_size=size).build(random_texts(60, seed=1), special_tokens)
    assert 5 < tokenizer.get_vocab_size() <= size


@pytest.mark.parametrize("min_frequency", [1, 2, 5])
def test_merges_are_those_of_the_plain_algorithm(special_tokens, min_frequency):
    """The whole vocabulary is that of counting all pairs anew before each merge, each word as often as it occurs."""
    words = {"hug": 10, "hugs": 5, "pug": 5, "pun": 12, "bun": 4, "bunny": 1, "gun": 3, "rerun": 2}
    texts = [" ".join([word] * count) for word, count in words.items()]
    tokenizer = WordPiece(vocab_size=200, min_frequency=min_frequency).build(texts, special_tokens)
    letters = sorted(set("".join(words)))
    first = [*special_tokens.names, *letters, *(f"##{letter}" for letter in letters)]
    assert entries(tokenizer) == merged(words, first, 200, min_frequency)


def test_a_word_counts_as_often_as_it_occurs(special_tokens):
    """One merge fits: that of the pair in a word that occurs 2,500 times, not of the one that occurs 2,499 times."""
    texts = ["ab " * 2499, "cd " * 2500]
    tokenizer = WordPiece(vocab_size=5 + 4 + 4 + 1).build(texts, special_tokens)
    assert entries(tokenizer)[-1] == "cd"


def test_rare_characters_are_unknown_and_join_nothing(special_tokens):
    """A word with a character beyond the alphabet's limit is unknown, and its other characters count for nothing."""
    texts = ["aaa bbb "] * 10 + ["aXb "] * 5
    tokenizer = WordPiece(vocab_size=100, limit_alphabet=2, lowercase=False).build(texts, special_tokens)
    assert entries(tokenizer)[5:9] == ["a", "b", "##a", "##b"]
    assert "ab" not in tokenizer.get_vocab()
    assert tokenizer.encode("aXb ab").tokens == ["[CLS]", "[UNK]", "a", "##b", "[SEP]"]


def test_characters_that_stand_alone_take_one_entry(special_tokens):
    """Punctuation and Chinese characters are words of their own, so the vocabulary has no ``##`` form of them."""
    vocabulary = WordPiece(vocab_size=100).build(["汉字, ok!"], special_tokens).get_vocab()
    assert {"汉", "字", ",", "!", "o", "##o", "k", "##k"} <= vocabulary.keys()
    assert not {"##汉", "##字", "##,", "##!"} & vocabulary.keys()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["cafe", "字", "字"]),
        ({"lowercase": False}, ["Café", "字", "字"]),
        ({"strip_accents": False}, ["café", "字", "字"]),
        ({"lowercase": False, "strip_accents": True}, ["Cafe", "字", "字"]),
        ({"handle_chinese_chars": False}, ["cafe", "字字"]),
    ],
)
def test_options_normalise_as_in_bert(special_tokens, options, expected):
    """Case, accents and Chinese characters are treated as the settings say, in training and afterwards."""
    tokenizer = WordPiece(vocab_size=100, min_frequency=1, **options).build(["Café 字字 "] * 2, special_tokens)
    assert tokenizer.encode("Café 字字").tokens == ["[CLS]", *expected, "[SEP]"]


def test_template_follows_the_architecture(special_tokens):
    """A family with two separators in a pair and one token type gets them."""
    family = attrs.evolve(special_tokens, cls="<s>", sep="</s>", mask="<mask>", pair_separators=2, pair_token_type=0)
    encoding = WordPiece(vocab_size=100).build(["a b"], family).encode("a", "b")
    assert encoding.tokens == ["<s>", "a", "</s>", "</s>", "b", "</s>"]
    assert encoding.type_ids == [0] * 6


def test_second_text_has_the_other_token_type(special_tokens):
    """BERT's pair: the second text and its separator have token type 1."""
    encoding = WordPiece(vocab_size=100).build(["a b"], special_tokens).encode("a", "b")
    assert encoding.tokens == ["[CLS]", "a", "[SEP]", "b", "[SEP]"]
    assert encoding.type_ids == [0, 0, 0, 1, 1]


def test_mask_in_a_text_is_one_token(special_tokens):
    """A special token that is written in a text is found whole."""
    tokenizer = WordPiece(vocab_size=100).build(["a [MASK] b"], special_tokens)
    assert tokenizer.encode("a [MASK] b").tokens == ["[CLS]", "a", "[MASK]", "b", "[SEP]"]


def test_texts_are_read_once(special_tokens):
    """An iterator that can't start again is enough."""
    texts = iter(["hello hello", "world world"])
    assert "hello" in WordPiece(vocab_size=100).build(texts, special_tokens).get_vocab()


@pytest.mark.parametrize("texts", [[], [""], [" \n", "\x07"]])
def test_no_words_is_one_clear_error(special_tokens, texts):
    """Without a word there is nothing to train on."""
    with pytest.raises(InputError, match="holds no words"):
        WordPiece().build(texts, special_tokens)


def test_words_do_not_depend_on_when_the_table_is_folded(special_tokens, random_texts, monkeypatch):
    """The bound on memory changes nothing."""
    expected = WordPiece(vocab_size=300).build(random_texts(50, seed=2), special_tokens).to_str()
    monkeypatch.setattr(wordpiece, "_DISTINCT_STRINGS", 3)
    assert WordPiece(vocab_size=300).build(random_texts(50, seed=2), special_tokens).to_str() == expected


AWKWARD = " \t\r\n\x0b\x0c\x1c\x85\xa0\u2003\u2028aÉ\u0301字,"


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.one_of(st.sampled_from(AWKWARD), st.characters(codec="utf-8"))))
def test_words_are_those_of_the_whole_text(text):
    """Splitting at spaces first gives the words that normalising the whole text gives."""
    normalizer = normalizers.BertNormalizer(lowercase=True)
    whole = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(normalizer.normalize_str(text))
    assert wordpiece.count_words([text], wordpiece.splitter(normalizer)) == Counter(word for word, _ in whole)


@pytest.mark.parametrize("size", [6, 0, -1])
def test_vocabulary_without_room_is_refused(size):
    """The size must leave room beside the special tokens."""
    with pytest.raises(ValueError, match="vocab_size"):
        WordPiece(vocab_size=size)


@pytest.mark.parametrize("lowercase", [True, False])
def test_ids_equal_those_of_transformers(special_tokens, random_texts, lowercase):
    """100 random texts and 100 pairs of them have the ids and token types of transformers' BertTokenizer."""
    transformers = pytest.importorskip("transformers", reason="the test extra is not installed")
    texts = random_texts(200, seed=3)
    ours = WordPiece(vocab_size=400, lowercase=lowercase).build(random_texts(100, seed=4), special_tokens)
    theirs = transformers.BertTokenizerFast(vocab=ours.get_vocab(), do_lower_case=lowercase)
    first, second = texts[:100], texts[100:]
    for inputs, expected in ((first, theirs(first)), (list(zip(first, second, strict=True)), theirs(first, second))):
        encodings = ours.encode_batch(inputs)
        assert [encoding.ids for encoding in encodings] == expected["input_ids"]
        assert [encoding.type_ids for encoding in encodings] == expected["token_type_ids"]
