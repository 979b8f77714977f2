"""Masking: a pure function of sample and seed, with the shares of BERT, that never touches a special token."""

import attrs
import numpy as np
import pytest
import tokenizers
import torch
from tokenizers import models

from rtx_core import Batch, DataError, InputError, Outputs, Sample
from rtx_plugins.tasks.masked_lm import MaskedLm

VOCABULARY = 25
SPECIAL = {0, 1, 2, 3, 4}
MASK = 4


@pytest.fixture
def part(tokenizer, special_tokens):
    """A function: the task's part."""

    def build(max_length=16, **settings):
        return MaskedLm(**settings).build(
            tokenizer, Outputs(size=VOCABULARY), max_length=max_length, special_tokens=special_tokens
        )

    return build


@pytest.fixture
def long_sample():
    """A sample of 200,000 ordinary tokens, each equally often, between [CLS] and [SEP]."""
    ids = np.tile(np.arange(5, VOCABULARY), 10_000)
    ids = np.concatenate([[2], ids, [3]]).astype(np.int32)
    none = np.zeros(0)
    return Sample(ids, np.zeros(len(ids), np.uint8), none.astype(np.int32), none.astype(np.int64))


def test_samples_have_no_targets_before_they_are_prepared(part, record, tokens_of):
    """Encoding alone chooses nothing."""
    (sample,) = part().samples([record(text="Anna lives")])
    assert tokens_of(sample) == ["[CLS]", "anna", "lives", "[SEP]"]
    assert (sample.target_positions.shape, sample.targets.shape) == ((0,), (0,))
    arrays = (sample.input_ids, sample.token_types, sample.target_positions, sample.targets)
    assert [array.dtype for array in arrays] == [np.int32, np.uint8, np.int32, np.int64]


def test_long_text_becomes_consecutive_sequences(part, record, tokens_of):
    """No token is lost or doubled, and each sequence has its own special tokens."""
    samples = list(part(max_length=4).samples([record(text="a b c d a"), record(text="c")]))
    assert [tokens_of(sample)[1:-1] for sample in samples] == [["a", "b"], ["c", "d"], ["a"], ["c"]]
    assert {(tokens_of(sample)[0], tokens_of(sample)[-1]) for sample in samples} == {("[CLS]", "[SEP]")}


@pytest.mark.parametrize("max_length", [4, 9, 64])
def test_sequences_equal_those_of_transformers(part, record, theirs, random_words, max_length):
    """100 random texts are cut as transformers cuts them where it keeps what overflows."""
    texts = [" ".join(words) for words in random_words(100, seed=5)]
    expected = theirs(texts, truncation=True, max_length=max_length, return_overflowing_tokens=True)["input_ids"]
    samples = part(max_length).samples([record(text=text) for text in texts])
    assert [sample.input_ids.tolist() for sample in samples] == expected


def test_preparing_is_a_pure_function_of_sample_and_seed(part, long_sample):
    """The same seed gives the same arrays, another seed others, and the sample itself stays as it was."""
    before = long_sample.input_ids.copy()
    first, again, other = (part().prepare(long_sample, seed) for seed in (1, 1, 2))
    for name in ("input_ids", "token_types", "target_positions", "targets"):
        assert np.array_equal(getattr(first, name), getattr(again, name))
    assert not np.array_equal(first.target_positions, other.target_positions)
    assert np.array_equal(long_sample.input_ids, before)


def test_targets_are_what_stood_there(part, long_sample):
    """Exactly the chosen positions are targets, in order, and no other token changes."""
    prepared = part().prepare(long_sample, 1)
    positions = prepared.target_positions
    assert (positions.dtype, prepared.targets.dtype, prepared.input_ids.dtype) == (np.int32, np.int64, np.int32)
    assert (np.diff(positions) > 0).all()
    assert np.array_equal(prepared.targets, long_sample.input_ids[positions])
    changed = np.flatnonzero(prepared.input_ids != long_sample.input_ids)
    assert np.isin(changed, positions).all()


@pytest.mark.parametrize("probability", [0.15, 0.3, 1.0])
def test_shares_are_those_of_bert(part, long_sample, probability):
    """Each token is chosen with the given chance; of the chosen 80 % are masked, 10 % random and 10 % kept.

    Bounds are five standard deviations of the binomial distribution. A random token is the original in 1 of 20 cases.
    """
    prepared = part(mask_probability=probability).prepare(long_sample, 7)
    tokens, chosen = len(long_sample.input_ids) - 2, len(prepared.targets)
    assert abs(chosen - tokens * probability) <= 5 * (tokens * probability * (1 - probability)) ** 0.5
    now = prepared.input_ids[prepared.target_positions]
    for count, share in ((now == MASK, 0.8), (now == prepared.targets, 0.1 + 0.1 / 20)):
        assert abs(count.sum() - chosen * share) <= 5 * (chosen * share * (1 - share)) ** 0.5


def test_random_tokens_are_ordinary_and_equally_likely(part, long_sample):
    """Each of the 20 ordinary tokens replaces equally often (chi-square, p = 1e-6), and no special one does."""
    prepared = part(mask_probability=1.0).prepare(long_sample, 7)
    now = prepared.input_ids[prepared.target_positions]
    swapped = now[(now != MASK) & (now != prepared.targets)]
    counts = np.bincount(swapped, minlength=VOCABULARY)
    assert counts[:5].tolist() == [0] * 5
    expected = len(swapped) / 20
    assert ((counts[5:] - expected) ** 2 / expected).sum() < 65.0  # the quantile for 19 degrees of freedom is 65.4


