"""Words with tags: first sub-words, words that are lost, and one answer for each word."""

import math

import numpy as np
import pytest
import torch

from rtx_core import DataError, InputError, Outputs
from rtx_plugins.tasks.token_classification import TokenClassification

LABELS = Outputs(size=3, labels=("LOC", "O", "PER"), counts=(1, 1, 3))
ANNA = {"words": ["Anna", "lives", "unbelievably"], "tags": ["PER", "O", "LOC"]}


@pytest.fixture
def part(tokenizer, special_tokens):
    """A function: the task's part with tags LOC, O, PER."""

    def build(max_length=16, outputs=LABELS, **settings):
        task = TokenClassification(**settings)
        return task.build(tokenizer, outputs, max_length=max_length, special_tokens=special_tokens)

    return build


def test_labels_stand_on_first_sub_words(part, record, tokens_of):
    """Three words of 1, 1 and 3 tokens have three targets, at tokens 1, 2 and 3."""
    (sample,) = part().samples([record(**ANNA)])
    assert tokens_of(sample) == ["[CLS]", "anna", "lives", "un", "##believ", "##ably", "[SEP]"]
    assert sample.target_positions.tolist() == [1, 2, 3]
    assert sample.targets.tolist() == [2, 1, 0]
    arrays = (sample.input_ids, sample.token_types, sample.target_positions, sample.targets)
    assert [array.dtype for array in arrays] == [np.int32, np.uint8, np.int32, np.int64]


@pytest.mark.parametrize(
    ("max_length", "kept", "cut"),
    [(7, ([1, 2, 3], [2, 1, 0]), 0), (5, ([1, 2, 3], [2, 1, 0]), 0), (4, ([1, 2], [2, 1]), 1), (3, ([1], [2]), 2)],
)
def test_words_that_are_cut_off_are_counted_not_shifted(part, record, max_length, kept, cut):
    """A word whose first sub-word fits is learnt; one that ``max_length`` cuts off has no target and is counted."""
    built = part(max_length)
    (sample,) = built.samples([record(**ANNA)])
    assert (sample.target_positions.tolist(), sample.targets.tolist()) == kept
    assert len(sample.input_ids) == max_length
    assert (built.words_cut, built.words_empty) == (cut, 0)


@pytest.mark.parametrize("empty", ["", " ", "\u200d", "\x07"])
def test_words_without_sub_words_are_counted_not_shifted(part, record, empty):
    """A word of which the tokenizer leaves nothing has no target, and the words after it keep their own."""
    built = part()
    (sample,) = built.samples([record(words=["a", empty, "b", empty], tags=["PER", "LOC", "O", "LOC"])])
    assert (sample.target_positions.tolist(), sample.targets.tolist()) == ([1, 2], [2, 1])
    assert (built.words_cut, built.words_empty) == (0, 2)


def test_lost_words_add_up_over_records(part, record):
    """Words that are cut off and words that are empty are counted apart, over all samples."""
    built = part(max_length=4)
    list(built.samples([record(words=["a", "", "b", "", "c", "d"], tags=["O"] * 6)] * 3))
    # Of each record a and b fit; c and d are cut off; the two empty words are empty wherever they stand.
    assert (built.words_cut, built.words_empty) == (6, 6)


def test_no_words_give_no_targets(part, record, tokens_of):
    """A record without words is a sample without targets."""
    (sample,) = part().samples([record(words=[], tags=[])])
    assert tokens_of(sample) == ["[CLS]", "[SEP]"]
    assert (len(sample.target_positions), len(sample.targets)) == (0, 0)


@pytest.mark.parametrize("max_length", [5, 12, 64])
def test_first_sub_words_are_those_of_transformers(part, record, theirs, random_words, max_length):
    """On 200 random lists of words, ids and first sub-words are those that transformers gives."""
    texts = random_words(200, seed=4)
    expected = theirs(texts, is_split_into_words=True, truncation=True, max_length=max_length)
    samples = part(max_length).samples([record(words=words, tags=["O"] * len(words)) for words in texts])
    for number, sample in enumerate(samples):
        words = expected.word_ids(number)
        first = [at for at, word in enumerate(words) if word is not None and words.index(word) == at]
        assert sample.input_ids.tolist() == expected["input_ids"][number]
        assert sample.target_positions.tolist() == first


