"""What is told about odd data."""

import json

import numpy as np
import pytest
import tokenizers

from rtx_core import Record, Sample, lint
from rtx_core.config.pipeline import Lint
from rtx_core.lint import Survey, Surveyor, oddities
from rtx_plugins.tasks.masked_lm import MaskedLm
from rtx_plugins.tasks.sequence_classification import SequenceClassification

TOKENIZER = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "a": 1, "b": 2}, unk_token="[UNK]"))  # noqa: S106 - a token of text


def survey(rows, *, lengths=(), unknown=0, task=None):
    """The survey of texts with labels, as samples of these lengths with so many unknown tokens in the first."""
    surveyor = Surveyor(task or SequenceClassification(), TOKENIZER, unknown="[UNK]", max_length=8)
    records = [Record({"text": text, "label": label}, "rows.csv", line) for line, (text, label) in enumerate(rows, 2)]
    assert list(surveyor.records(records)) == records
    samples = []
    for number, length in enumerate(lengths):
        ids = np.ones(length, np.int32)
        ids[: unknown if number == 0 else 0] = 0
        nothing = np.zeros(0, np.int32)
        samples.append(Sample(input_ids=ids, token_types=ids * 0, target_positions=nothing, targets=nothing))
    surveyor.count(samples)
    return surveyor.survey()


def told(surveys, **levels):
    """Level, key and message of everything that is told."""
    return [(one.level, one.name, one.message) for one in oddities(surveys, Lint(**levels))]


CLEAN = [("a", "x"), ("b", "y")]


def test_clean_data_give_nothing_to_tell():
    """Texts that differ, both labels on both sides."""
    assert told({"training": survey(CLEAN), "eval": survey([("c", "x"), ("d", "y")])}) == []


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            [("a", "x"), (" ", "y"), ("", "y")],
            ("warning", "empty", "training: 2 records without text, the first at rows.csv:3"),
        ),
        (
            [("a", "x"), ("a", "x"), ("b", "y"), ("a", "x")],
            ("note", "duplicates", "training: 2 records with the texts of an earlier one (50.0%)"),
        ),
        (
            [("c", "x"), *CLEAN, ("c", "y")],
            ("warning", "contradictions", "training: 1 text with more than one label"),
        ),
        (
            [(str(i), "x") for i in range(20)] + [("b", "y")],
            (
                "note",
                "balance",
                (
                    'training: 20 records are "x", 1 "y"; see [loss] class_weights = "balanced" and '
                    '[training] sampler = "balanced"'
                ),
            ),
        ),
    ],
)
def test_each_oddity_of_the_training_data_is_told(rows, expected):
    """Counted by hand."""
    assert expected in told({"training": survey(rows)})


def test_19_to_1_is_not_told():
    """Twenty times is the bound."""
    assert told({"training": survey([(str(i), "x") for i in range(19)] + [("b", "y")])}) == []


def test_texts_on_both_sides_are_a_leak():
    """Of four evaluation records three have a text of the training data."""
    evals = survey([("a", "x"), ("a", "y"), ("b", "y"), ("e", "x")])
    assert (
        "warning",
        "leaks",
        "eval: 3 records with texts of the training data too (75.0%)",
    ) in told({"training": survey(CLEAN), "eval": evals})


def test_labels_of_one_side_alone_are_told():
    """Both directions."""
    surveys = {"training": survey(CLEAN), "test": survey([("c", "x"), ("d", "z")])}
    assert told(surveys) == [
        ("warning", "unseen_labels", 'training: "y" never occurs in test'),
        ("warning", "unseen_labels", 'test: "z" never occurs in training'),
    ]


def test_samples_that_fill_the_length_are_told():
    """2 of 20 are a tenth; 1 of 20 is the bound."""
    rows = [(str(i), "x") for i in range(2)]
    assert told({"training": survey(rows, lengths=[8, 8] + [3] * 18)}) == [
        ("warning", "cut", "training: 10.0% of the samples fill task.max_length, so their texts may be cut off")
    ]
    assert told({"training": survey(rows, lengths=[8] + [3] * 19)}) == []


def test_unknown_tokens_are_told():
    """2 of 100 tokens; 1 of 100 is the bound."""
    rows = [("a", "x"), ("b", "x")]
    assert told({"training": survey(rows, lengths=[4] * 25, unknown=2)}) == [
        ("warning", "unknown_tokens", "training: 2.0% of the tokens are unknown to the tokenizer")
    ]
    assert told({"training": survey(rows, lengths=[4] * 25, unknown=1)}) == []


def test_levels_decide_how_loud_it_is():
    """Errors first; what is off is not told."""
    surveys = {"training": survey([("", "x"), ("a", "x"), ("a", "x")])}
    assert [level for level, _, _ in told(surveys, duplicates="error", empty="note")] == ["error", "note"]
    assert told(surveys, duplicates="off", empty="off") == []


def test_a_task_without_labels_has_none_to_look_at():
    """Language modelling has texts alone."""
    found = survey([("a", "x"), ("a", "y")], task=MaskedLm())
    assert found.labels is None
    assert found.contradictions == 0
    assert found.duplicates == 1


def test_a_survey_comes_back_from_json():
    """As it is kept beside the encoded samples."""
    found = survey([("a", "x"), ("", "y")], lengths=[3])
    again = Survey.from_json(json.loads(json.dumps(found.to_json())))
    assert again.to_json() == found.to_json()
    assert again.texts.tolist() == found.texts.tolist()


def test_the_memory_for_many_records_is_bounded(monkeypatch):
    """With room for 100 hashes of 1,000 texts, each there twice: those that are kept are compared, so 50 are told."""
    monkeypatch.setattr(lint, "_COMPARED", 100)
    found = survey([(str(i % 1000), "x") for i in range(2000)])
    assert (found.records, len(found.texts), found.duplicates) == (2000, 100, 50)
    assert told({"training": found, "eval": found}, duplicates="off", contradictions="off") == [
        ("warning", "leaks", "eval: at least 100 records with texts of the training data too (5.0%)")
    ]
