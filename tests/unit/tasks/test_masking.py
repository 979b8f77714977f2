"""Whole words and spans of them, chosen and replaced together, with every token's chance as exact as a coin's."""

import collections

import numpy as np
import pytest
import tokenizers
from scipy import stats
from tokenizers import models

from rtx_core import Batch, InputError, Outputs, Sample
from rtx_core.chance import generator
from rtx_plugins.tasks.masked_lm import SPAN_CHANCES, SPAN_LENGTHS, MaskedLm, Replace, in_spans
from rtx_plugins.tasks.words import begins_word
from rtx_plugins.tokenizers.bpe import Bpe
from rtx_plugins.tokenizers.unigram import Unigram

VOCABULARY = 25
MASK = 4
TAIL = 1e-9
"""Chance of a false alarm, each: the two tails of an exact binomial."""


@pytest.fixture
def part(tokenizer, special_tokens):
    """A function: the task's part."""

    def build(max_length=16, **settings):
        return MaskedLm(**settings).build(
            tokenizer, Outputs(size=VOCABULARY), max_length=max_length, special_tokens=special_tokens
        )

    return build


@pytest.fixture
def words():
    """30,000 words of 1 to 4 pieces in one sample, and the number of the word of each token (−1: [CLS], [SEP])."""
    chance = np.random.default_rng(0)
    counts = chance.integers(1, 5, size=30_000)
    ids = np.concatenate([[15, *[17 + int(piece) for piece in range(count - 1)]] for count in counts])
    ids = np.concatenate([[2], ids, [3]]).astype(np.int32)
    numbers = np.concatenate([[-1], np.repeat(np.arange(len(counts)), counts), [-1]])
    none = np.zeros(0)
    return Sample(ids, np.zeros(len(ids), np.uint8), none.astype(np.int32), none.astype(np.int64)), numbers


def assert_binomial(count, of, chance):
    """The count lies within the exact binomial's tails."""
    low, high = stats.binom.ppf(TAIL / 2, of, chance), stats.binom.isf(TAIL / 2, of, chance)
    assert low <= count <= high, (count, of, chance)


def chosen(prepared):
    mask = np.zeros(len(prepared.input_ids), dtype=bool)
    mask[prepared.target_positions] = True
    return mask


# --- whole words ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("masking", ["whole_word", "span"])
def test_a_word_is_chosen_whole(part, words, masking):
    """Either all its pieces are targets or none, and what stood there is what is predicted."""
    sample, numbers = words
    prepared = part(masking=masking).prepare(sample, 1)
    mask = chosen(prepared)
    assert set(numbers[mask]).isdisjoint(numbers[~mask])
    assert not mask[[0, -1]].any()
    assert np.array_equal(prepared.targets, sample.input_ids[mask])
    assert 0.1 < mask.mean() < 0.2


@pytest.mark.parametrize("probability", [0.15, 0.5, 1.0])
def test_each_word_has_the_same_chance(part, words, probability):
    """Of 30,000 words as many are chosen as a coin of that chance would choose, long ones as short ones."""
    sample, numbers = words
    mask = chosen(part(masking="whole_word", mask_probability=probability).prepare(sample, 3))
    pieces = np.bincount(numbers[1:-1])
    taken = np.zeros(len(pieces), dtype=bool)
    taken[numbers[mask]] = True
    for length in range(1, 5):
        assert_binomial(taken[pieces == length].sum(), (pieces == length).sum(), probability)


def test_a_word_is_replaced_whole(part, words):
    """80 % of the chosen words are masked in all their pieces, 10 % replaced, 10 % stay."""
    sample, numbers = words
    prepared = part(masking="whole_word", mask_probability=0.5).prepare(sample, 5)
    mask = chosen(prepared)
    hidden = prepared.input_ids == MASK
    assert set(numbers[mask & hidden]).isdisjoint(numbers[mask & ~hidden])
    of = len(set(numbers[mask]))
    assert_binomial(len(set(numbers[hidden])), of, 0.8)
    # A random token is the old one in 1 of 20 cases.
    pieces = np.bincount(numbers[1:-1])
    changed = set(numbers[mask & ~hidden & (prepared.input_ids != sample.input_ids)])
    single = {word for word in set(numbers[mask]) if pieces[word] == 1}
    assert_binomial(len(changed & single), len(single), 0.1 * 19 / 20)


# --- spans ------------------------------------------------------------------------------------------------------------


