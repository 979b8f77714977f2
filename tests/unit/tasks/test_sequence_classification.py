"""Texts and pairs with one label: encoding as in transformers, labels, and errors that name file and line."""

import math

import attrs
import numpy as np
import pytest
import torch

from rtx_core import DataError, InputError, Outputs
from rtx_plugins.tasks import common
from rtx_plugins.tasks.sequence_classification import SequenceClassification

LABELS = Outputs(size=3, labels=("neg", "neu", "pos"), counts=(1, 1, 1))


@pytest.fixture
def part(tokenizer, special_tokens):
    """A function: the task's part with labels neg, neu, pos."""

    def build(max_length=16, **settings):
        return SequenceClassification(**settings).build(
            tokenizer, LABELS, max_length=max_length, special_tokens=special_tokens
        )

    return build


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Anna lives", ["anna", "lives"]),
        ("anna", ["anna"]),
        ("unbelievably", ["un", "##believ", "##ably"]),
        ("", []),
        (" \t\n", []),
        ("😀😀 a", ["[UNK]", "a"]),
        ("😀", ["😀"]),
        ("字字", ["字", "字"]),
        ("xyz a", ["[UNK]", "a"]),
        ("a[SEP]b", ["a", "[SEP]", "b"]),
    ],
)
def test_text_becomes_one_wrapped_sequence(part, record, tokens_of, text, expected):
    """Whatever the text, it stands between [CLS] and [SEP], with its label's number at the first token."""
    (sample,) = part().samples([record(text=text, label="pos")])
    assert tokens_of(sample) == ["[CLS]", *expected, "[SEP]"]
    assert sample.token_types.tolist() == [0] * (len(expected) + 2)
    assert (sample.target_positions.tolist(), sample.targets.tolist()) == ([0], [2])


def test_arrays_are_compact(part, record):
    """A sample holds int32 ids and positions, uint8 token types and int64 classes."""
    (sample,) = part().samples([record(text="a", label="neg")])
    arrays = (sample.input_ids, sample.token_types, sample.target_positions, sample.targets)
    assert [array.dtype for array in arrays] == [np.int32, np.uint8, np.int32, np.int64]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("a b", "c"), (["[CLS]", "a", "b", "[SEP]", "c", "[SEP]"], [0, 0, 0, 0, 1, 1])),
        (("", "c"), (["[CLS]", "[SEP]", "c", "[SEP]"], [0, 0, 1, 1])),
        (("a", ""), (["[CLS]", "a", "[SEP]", "[SEP]"], [0, 0, 0, 1])),
        (("", ""), (["[CLS]", "[SEP]", "[SEP]"], [0, 0, 1])),
    ],
)
def test_pair_becomes_one_sequence_of_two_types(part, record, tokens_of, texts, expected):
    """Two columns are one sequence with two separators; an empty text takes none away."""
    pair = part(text=("premise", "hypothesis"))
    (sample,) = pair.samples([record(premise=texts[0], hypothesis=texts[1], label="neg")])
    assert (tokens_of(sample), sample.token_types.tolist()) == expected


def test_long_text_is_cut_before_its_separator(part, record, tokens_of):
    """The last token kept is [SEP], and no more than max_length are."""
    (sample,) = part(max_length=4).samples([record(text="a b c d", label="neg")])
    assert tokens_of(sample) == ["[CLS]", "a", "b", "[SEP]"]


def test_long_pair_is_cut_where_it_is_longer(part, record, tokens_of):
    """The longer text loses tokens until both fit."""
    pair = part(max_length=7, text=("first", "second"))
    (sample,) = pair.samples([record(first="a a a a a a", second="b b", label="neg")])
    assert tokens_of(sample) == ["[CLS]", "a", "a", "[SEP]", "b", "b", "[SEP]"]


@pytest.mark.parametrize("max_length", [4, 9, 64])
def test_ids_equal_those_of_transformers(part, record, theirs, random_words, max_length):
    """100 random texts and 100 random pairs, cut at several lengths, are encoded as transformers does."""
    first, second = ([" ".join(words) for words in random_words(100, seed)] for seed in (1, 2))
    single = part(max_length).samples([record(text=text, label="neg") for text in first])
    records = [record(a=a, b=b, label="neg") for a, b in zip(first, second, strict=True)]
    pairs = part(max_length, text=("a", "b")).samples(records)
    for samples, inputs in ((single, (first,)), (pairs, (first, second))):
        expected = theirs(*inputs, truncation="longest_first", max_length=max_length)
        ours = list(samples)
        assert [sample.input_ids.tolist() for sample in ours] == expected["input_ids"]
        assert [sample.token_types.tolist() for sample in ours] == expected["token_type_ids"]


