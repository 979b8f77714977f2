"""The trained unigram model: the likeliest pieces, an order that no hash table decides, and transformers' tokens."""

import json
import unicodedata

import pytest
import tokenizers
from tokenizers import models

from rtx_core import InputError
from rtx_plugins.tokenizers.unigram import Unigram, _in_order


def vocabulary_of(tokenizer):
    """Pieces and log probabilities in the order of their numbers."""
    return json.loads(tokenizer.to_str())["model"]["vocab"]


def test_vocabulary_begins_with_special_tokens(special_tokens):
    """The special tokens have the first numbers, in their order, and the likeliest pieces come next."""
    pieces = vocabulary_of(Unigram(vocab_size=60).build(["hello world, hello there"] * 3, special_tokens))
    assert [piece for piece, _ in pieces[:5]] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    scores = [score for _, score in pieces[5:]]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("size", [100, 300])
def test_vocabulary_is_never_larger_than_asked(special_tokens, random_texts, size):
    """Every character that is not a special token's has an entry, and what room is left is filled."""
    tokenizer = Unigram(vocab_size=size).build([text[:60] for text in random_texts(20, seed=1)], special_tokens)
    assert 5 < tokenizer.get_vocab_size() <= size


def test_a_word_is_cut_into_its_likeliest_pieces(special_tokens):
    """The sum of log probabilities is the largest of all ways to cut the word."""
    words = ["hug", "hugs", "pug", "pun", "bun", "bunny", "gun", "rerun"]
    tokenizer = Unigram(vocab_size=40).build([" ".join(words)] * 20, special_tokens)
    scores = dict(vocabulary_of(tokenizer)[5:])
    for word in (*words, "gunhug", "nunbug"):
        text = "▁" + word
        best = [0.0]
        for end in range(1, len(text) + 1):
            best.append(max(best[at] + scores[text[at:end]] for at in range(end) if text[at:end] in scores))
        pieces = tokenizer.encode(word).tokens[1:-1]
        assert "".join(pieces) == text
        assert sum(scores[piece] for piece in pieces) == pytest.approx(best[-1], rel=1e-12)


def test_what_a_hash_table_decides_is_put_in_order(special_tokens):
    """The trainer adds lost characters 0.0001 apart in any order, and sums are equal to some 14 digits."""
    special = [(token, 0.0) for token in special_tokens.names]
    one = [*special, ("the", -1.5), ("x", -4.0), ("a", -4.9998), ("ab", -4.9999), ("c", -4.9999), ("b", -5.0)]
    other = [*special, ("the", -1.5 + 1e-14), ("x", -4.0), ("b", -4.9998), ("a", -4.9999), ("ab", -4.9999), ("c", -5.0)]
    expected = [*special, ("the", -1.5), ("x", -4.0), ("c", -4.9998), ("ab", -4.9999), ("b", -4.9999), ("a", -5.0)]
    for trained in (one, other):
        model = _in_order(tokenizers.Tokenizer(models.Unigram(trained, unk_id=1)), special_tokens)
        assert vocabulary_of(tokenizers.Tokenizer(model)) == [list(piece) for piece in expected]


def test_unknown_characters(special_tokens):
    """A character that the training text has not is unknown; neighbours that are unknown too are one token."""
    tokenizer = Unigram(vocab_size=30).build(["ab ab ba"] * 5, special_tokens)
    assert tokenizer.encode("a字字").ids.count(1) == 1


def test_text_is_normalised(special_tokens):
    """NFKC, one space for any run of white space and none at the ends; lower case where it is asked for."""
    texts = ["fi A b"] * 5
    tokens = Unigram(max_piece_length=2).build(texts, special_tokens).encode(" \t\ufb01 \n  \uff21\u00a0b ").tokens
    assert "".join(tokens[1:-1]) == "▁fi▁A▁b"
    tokens = Unigram(lowercase=True).build(texts, special_tokens).encode("FI a").tokens
    assert "".join(tokens[1:-1]) == "▁fi▁a"


