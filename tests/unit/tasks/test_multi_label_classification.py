"""Texts with lists of labels: targets, labels of the data, the threshold, and errors that name file and line."""

import math

import numpy as np
import pytest
import torch

from rtx_core import DataError, InputError, Outputs
from rtx_plugins.metrics.f1 import F1
from rtx_plugins.tasks.multi_label_classification import MultiLabelClassification

LABELS = Outputs(size=3, labels=("cli", "json", "web"), counts=(1, 1, 1))


@pytest.fixture
def part(tokenizer, special_tokens):
    """A function: the task's part with labels cli, json, web."""

    def build(max_length=16, **settings):
        return MultiLabelClassification(**settings).build(
            tokenizer, LABELS, max_length=max_length, special_tokens=special_tokens
        )

    return build


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["web", "cli"], [1.0, 0.0, 1.0]),
        (["json"], [0.0, 1.0, 0.0]),
        ([], [0.0, 0.0, 0.0]),
        (("json", "json"), [0.0, 1.0, 0.0]),
    ],
)
def test_a_list_of_labels_becomes_a_row_of_0_and_1(part, record, tokens_of, labels, expected):
    """In the order of the outputs, float32, at the first token; the order and repetition of the list don't matter."""
    (sample,) = part().samples([record(text="a b", label=labels)])
    assert tokens_of(sample) == ["[CLS]", "a", "b", "[SEP]"]
    assert sample.target_positions.tolist() == [0]
    assert sample.targets.dtype == np.float32
    assert sample.targets.tolist() == [expected]


def test_pairs_are_encoded_as_those_with_one_label(part, record, tokens_of):
    """Two columns are one sequence of two token types."""
    (sample,) = part(text=("a", "b")).samples([record(a="a", b="b", label=[])])
    assert tokens_of(sample) == ["[CLS]", "a", "[SEP]", "b", "[SEP]"]
    assert sample.token_types.tolist() == [0, 0, 0, 1, 1]


def test_prediction_needs_no_labels(part, record):
    """Without targets the column may be missing; every entry of its row is ignored."""
    (sample,) = part().samples([record(text="a")], targets=False)
    assert sample.targets.shape == (1, 3)
    assert np.isnan(sample.targets).all()


def test_texts_that_are_cut_are_counted(part, record):
    """The notes say how many, once."""
    task = part(max_length=4)
    list(task.samples([record(text="a b c d", label=[]), record(text="a", label=[])]))
    assert list(task.notes()) == ["1 text cut at max_length"]
    assert list(task.notes()) == []


# --- labels -----------------------------------------------------------------------------------------------------------


def test_labels_are_those_of_the_data_sorted(record):
    """Sorted as text, integers by value; the counts are those of records."""
    records = [record(text="a", label=labels) for labels in (["b", "a", "b"], [], ["b"])]
    assert MultiLabelClassification().outputs(records, 25) == Outputs(
        size=2, labels=("a", "b"), counts=(1, 2), records=3
    )
    records = [record(text="a", label=labels) for labels in ([10, 9], ["2"])]
    assert MultiLabelClassification().outputs(records, 25).labels == ("2", "9", "10")


def test_labels_that_are_written_keep_their_order(record):
    """``labels`` decides the order, also of labels that the data lack; one label is enough."""
    records = [record(text="a", label=["a"])]
    assert MultiLabelClassification(labels=("b", "a")).outputs(records, 25).counts == (0, 1)
    assert MultiLabelClassification(labels=("a",)).outputs(records, 25).size == 1


@pytest.mark.parametrize(("labels", "message"), [((), "at least one name"), (("a", "b", "a"), "occurs more than once")])
def test_labels_must_be_different_ones(labels, message):
    """An empty list, and one that names a label twice, are refused."""
    with pytest.raises(ValueError, match=message):
        MultiLabelClassification(labels=labels)


