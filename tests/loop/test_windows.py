"""Long texts in windows, in a run: what counts once and what counts for each window (fixture Z)."""

import math

import pytest

from rtx_core import Record, inference
from rtx_core.registry import Registry

ZERO = "[callbacks.zero_head]\n"
LEANING = f"[callbacks.zero_head]\nbias = [{math.log(3)}, 0.0]\n"
LOSS = (-math.log(3 / 4), -math.log(1 / 4))
"""Of a target 0 and a target 1 where the logits are (ln 3, 0)."""
WINDOWS = ("task.long_text=windows", "task.max_length=6", "task.stride=1")
"""Windows of 4 tokens, each 3 after the one before."""


def first_evaluation(outcome):
    return next(row for row in outcome.rows if "eval/loss" in row)


@pytest.mark.parametrize(("batch", "micro"), [(2, 2), (2, 1)])
def test_a_word_is_learnt_once(train, batch, micro):
    """Case 1 with 2 words of label 0 and 14 of label 1, which take 5 windows: bias (−0.1, +0.1), loss ln 2."""
    rows = [{"words": ["a"] * 2, "tags": ["0"] * 2}, {"words": ["b"] * 14, "tags": ["1"] * 14}]
    sets = (*WINDOWS, f"training.batch_size={batch}", f"training.micro_batch_size={micro}")
    outcome = train(rows, task="token_classification", extra=ZERO, sets=sets)
    assert outcome.parameter("classifier.bias").tolist() == pytest.approx([-0.1, 0.1], abs=1e-6)
    assert outcome.rows[0]["train/loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert sum(outcome.watch.weights) == 16
    assert {length for batch in outcome.watch.batches for length in batch.lengths} == {4, 6}


@pytest.mark.parametrize("eval_batch_size", [1, 2, 5])
def test_a_word_is_measured_once(train, eval_batch_size):
    """Loss and accuracy are those of 5 words of label 0 and 14 of label 1, whatever the batches."""
    rows = [{"words": ["a"] * n, "tags": [tag] * n} for n, tag in ((2, "0"), (3, "0"), (14, "1"))]
    sets = (*WINDOWS, "training.eval_at_start=true", f"training.eval_batch_size={eval_batch_size}")
    outcome = train(rows, task="token_classification", extra=LEANING, evaluation=rows, sets=sets)
    row = first_evaluation(outcome)
    assert row["eval/loss"] == pytest.approx((5 * LOSS[0] + 14 * LOSS[1]) / 19, abs=1e-6)
    assert row["eval/accuracy"] == pytest.approx(5 / 19, abs=1e-12)


@pytest.mark.parametrize("eval_batch_size", [1, 2, 5])
def test_a_texts_windows_are_learnt_each_and_measured_once(train, eval_batch_size):
    """Four short texts of label 0 and one of label 1 in 4 windows: the loss is of 8 targets, the accuracy of 5."""
    rows = [{"text": "a b", "label": "0"}] * 4 + [{"text": "c d " * 6, "label": "1"}]
    sets = (*WINDOWS, "training.eval_at_start=true", f"training.eval_batch_size={eval_batch_size}")
    outcome = train(rows, extra=LEANING, evaluation=rows, sets=(*sets, "training.batch_size=5"))
    expected = (4 * LOSS[0] + 4 * LOSS[1]) / 8
    (step,) = (row for row in outcome.rows if "train/loss" in row)
    assert step["train/loss"] == pytest.approx(expected, abs=1e-6)
    assert sum(outcome.watch.weights) == 8
    row = first_evaluation(outcome)
    assert row["eval/loss"] == pytest.approx(expected, abs=1e-6)
    assert row["eval/accuracy"] == pytest.approx(0.8, abs=1e-12)


@pytest.mark.parametrize("long_text", ["windows", "head_tail"])
def test_predict_answers_what_was_measured(train, long_text):
    """The accuracy of the kept model is that of its answers, on texts of up to 9 windows."""
    rows = [{"text": " ".join("abcdef"[(n + i) % 6] for i in range(n % 27)), "label": str(n % 2)} for n in range(40)]
    sets = (*WINDOWS[:2], f"task.long_text={long_text}", "training.duration=20 steps", "training.monitor=eval/accuracy")
    outcome = train(rows, evaluation=rows, sets=(*sets, "training.batch_size=8"))
    trained = inference.load(outcome.folder, Registry.discover())
    given = trained.answers(Record({"text": row["text"]}, "new", n) for n, row in enumerate(rows, start=1))
    right = [answer["prediction"] == row["label"] for answer, row in zip(given, rows, strict=True)]
    assert 0.4 < sum(right) / 40 < 1.0
    assert sum(right) / 40 == pytest.approx(outcome.record["best"]["value"], abs=1e-12)