def test_templates_follow_the_architecture(special_tokens, roberta_tokens):
    """BERT's pair and RoBERTa's, and the mask takes the space before it."""
    bert = Unigram().build(["a b"], special_tokens).encode("[MASK]", "[MASK]")
    assert (bert.tokens, bert.type_ids) == (["[CLS]", "[MASK]", "[SEP]", "[MASK]", "[SEP]"], [0, 0, 0, 1, 1])
    tokenizer = Unigram().build(["a b c"] * 3, roberta_tokens)
    ids = tokenizer.encode("a <mask>", "<mask>").ids
    tokens = ["<s>", *tokenizer.encode("a").tokens[1:-1], "<mask>", "</s>", "</s>", "<mask>", "</s>"]
    assert [tokenizer.id_to_token(number) for number in ids] == tokens


@pytest.mark.parametrize("texts", [[], [""], [" \n", "\u00a0"]])
def test_no_words_is_one_clear_error(special_tokens, texts):
    """Without a word there is nothing to train on."""
    with pytest.raises(InputError, match="tokenizer.unigram: the training text holds no words to train on"):
        Unigram().build(texts, special_tokens)


def test_a_vocabulary_without_room_for_the_characters_is_refused(special_tokens):
    """Both numbers are named, and what to do."""
    with pytest.raises(InputError) as caught:
        Unigram(vocab_size=12).build(["abcdefghij"], special_tokens)
    assert str(caught.value) == (
        "tokenizer.unigram: vocab_size: 12 entries have no room for each of the text's 10 different characters beside "
        "the 5 special tokens; write a larger one, or take bpe, which needs no room for characters"
    )


def test_a_word_without_an_end_is_trained_on(special_tokens):
    """200,000 letters or spaces in a row take no longer than as many words, and don't end the process."""
    letters = "hawk" * 50_000
    tokenizer = Unigram(vocab_size=400).build(["the whale the whale " * 500, letters, " " * 200_000], special_tokens)
    assert "".join(tokenizer.encode(letters).tokens[1:-1]).removeprefix("▁") == letters


def test_what_reading_raises_comes_through(special_tokens):
    """An error in a file of data is said as it is, not as the tokenizer's."""

    def texts():
        yield "a"
        raise InputError("data.csv:3: broken")

    with pytest.raises(InputError, match="^data.csv:3: broken$"):
        Unigram().build(texts(), special_tokens)


@pytest.mark.parametrize("size", [6, 0, -1])
def test_vocabulary_without_room_is_refused(size):
    """The size must leave room beside the special tokens."""
    with pytest.raises(ValueError, match="vocab_size"):
        Unigram(vocab_size=size)


def test_tokens_equal_those_of_transformers(roberta_tokens, random_texts):
    """100 texts and 100 pairs have the tokens of transformers' XLMRobertaTokenizer over the same pieces.

    Its normalisation is a table in a file that comes with each model; texts are given to it normalised.
    """
    transformers = pytest.importorskip("transformers", reason="the test extra is not installed")
    ours = Unigram(vocab_size=400).build(random_texts(100, seed=4), roberta_tokens)
    pieces = vocabulary_of(ours)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]  # the order that its class expects
    theirs = transformers.XLMRobertaTokenizer(vocab=[*((token, 0.0) for token in special), *map(tuple, pieces[5:])])
    texts = [" ".join(unicodedata.normalize("NFKC", text).split()) for text in random_texts(400, seed=3)]
    texts = [text for text in texts if text and text.isprintable() and "\ufffd" not in text]
    pairs = list(zip(texts[:100], texts[-100:], strict=True))
    for inputs in (texts[:100], pairs):
        expected = [
            theirs.convert_ids_to_tokens(theirs(*one if isinstance(one, tuple) else (one,))["input_ids"])
            for one in inputs
        ]
        assert [[pieces[i][0] for i in encoding.ids] for encoding in ours.encode_batch(inputs)] == expected
