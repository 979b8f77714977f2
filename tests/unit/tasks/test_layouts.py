"""What a task has the model's card say: the texts of its sample, names of outputs, where others read less."""

import pytest

from rtx_plugins.tasks.multi_label_classification import MultiLabelClassification
from rtx_plugins.tasks.question_answering import QuestionAnswering
from rtx_plugins.tasks.regression import Regression
from rtx_plugins.tasks.sequence_classification import SequenceClassification
from rtx_plugins.tasks.token_classification import TokenClassification

PAIR = ("premise", "hypothesis")
LESS = "rtx reads a longer text {}, and the figures above are of that; transformers reads its beginning alone"


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (SequenceClassification(), 1),
        (SequenceClassification(text=PAIR), 2),
        (MultiLabelClassification(text=PAIR), 2),
        (Regression(text=PAIR), 2),
        (TokenClassification(), 1),
        (QuestionAnswering(), 2),
    ],
)
def test_the_sample_asks_as_many_texts_as_the_task_reads(task, expected):
    """A model of pairs would be asked something that it never saw."""
    assert len(task.layout(None, None, 8).example) == expected


@pytest.mark.parametrize(
    ("task", "limits"),
    [
        (SequenceClassification(), ()),
        (SequenceClassification(long_text="windows"), (LESS.format("in windows"),)),
        (MultiLabelClassification(long_text="head_tail"), (LESS.format("by its head and its tail"),)),
        (Regression(long_text="windows"), (LESS.format("in windows"),)),
        (TokenClassification(), ()),
        (TokenClassification(long_text="windows"), (LESS.format("in windows"),)),
        (QuestionAnswering(), (LESS.format("in windows"),)),
    ],
)
def test_the_card_says_where_others_read_less(task, limits):
    """Figures of whole texts are not those of their beginnings."""
    assert task.layout(None, None, 8).limits == limits


def test_outputs_of_a_regression_are_its_columns():
    """In the order of the model's outputs, which have no other name."""
    assert Regression(target="price").layout(None, None, 8).output_names == ("price",)
    assert Regression(target=("price", "weight")).layout(None, None, 8).output_names == ("price", "weight")
    assert SequenceClassification().layout(None, None, 8).output_names == ()