def test_lengths_of_spans_are_those_of_spanbert():
    """Geometric with p = 0.2 up to 10 words: their mean is the paper's 3.8."""
    expected = stats.geom(0.2).pmf(SPAN_LENGTHS) / stats.geom(0.2).cdf(10)
    np.testing.assert_allclose(SPAN_CHANCES, expected, rtol=1e-14)
    mean = float(SPAN_LENGTHS @ SPAN_CHANCES)
    assert mean == pytest.approx(3.8, abs=0.005)


@pytest.mark.parametrize("share", [0.15, 0.8, 1.0])
@pytest.mark.parametrize("words", [1, 12])
def test_each_place_has_exactly_its_chance(words, share):
    """Over 4,000 draws each word of a text, the first and the last too, is chosen as a coin would choose it."""
    chance = generator(1, "test")
    counts = sum((in_spans(words, share, chance) >= 0).astype(int) for _ in range(4000))
    for count in counts:
        assert_binomial(count, 4000, share)


def test_spans_have_their_lengths_and_start_anywhere():
    """Over a long text: the lengths by chi-square (p > 1e-6), and as often at even places as at odd ones."""
    spans = in_spans(400_000, 0.15, generator(4, "test"))
    inner = spans[(spans > 0) & (spans < spans.max())]
    lengths = collections.Counter(np.bincount(inner)[1:].tolist())
    observed = [lengths[length] for length in SPAN_LENGTHS.tolist()]
    assert stats.chisquare(observed, SPAN_CHANCES * sum(observed)).pvalue > 1e-6
    starts = np.flatnonzero(np.diff(spans, prepend=-1) > 0)
    assert_binomial((starts % 2).sum(), len(starts), 0.5)
    # Without gaps in the numbers: spans that touch are two.
    assert set(np.unique(spans[spans >= 0])) == set(range(spans.max() + 1))


def test_a_span_is_replaced_whole(part, words):
    """Where one span ends and no other begins, all its words have become masks or none."""
    sample, numbers = words
    prepared = part(masking="span").prepare(sample, 5)
    mask = chosen(prepared)
    runs = np.cumsum(np.diff(mask.astype(int), prepend=0) == 1)[mask]
    words_of_runs = collections.Counter(run for run, _ in {*zip(runs.tolist(), numbers[mask].tolist(), strict=True)})
    hidden = (prepared.input_ids == MASK)[mask]
    shares = [hidden[runs == run].mean() for run in np.unique(runs)[:2000]]
    # Runs that are mixed are two spans side by side: with q = 0.0445 one of 23 runs is followed by another at once.
    mixed = np.mean([0.0 < share < 1.0 for share in shares])
    assert mixed < 0.05
    assert max(words_of_runs.values()) > 10
    assert 3.7 < np.mean(list(words_of_runs.values())) < 4.3  # 3.8 / (1 − q) = 3.97


def test_hardly_any_is_hardly_any(part, words):
    """A chance near 0 chooses nothing, in no more time or memory than any other."""
    sample, _ = words
    for masking in ("token", "whole_word", "span"):
        prepared = part(masking=masking, mask_probability=1e-12).prepare(sample, 1)
        assert (prepared.targets.shape, prepared.target_positions.shape) == ((0,), (0,))


# --- both -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("masking", ["token", "whole_word", "span"])
def test_it_is_a_pure_function_of_sample_and_seed(part, words, masking):
    """The same seed gives the same arrays, another seed others."""
    sample, _ = words
    first, again, other = (part(masking=masking).prepare(sample, seed) for seed in (1, 1, 2))
    for name in ("input_ids", "target_positions", "targets"):
        assert np.array_equal(getattr(first, name), getattr(again, name))
    assert not np.array_equal(first.target_positions, other.target_positions)


@pytest.mark.parametrize("masking", ["token", "whole_word", "span"])
def test_packed_documents_are_masked(part, record, masking):
    """No special token is chosen, no word goes on from one document into the next, and lengths stay."""
    built = part(masking=masking, mask_probability=0.5)
    samples = list(built.samples([record(text="a b unbelievably"), record(text="c d"), record(text="")]))
    # The second document was cut inside a word, as packing may do.
    ids = np.concatenate([samples[0].input_ids[:-1], [9, 3], samples[2].input_ids]).astype(np.int32)
    none = np.zeros(0)
    lengths = (len(samples[0].input_ids) - 1, 2, len(samples[2].input_ids))
    packed = Sample(ids, np.zeros(len(ids), np.uint8), none.astype(np.int32), none.astype(np.int64), lengths=lengths)
    border = lengths[0]
    together = 0
    for seed in range(300):
        prepared = built.prepare(packed, seed)
        assert prepared.lengths == lengths
        assert set(prepared.target_positions.tolist()) <= set(range(1, border + 1))
        batch = Batch.of([prepared], [0])
        assert batch.targets.tolist() == ids[prepared.target_positions].tolist()
        mask = chosen(prepared)
        together += mask[border - 1] == mask[border]
    if masking == "whole_word":  # two coins
        assert_binomial(together, 300, 0.5)


