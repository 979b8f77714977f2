"""Each token is the target of the one before it, in texts of any length and in packed samples."""

import itertools

import numpy as np
import pytest
import torch

from rtx_core import DataError, InputError, Outputs, Sample
from rtx_plugins.tasks.causal_lm import CausalLm


@pytest.fixture
def part(tokenizer, special_tokens):
    """A function: the task's part."""

    def build(max_length=16, **settings):
        return CausalLm(**settings).build(
            tokenizer, Outputs(size=25), max_length=max_length, special_tokens=special_tokens
        )

    return build


def learnt(built, sample, tokens_of):
    """Pairs of a token and the one that is predicted from it."""
    prepared = built.prepare(sample, 0)
    tokens = tokens_of(prepared)
    return [(tokens[p], t) for p, t in zip(prepared.target_positions.tolist(), prepared.targets.tolist(), strict=True)]


def test_each_token_but_the_last_has_the_next_as_target(part, record, tokens_of, tokenizer):
    """From the first special token to the one that ends the text."""
    built = part()
    (sample,) = built.samples([record(text="Anna lives, unbelievably")])
    assert sample.targets.shape == (0,)
    tokens = ["[CLS]", "anna", "lives", ",", "un", "##believ", "##ably", "[SEP]"]
    assert tokens_of(sample) == tokens
    expected = [(one, tokenizer.token_to_id(after)) for one, after in itertools.pairwise(tokens)]
    assert learnt(built, sample, tokens_of) == expected


def test_a_long_text_ends_once(part, record, tokens_of):
    """It is cut in consecutive sequences, of which only the last has the token that says where the text ends."""
    samples = list(part(max_length=4).samples([record(text="a b c d a"), record(text="c")]))
    assert [tokens_of(sample) for sample in samples] == [
        ["[CLS]", "a", "b"], ["[CLS]", "c", "d"], ["[CLS]", "a", "[SEP]"], ["[CLS]", "c", "[SEP]"]
    ]  # fmt: skip
    assert all(len(sample.token_types) == len(sample.input_ids) for sample in samples)


def test_a_special_token_that_the_text_itself_has_stays(part, record, tokens_of):
    """Only what the tokenizer put around a piece is taken away."""
    samples = list(part(max_length=4).samples([record(text="a [SEP] b c")]))
    assert [tokens_of(sample) for sample in samples] == [["[CLS]", "a", "[SEP]"], ["[CLS]", "b", "c", "[SEP]"]]


def test_targets_stay_in_their_sequence(part):
    """In a packed sample the last token of each sequence has none, nor have sequences of one token or of none."""
    ids = np.array([2, 5, 6, 3, 7, 2, 8], np.int32)
    none = np.zeros(0)
    sample = Sample(ids, np.zeros(7, np.uint8), none.astype(np.int32), none.astype(np.int64), lengths=(4, 0, 1, 2))
    prepared = part().prepare(sample, 1)
    assert prepared.target_positions.tolist() == [0, 1, 2, 5]
    assert prepared.targets.tolist() == [5, 6, 3, 8]
    assert (prepared.target_positions.dtype, prepared.targets.dtype) == (np.int32, np.int64)
    assert prepared.lengths == (4, 0, 1, 2)


def test_nothing_is_left_to_chance(part, record):
    """Every seed gives the same, and the tokens stay as they were."""
    built = part()
    (sample,) = built.samples([record(text="a b c d")])
    first, other = built.prepare(sample, 1), built.prepare(sample, 2)
    assert np.array_equal(first.targets, other.targets)
    assert first.input_ids is sample.input_ids


def test_an_empty_text_has_its_end(part, record, tokens_of):
    """From the first special token the last is predicted."""
    built = part()
    (sample,) = built.samples([record(text="")])
    assert learnt(built, sample, tokens_of) == [("[CLS]", 3)]


def test_it_is_a_packable_causal_task(record):
    """Its outputs are the vocabulary; it needs an architecture that hides what comes after."""
    assert (CausalLm.packable, CausalLm.causal) == (True, True)
    assert CausalLm().outputs([record(text="a")], 123) == Outputs(size=123)
    assert CausalLm(text="body").columns(targets=True) == CausalLm(text="body").columns(targets=False) == ("body",)


def test_bad_text_is_an_error_with_its_place(part, record):
    """A text that is none is named with file and line."""
    with pytest.raises(DataError, match='^data.jsonl:7: column "text": expected text, got null$'):
        list(part().samples([record(text=None)]))


def test_predict_is_refused(part, record):
    """A language model has no answer to a record."""
    with pytest.raises(InputError, match="has no answers to give; train a task with labels"):
        part().answers([record(text="a")], [torch.zeros(0, 25)], scores=False)
    assert part().notes() == ()