@pytest.mark.parametrize("limit", [("_CHUNK_ITEMS", 1), ("_CHUNK_ITEMS", 7), ("_CHUNK_CHARACTERS", 30)])
def test_order_does_not_depend_on_chunks(part, record, monkeypatch, random_words, limit):
    """The size of the chunks that are encoded at once changes nothing."""
    records = [
        record(text=" ".join(words), label=LABELS.labels[number % 3])
        for number, words in enumerate(random_words(50, seed=3))
    ]
    expected = list(part().samples(records))
    monkeypatch.setattr(common, *limit)
    for sample, other in zip(part().samples(records), expected, strict=True):
        assert sample.input_ids.tolist() == other.input_ids.tolist()
        assert sample.targets.tolist() == other.targets.tolist()


def test_prediction_needs_no_label(part, record):
    """Without targets the label may be missing or unknown; its place holds a target that is ignored."""
    samples = part().samples([record(text="a"), record(text="b", label="other")], targets=False)
    assert [(s.target_positions.tolist(), s.targets.tolist()) for s in samples] == [([0], [-100])] * 2


@pytest.mark.parametrize("max_length", [2, 3])
def test_no_room_for_text_is_refused(part, max_length):
    """A max_length that special tokens fill is an error that says what is needed."""
    with pytest.raises(InputError, match=f"task.max_length: {max_length} tokens .* write at least 4"):
        part(max_length, text=("a", "b"))


def test_the_given_tokenizer_is_left_alone(part, tokenizer):
    """Truncation is set on a copy: the tokenizer that is saved with the model has none."""
    before = tokenizer.to_str()
    part(max_length=4)
    assert tokenizer.to_str() == before


# --- labels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "names", "counts"),
    [
        (["pos", "neg", "neu", "neg"], ("neg", "neu", "pos"), (2, 1, 1)),
        (["neu", "neg", "neg", "pos"], ("neg", "neu", "pos"), (2, 1, 1)),
        ([1, 0, "1", 0], ("0", "1"), (2, 2)),
        ([10, 9, "2"], ("2", "9", "10"), (1, 1, 1)),
        (["-1", "1", "0"], ("-1", "0", "1"), (1, 1, 1)),
        (["10", "9", "x"], ("10", "9", "x"), (1, 1, 1)),
        (["007", "7", "008"], ("007", "7", "008"), (1, 1, 1)),
        ([np.int64(3), np.int64(4)], ("3", "4"), (1, 1)),
        (["b", "B", " b"], (" b", "B", "b"), (1, 1, 1)),
    ],
)
def test_labels_are_those_of_the_data_sorted(record, values, names, counts):
    """Labels are sorted as text, but integers by value; an integer is the text of its digits."""
    records = [record(text="a", label=value) for value in values]
    assert SequenceClassification().outputs(records, 25) == Outputs(size=len(names), labels=names, counts=counts)


def test_labels_that_are_written_keep_their_order(record):
    """``labels`` decides the order, also of labels that the data lack."""
    records = [record(text="a", label=value) for value in ("neg", "pos", "neg")]
    outputs = SequenceClassification(labels=("pos", "neu", "neg")).outputs(iter(records), 25)
    assert outputs == Outputs(size=3, labels=("pos", "neu", "neg"), counts=(1, 0, 2))


@pytest.mark.parametrize("labels", [(), ("a",), ("a", "b", "a")])
def test_labels_must_be_at_least_two_different_ones(labels):
    """A list of labels that decides nothing, or names one twice, is refused."""
    with pytest.raises(ValueError, match="at least two labels|occurs more than once"):
        SequenceClassification(labels=labels)


@pytest.mark.parametrize(("values", "message"), [(["x", "x"], 'only the label "x"'), ([], "no label")])
def test_one_label_is_nothing_to_learn(record, values, message):
    """Training data with fewer than two labels are refused."""
    with pytest.raises(InputError, match=f'column "label" of the training data has {message}; at least two are needed'):
        SequenceClassification().outputs([record(text="a", label=value) for value in values], 25)


def test_stratum_is_the_label(record):
    """A stratified split goes by the label."""
    assert SequenceClassification().stratum(record(text="a", label=3)) == "3"


# --- errors -----------------------------------------------------------------------------------------------------------