@pytest.mark.parametrize("masking", ["token", "whole_word", "span"])
def test_shares_can_be_set(part, words, masking):
    """As ModernBERT's: 30 % of the tokens, all of them masked; or none masked, and half random."""
    sample, _ = words
    all_masked = part(masking=masking, mask_probability=0.3, replace=Replace(mask=1.0, random=0.0)).prepare(sample, 1)
    assert (all_masked.input_ids[all_masked.target_positions] == MASK).all()
    assert 0.27 < len(all_masked.targets) / len(sample.input_ids) < 0.33
    kept = part(masking=masking, replace=Replace(mask=0.0, random=0.0)).prepare(sample, 1)
    assert np.array_equal(kept.input_ids, sample.input_ids)
    assert len(kept.targets) > 0
    random = part(masking=masking, replace=Replace(mask=0.0, random=1.0)).prepare(sample, 1)
    assert not (random.input_ids == MASK).any()
    assert_binomial((random.input_ids != sample.input_ids).sum(), len(random.targets), 19 / 20)


def test_shares_of_more_than_all_are_refused():
    """Masked and random tokens are parts of one whole."""
    problems = list(MaskedLm(replace=Replace(mask=0.8, random=0.3)).check())
    assert problems == [("replace", "mask 0.8 and random 0.3 are more than 1 together")]
    assert list(MaskedLm(replace=Replace(mask=0.8, random=0.2)).check()) == []


# --- where words begin ------------------------------------------------------------------------------------------------

TEXT = "the quick brown fox jumps over the lazy dog while unbelievably quick foxes jumped over sleeping dogs " * 3


def words_by_ids(encoding, begins):
    """The words' texts as the table cuts the tokens, without special tokens."""
    first = np.flatnonzero(begins[encoding.ids])
    return len(first), [encoding.word_ids[i] for i in first]


@pytest.mark.parametrize("tokenizer_type", ["wordpiece", "bpe", "unigram"])
def test_vocabularies_tell_where_words_begin(tokenizer, special_tokens, tokenizer_type):
    """In a text without punctuation the table finds the words that the tokenizer's own alignment has."""
    trained = {
        "wordpiece": lambda: tokenizer,
        "bpe": lambda: Bpe(vocab_size=300, add_prefix_space=True).build([TEXT] * 20, special_tokens),
        "unigram": lambda: Unigram(vocab_size=80).build([TEXT] * 20, special_tokens),
    }[tokenizer_type]()
    text = "anna lives unbelievably ab dcb in new york" if tokenizer_type == "wordpiece" else TEXT
    encoding = trained.encode(text, add_special_tokens=False)
    begins = begins_word(trained)
    numbers = np.array(encoding.word_ids)
    expected = np.diff(numbers, prepend=-1) > 0
    assert np.array_equal(begins[encoding.ids], expected)
    assert 5 < expected.sum() < len(expected)


def test_a_comma_goes_with_its_word_where_the_vocabulary_says_so(special_tokens):
    """Byte-level pieces without the mark of a space belong to what stands before; a new line begins a word."""
    trained = Bpe(vocab_size=300, add_prefix_space=True).build(["a, b. c\nd"] * 20, special_tokens)
    encoding = trained.encode("a, b.\nc", add_special_tokens=False)
    begun = [token for token, begins in zip(encoding.tokens, begins_word(trained)[encoding.ids], strict=True) if begins]
    assert [token[0] for token in begun] == ["Ġ", "Ġ", "Ċ"]


@pytest.mark.parametrize("masking", ["whole_word", "span"])
def test_a_vocabulary_without_marks_is_refused(special_tokens, masking):
    """One that holds whole words only can't tell a piece from a word: one line, and what to write."""
    bare = tokenizers.Tokenizer(models.WordLevel({"[MASK]": 0, "a": 1, "[UNK]": 2}, unk_token=None))
    bare.add_special_tokens(["[MASK]", "[UNK]"])
    assert begins_word(bare) is None
    with pytest.raises(InputError, match=f'^task.masking: "{masking}" needs a vocabulary .* write masking = "token"$'):
        MaskedLm(masking=masking).build(bare, Outputs(size=3), max_length=8, special_tokens=special_tokens)