def test_places_are_equally_likely(part, record):
    """Over 4,000 seeds each of four words is chosen as often as any other (five standard deviations)."""
    built = part()
    (sample,) = built.samples([record(text="a b c d")])
    counts = np.zeros(6)
    for seed in range(4000):
        counts[built.prepare(sample, seed).target_positions] += 1
    assert (counts[0], counts[5]) == (0, 0)
    assert (np.abs(counts[1:5] - 600) <= 5 * (4000 * 0.15 * 0.85) ** 0.5).all()


def test_special_tokens_are_never_chosen(part, record, tokens_of):
    """With a chance of 1 all words are chosen, but no [CLS], [SEP], [UNK], nor a [MASK] that the text itself has."""
    built = part(mask_probability=1.0)
    (sample,) = built.samples([record(text="a [MASK] xyz b [SEP] c")])
    assert tokens_of(sample) == ["[CLS]", "a", "[MASK]", "[UNK]", "b", "[SEP]", "c", "[SEP]"]
    for seed in range(20):
        assert built.prepare(sample, seed).target_positions.tolist() == [1, 4, 6]


@pytest.mark.parametrize("text", ["", "anna", "xyz"])
def test_nothing_masked_is_no_target(part, record, text):
    """Where no token is chosen the sample has 0 targets, and a batch of such samples has 0."""
    built = part(mask_probability=1e-12)
    (sample,) = built.samples([record(text=text)])
    prepared = built.prepare(sample, 1)
    assert (prepared.target_positions.shape, prepared.targets.shape) == ((0,), (0,))
    assert np.array_equal(prepared.input_ids, sample.input_ids)
    batch = Batch.of([prepared, prepared], [0, 1])
    assert (batch.targets.shape, batch.targets.dtype) == ((0,), torch.int64)
    assert batch.target_positions.shape == (0,)


def test_packed_sequences_are_masked_together(part):
    """A sample of several sequences keeps their lengths."""
    ids = np.array([2, 5, 3, 2, 6, 3], np.int32)
    none = np.zeros(0)
    sample = Sample(ids, np.zeros(6, np.uint8), none.astype(np.int32), none.astype(np.int64), lengths=(3, 3))
    prepared = part(mask_probability=1.0).prepare(sample, 1)
    assert prepared.lengths == (3, 3)
    assert prepared.target_positions.tolist() == [1, 4]


def test_outputs_are_the_vocabulary(record):
    """There is one output for each row of the token table, and they have no names."""
    assert MaskedLm().outputs([record(text="a")], 123) == Outputs(size=123)


def test_predict_is_refused(part, record):
    """A language model has no answer to a record."""
    with pytest.raises(InputError, match="has no answers to give; train a task with labels"):
        part().answers([record(text="a")], [torch.zeros(0, VOCABULARY)], scores=False)


def test_metrics_get_the_logits(part):
    """Predictions are the logits as they are."""
    logits = torch.zeros(2, VOCABULARY)
    assert part().predictions(logits) is logits


@pytest.mark.parametrize("value", [0.0, -0.1, 1.5, float("nan")])
def test_mask_probability_is_a_chance(value):
    """A chance of 0 would never learn, and one above 1 is none."""
    with pytest.raises(ValueError, match="mask_probability"):
        MaskedLm(mask_probability=value)


def test_the_mask_token_is_the_architectures(special_tokens):
    """Families call it differently; a token that only looks like one is text."""
    tokenizer = tokenizers.Tokenizer(models.WordLevel({"<mask>": 0, "a": 1, "[UNK]": 2}, unk_token=None))
    tokenizer.add_special_tokens(["<mask>", "[UNK]"])
    sample = Sample(np.array([1, 1], np.int32), np.zeros(2, np.uint8), np.zeros(0, np.int32), np.zeros(0, np.int64))
    family = attrs.evolve(special_tokens, mask="<mask>")
    built = MaskedLm(mask_probability=1.0).build(tokenizer, Outputs(size=3), max_length=8, special_tokens=family)
    assert {token for seed in range(20) for token in built.prepare(sample, seed).input_ids.tolist()} == {0, 1}


def test_tokenizer_without_mask_token_is_refused(tokenizer, special_tokens):
    """The special tokens that there are are named."""
    bare = tokenizers.Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token=None))
    bare.add_special_tokens(["[UNK]"])
    with pytest.raises(InputError, match=r"needs the mask token \[MASK\]; its special tokens are \[UNK\]"):
        MaskedLm().build(bare, Outputs(size=2), max_length=8, special_tokens=special_tokens)


def test_bad_text_is_an_error_with_its_place(part, record):
    """A text that is none is named with file and line, in training and for the tokenizer."""
    with pytest.raises(DataError, match='^data.jsonl:7: column "text": expected text, got null$'):
        list(part().samples([record(text=None)]))
    with pytest.raises(DataError, match='^data.jsonl:7: no column "text"; the columns are "body"$'):
        list(MaskedLm().texts(record(body="a")))


def test_no_room_for_text_is_refused(part):
    """A max_length that special tokens fill is an error that says what is needed."""
    with pytest.raises(InputError, match="task.max_length: 2 tokens leave no room .* write at least 3"):
        part(max_length=2)


def test_columns_are_the_text_alone():
    """Targets come from the text."""
    assert MaskedLm(text="body").columns(targets=True) == MaskedLm(text="body").columns(targets=False) == ("body",)