def test_prediction_needs_no_tags(part, record):
    """Without targets the tags may be missing; each word that is seen has a target that is ignored."""
    (sample,) = part(max_length=4).samples([record(words=["a", "", "b", "c"])], targets=False)
    assert (sample.target_positions.tolist(), sample.targets.tolist()) == ([1, 2], [-100, -100])


def test_tags_are_counted_in_the_training_data(record):
    """All tags count, integers as the text of their digits, and they are sorted."""
    records = [record(words=["a", "b"], tags=["O", "PER"]), record(words=["c", "d"], tags=["O", 3])]
    outputs = TokenClassification().outputs(iter(records), 25)
    assert outputs == Outputs(size=3, labels=("3", "O", "PER"), counts=(1, 2, 1))


def test_tags_that_are_written_keep_their_order(record):
    """``labels`` decides the order, and any other tag is refused."""
    task = TokenClassification(labels=("PER", "O"))
    assert task.outputs([record(words=["a"], tags=["O"])], 25) == Outputs(size=2, labels=("PER", "O"), counts=(0, 1))
    with pytest.raises(
        DataError, match='^data.jsonl:7: column "tags": unknown label "LOC"; the labels are "PER", "O"$'
    ):
        task.outputs([record(words=["a"], tags=["LOC"])], 25)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"words": ["a", "b"], "tags": ["O"] * 3}, 'column "words" holds 2 words, but column "tags" 3 tags'),
        ({"words": "a b", "tags": ["O"]}, 'column "words": expected a list of words, got the text "a b"'),
        ({"words": None, "tags": ["O"]}, 'column "words": expected a list of words, got null'),
        ({"words": ["a", 3], "tags": ["O", "O"]}, 'column "words": expected text, got the number 3'),
        ({"words": ["a", None], "tags": ["O", "O"]}, 'column "words": expected text, got null'),
        ({"words": ["a"], "tags": "O"}, 'column "tags": expected a list of tags, got the text "O"'),
        ({"words": ["a"], "tags": [None]}, 'column "tags": expected a label (text or an integer), got null'),
        ({"words": ["a"], "tags": ["ORG"]}, 'column "tags": unknown label "ORG"; the labels are "LOC", "O", "PER"'),
        ({"words": ["a"]}, 'no column "tags"; the columns are "words"'),
        ({"tags": ["O"]}, 'no column "words"; the columns are "tags"'),
    ],
)
def test_bad_record_is_an_error_with_its_place(part, record, values, message):
    """What is wrong with a record is said in one line that begins with its file and line."""
    with pytest.raises(DataError) as caught:
        list(part().samples([record(**values)]))
    assert str(caught.value) == f"data.jsonl:7: {message}"


@pytest.mark.parametrize(
    ("outputs", "fallback"),
    [
        (LABELS, "O"),
        (Outputs(size=2, labels=("A", "B"), counts=(1, 3)), "B"),
        (Outputs(size=2, labels=("A", "B")), "A"),
    ],
)
def test_each_word_has_an_answer(part, record, outputs, fallback):
    """Words that the model doesn't see get O, or the most frequent tag where there is no O; the others keep theirs."""
    best = outputs.size - 1
    rows = torch.nn.functional.one_hot(torch.tensor([best, best]), outputs.size).float()
    answers = part(4, outputs).answers([record(words=["a", "", "b", "c"])], [rows], scores=False)
    seen = outputs.labels[best]
    assert answers == [{"prediction": [seen, fallback, seen, fallback]}]


def test_answers_follow_their_records(part, record):
    """Records of different lengths, one without words, each get their own tags."""
    records = [record(words=["a", "b"]), record(words=[]), record(words=["unbelievably"])]
    logits = [torch.tensor([[1.0, 0, 0], [0, 0, 1.0]]), torch.zeros(0, 3), torch.tensor([[0, 1.0, 0]])]
    predictions = [answer["prediction"] for answer in part().answers(records, logits, scores=False)]
    assert predictions == [["LOC", "PER"], [], ["O"]]