@pytest.mark.parametrize("threshold", [0.0, 1.0, math.nan])
def test_threshold_must_decide_something(threshold):
    """At 0 all labels would be predicted, at 1 none."""
    with pytest.raises(ValueError, match="threshold"):
        MultiLabelClassification(threshold=threshold)


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("cli, web", 'column "label": expected a list of labels, got the text "cli, web"'),
        (None, 'column "label": expected a list of labels, got null'),
        (["cli", None], 'column "label": expected a label (text or an integer), got null'),
        (["cli", ""], 'column "label": expected a label (text or an integer), got an empty text'),
        ([["cli"]], 'column "label": expected a label (text or an integer), got the list ["cli"]'),
        (["gui"], 'column "label": unknown label "gui"; the labels are "cli", "json", "web"'),
    ],
)
def test_bad_record_is_an_error_with_its_place(part, record, labels, message):
    """What is wrong with a list of labels is said in one line that begins with its file and line."""
    with pytest.raises(DataError) as caught:
        list(part().samples([record(text="a", label=labels)]))
    assert str(caught.value) == f"data.jsonl:7: {message}"


def test_bad_label_in_training_data_is_an_error_with_its_place(record):
    """Labels are counted strictly, too, and with ``labels`` given another one is named."""
    with pytest.raises(DataError, match=r'^data.jsonl:7: column "label": expected a list of labels'):
        MultiLabelClassification().outputs([record(text="a", label="cli")], 25)
    with pytest.raises(DataError, match=r'^data.jsonl:7: column "label": unknown label "c"; the labels are "a", "b"$'):
        MultiLabelClassification(labels=("a", "b")).outputs([record(text="a", label=["c"])], 25)


@pytest.mark.parametrize("labels", [None, ("a", "b")])
def test_no_label_at_all_is_nothing_to_learn(record, labels):
    """Training data whose lists are all empty are refused."""
    with pytest.raises(InputError, match=r'^task: column "label" of the training data has no label; at least one'):
        MultiLabelClassification(labels=labels).outputs([record(text="a", label=[])], 25)


def test_labels_must_be_another_column():
    """Learning a column from itself is refused by ``check``."""
    assert list(MultiLabelClassification(text="x", label="x").check()) == [
        ("label", '"x" is the column of the text too')
    ]


def test_stratified_split_is_refused(record):
    """A list of labels is no stratum."""
    with pytest.raises(InputError, match="no label to stratify by"):
        MultiLabelClassification().stratum(record(text="a", label=["a"]))


# --- answers ----------------------------------------------------------------------------------------------------------


def test_answer_is_the_labels_above_the_threshold(part, record):
    """Logits −ln 3, 0, ln 3 are probabilities 1/4, 1/2 and 3/4: more than 0.5 has the last, more than 0.2 have all."""
    logits, records = [torch.tensor([[-math.log(3), 0.0, math.log(3)]])], [record(text="a")]
    (answer,) = part().answers(records, logits, scores=True)
    assert answer["prediction"] == ["web"]
    assert answer["scores"] == pytest.approx({"cli": 0.25, "json": 0.5, "web": 0.75}, abs=1e-7)
    assert part(threshold=0.2).answers(records, logits, scores=False) == [{"prediction": ["cli", "json", "web"]}]
    assert part(threshold=0.8).answers(records, logits, scores=False) == [{"prediction": []}]


def test_metrics_go_by_the_threshold_of_the_task(part):
    """With probabilities 0.3, 0.7 and 0.1 two labels are predicted above 0.2, one above 0.5, and F1 knows which."""
    logits, targets = torch.tensor([0.3, 0.7, 0.1]).logit().unsqueeze(0), torch.tensor([[1.0, 1.0, 0.0]])
    for threshold, expected in ((0.2, 1.0), (0.5, 2 / 3), (0.9, 0.0)):
        metric = F1(average="micro").build(LABELS)
        metric.update(part(threshold=threshold).predictions(logits), targets, torch.ones(1))
        assert metric.compute()["f1_micro"] == pytest.approx(expected, rel=1e-15)