NO_LABEL = 'column "label": expected a label (text or an integer), got'


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"text": "a", "label": "other"}, 'column "label": unknown label "other"; the labels are "neg", "neu", "pos"'),
        ({"text": "a", "label": 5}, 'column "label": unknown label "5"; the labels are "neg", "neu", "pos"'),
        ({"text": "a", "topic": "x"}, 'no column "label"; the columns are "text", "topic"'),
        (
            {"text;label": "a;x"},
            'no column "text"; the columns are "text;label"; if they are several, write delimiter = ";" in [data]',
        ),
        ({"body": "a", "label": "neg"}, 'no column "text"; the columns are "body", "label"'),
        ({}, 'no column "text"; there are none'),
        ({"text": None, "label": "neg"}, 'column "text": expected text, got null'),
        ({"text": 3.5, "label": "neg"}, 'column "text": expected text, got the number 3.5'),
        ({"text": True, "label": "neg"}, 'column "text": expected text, got the truth value true'),
        ({"text": ["a"], "label": "neg"}, 'column "text": expected text, got the list ["a"]'),
        ({"text": "a\ud83d"}, 'column "text": half a surrogate pair (\\ud83d) at character 2 is no text'),
        ({"text": "a", "label": None}, f"{NO_LABEL} null"),
        ({"text": "a", "label": ""}, f"{NO_LABEL} an empty text"),
        ({"text": "a", "label": True}, f"{NO_LABEL} the truth value true"),
        ({"text": "a", "label": 1.0}, f"{NO_LABEL} the number 1.0"),
        ({"text": "a", "label": {"id": 1}}, f'{NO_LABEL} the object {{"id": 1}}'),
    ],
)
def test_bad_record_is_an_error_with_its_place(part, record, values, message):
    """What is wrong with a record is said in one line that begins with its file and line."""
    with pytest.raises(DataError) as caught:
        list(part().samples([record(text="a", label="neg"), record(**values)]))
    assert str(caught.value) == f"data.jsonl:7: {message}"


def test_long_values_and_many_names_are_cut_short_in_errors(part, record, tokenizer, special_tokens):
    """An error shows 40 characters of a value and 10 of the labels."""
    with pytest.raises(DataError, match=r"got the list \[\"x{38}…$"):
        list(part().samples([record(text=["x" * 500], label="neg")]))
    many = Outputs(size=12, labels=tuple("abcdefghijkl"))
    with pytest.raises(DataError, match='"i", "j" and 2 more$'):
        list(
            SequenceClassification()
            .build(tokenizer, many, max_length=16, special_tokens=special_tokens)
            .samples([record(text="a", label="z")])
        )


@pytest.mark.parametrize("value", [None, "", 1.5, False])
def test_bad_label_in_training_data_is_an_error_with_its_place(record, value):
    """Labels are counted strictly, too."""
    with pytest.raises(DataError, match=r'^data.jsonl:7: column "label": expected a label'):
        SequenceClassification().outputs([record(text="a", label=value)], 25)


def test_training_label_beside_the_given_ones_is_an_error(record):
    """With ``labels`` given, a training record with another one is named."""
    with pytest.raises(DataError, match='^data.jsonl:7: column "label": unknown label "c"; the labels are "a", "b"$'):
        SequenceClassification(labels=("a", "b")).outputs([record(text="a", label="c")], 25)


def test_texts_for_a_tokenizer_are_checked(record):
    """Both texts of a pair are given to the tokenizer's training, and neither may be anything else than text."""
    task = SequenceClassification(text=("a", "b"))
    assert list(task.texts(record(a="one", b="two"))) == ["one", "two"]
    with pytest.raises(DataError, match='^data.jsonl:7: column "b": expected text, got null'):
        list(task.texts(record(a="one", b=None)))


def test_columns_are_those_that_are_named():
    """The label is only asked for where there are targets."""
    task = SequenceClassification(text=("a", "b"), label="c")
    assert task.columns(targets=True) == ("a", "b", "c")
    assert task.columns(targets=False) == ("a", "b")
    assert SequenceClassification().columns(targets=True) == ("text", "label")


@pytest.mark.parametrize("text", ["x", ("y", "x")])
def test_label_must_be_another_column(text):
    """Learning a column from itself is refused by ``check``."""
    assert list(SequenceClassification(text=text, label="x").check()) == [
        ("label", '"x" is the column of the text too')
    ]
    assert list(SequenceClassification(text=text, label="z").check()) == []


# --- answers ----------------------------------------------------------------------------------------------------------


def test_answer_is_the_likeliest_label_with_its_probabilities(part, record):
    """Logits (0, ln 2, ln 5) are probabilities 1/8, 2/8 and 5/8."""
    logits = [torch.tensor([[0.0, math.log(2), math.log(5)]]), torch.tensor([[1.0, 0.0, 0.0]])]
    records = [record(text="a"), record(text="b")]
    assert part().answers(records, logits, scores=False) == [{"prediction": "pos"}, {"prediction": "neg"}]
    first = part().answers(records, logits, scores=True)[0]
    assert first["prediction"] == "pos"
    assert first["scores"] == pytest.approx({"neg": 0.125, "neu": 0.25, "pos": 0.625}, abs=1e-7)


def test_nothing_is_random(part, record):
    """The task has no chance to prepare samples with, and metrics get the logits."""
    assert not hasattr(part(), "prepare")
    logits = torch.zeros(2, 3)
    assert part().predictions(logits) is logits


def test_labels_without_names_are_refused(tokenizer, special_tokens):
    """Outputs of another task can't be classes."""
    with pytest.raises(InputError, match="have no labels"):
        SequenceClassification().build(
            tokenizer, attrs.evolve(LABELS, labels=None), max_length=16, special_tokens=special_tokens
        )