def test_scores_are_probabilities_of_each_word(part, record):
    """Logits (0, ln 2, ln 5) are probabilities 1/8, 2/8 and 5/8; a word that isn't seen has none."""
    logits = [torch.tensor([[0.0, math.log(2), math.log(5)]])]
    (answer,) = part().answers([record(words=["", "a"])], logits, scores=True)
    assert answer["prediction"] == ["O", "PER"]
    assert answer["scores"][0] is None
    assert answer["scores"][1] == pytest.approx({"LOC": 0.125, "O": 0.25, "PER": 0.625}, abs=1e-7)


def test_nothing_is_random(part, record):
    """The task has no chance to prepare samples with, and metrics get the logits."""
    assert not hasattr(part(), "prepare")
    logits = torch.zeros(2, 3)
    assert part().predictions(logits) is logits


def test_columns_and_texts(record):
    """The tags are only asked for where there are targets; a tokenizer is trained on the words."""
    task = TokenClassification(words="w", tags="t")
    assert (task.columns(targets=True), task.columns(targets=False)) == (("w", "t"), ("w",))
    assert list(task.texts(record(w=["New", "York"], t=["LOC", "LOC"]))) == ["New York"]


def test_words_and_tags_are_two_columns():
    """Learning a column from itself is refused by ``check``."""
    assert list(TokenClassification(words="x", tags="x").check()) == [("tags", '"x" is the column of the words too')]
    assert list(TokenClassification().check()) == []


@pytest.mark.parametrize(
    ("settings", "problems"),
    [
        ({"labels": ("A",)}, {"labels": "expected at least two labels"}),
        ({"scheme": "IOB2", "labels": ("O", "B-A", "I-A")}, {}),
        (
            {"scheme": "IOB2", "labels": ("O", "S-A")},
            {"labels": '"S-A" is no tag in IOB2; expected O, B-LABEL or I-LABEL'},
        ),
        ({"spans": "ents"}, {"spans": 'spans are of a text; name its column too, as text = "text"'}),
        ({"text": "text"}, {}),
        ({"text": "text", "labels": ("PER",)}, {}),
        ({"text": "spans"}, {"spans": '"spans" is the column of the text too'}),
        (
            {"text": "text", "tags": "t"},
            {"tags": "a record has words and tags, or a text and spans; leave this out, or text"},
        ),
        (
            {"text": "text", "scheme": "plain"},
            {"scheme": "spans need IOB2 or IOBES, or two that touch would be one"},
        ),
        (
            {"stride": 8},
            {"stride": 'only windows share tokens; write long_text = "windows" too, or leave it out'},
        ),
        (
            {"stride": 16, "long_text": "windows", "max_length": 16},
            {"stride": "windows of 16 tokens (max_length) can't share 16"},
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, problems):
    """``check`` names the field and what is wrong with it beside the others."""
    assert dict(TokenClassification(**settings).check()) == problems


@pytest.mark.parametrize(
    ("settings", "scheme", "metrics"),
    [
        ({}, None, ("accuracy", "f1")),
        ({"scheme": "plain"}, None, ("accuracy", "f1")),
        ({"scheme": "IOBES"}, "IOBES", ("accuracy", "entities")),
        ({"text": "text"}, "IOB2", ("accuracy", "entities")),
        ({"text": "text", "scheme": "IOBES"}, "IOBES", ("accuracy", "entities")),
    ],
)
def test_a_scheme_decides_what_is_measured(settings, scheme, metrics):
    """Tags stand alone unless a scheme is written; spans are made of IOB2."""
    task = TokenClassification(**settings)
    assert (task.span_scheme, task.own_metrics) == (scheme, metrics)


def test_stratify_is_refused(record):
    """A record has many tags, so there is none to stratify by."""
    with pytest.raises(InputError, match="no label to stratify by"):
        TokenClassification().stratum(record(**ANNA))
