"""Thresholds tuned in a run: by the kept model, used for the test set and for answers, the same after a resume."""

import shutil

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from rtx_core import Record, inference
from rtx_core.errors import PipelineError
from rtx_core.registry import Registry
from rtx_plugins.tasks.thresholds import best

LETTERS = "abcdef"
TEST = '[data.test]\nfiles = ["eval.jsonl"]\n'
SETS = (
    "optimizer.lr=0.02",
    "training.batch_size=8",
    "training.duration=4 epochs",
    "callbacks.checkpoint.every=1 epoch",
)


def texts(count, seed):
    """Random texts of 1 to 6 letters."""
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(list(LETTERS), draw.integers(1, 7))) for _ in range(count)]


def tagged(count, seed):
    """For each text those of the letters a, b, c that it has twice; c is rare."""
    counts = {"a": 1, "b": 1, "c": 3}
    return [
        {"text": text, "label": [letter for letter, least in counts.items() if text.count(letter) >= least]}
        for text in texts(count, seed)
    ]


def sorted_out(count, seed):
    """Texts with two c or more are 1, the others 0."""
    return [{"text": text, "label": str(int(text.count("c") >= 2))} for text in texts(count, seed)]


@pytest.fixture
def kept():
    """A function: the kept model of a run, and its logits ``[N, K]`` for rows."""

    def load(run, rows):
        trained = inference.load(run.folder, Registry.discover())
        records = [Record({"text": row["text"]}, "new", number) for number, row in enumerate(rows, start=1)]
        answers = list(trained.answers(records, scores=True))
        return trained, torch.cat(trained.logits(records)), answers

    return load


def test_several_labels_are_predicted_by_the_thresholds_of_the_kept_model(train, kept):
    """run.json has them, they are the best for the kept model's scores, and the test set's F1 is scikit-learn's."""
    held_out = tagged(40, 1)
    run = train(
        tagged(120, 0),
        task="multi_label_classification",
        evaluation=held_out,
        sets=(*SETS, "task.threshold=tuned"),
        extra=TEST,
    )
    trained, logits, answers = kept(run, held_out)
    thresholds = run.record["outputs"]["thresholds"]
    truth = np.array([[label in row["label"] for label in "abc"] for row in held_out])
    scores = logits.double().sigmoid().numpy()
    assert trained.outputs.thresholds == tuple(thresholds)
    assert thresholds == pytest.approx([best(scores[:, k], truth[:, k]) for k in range(3)], rel=1e-5)
    predicted = np.array([[label in answer["prediction"] for label in "abc"] for answer in answers])
    assert (predicted == (scores > thresholds)).all()
    assert run.record["test"]["test/f1_macro"] == pytest.approx(f1_score(truth, predicted, average="macro"), rel=1e-12)
    # Until the end of the training labels are predicted above 0.5.
    step = run.record["kept"]["step"]
    (before,) = [row for row in run.rows if row["step"] == step and "eval/f1_macro" in row]
    assert run.record["test"]["test/f1_macro"] > before["eval/f1_macro"]
    assert run.record["test"]["test/average_precision"] == pytest.approx(before["eval/average_precision"], rel=1e-12)
    assert run.record["test"]["test/loss"] == before["eval/loss"]
    assert f"`c` is predicted above a probability of {thresholds[2]!r}" in (run.folder / "model/README.md").read_text()
    assert "thresholds: a 0." in run.said


def test_of_two_labels_the_rarer_has_the_best_f1(train, kept):
    """The thresholds of both sum to 1, and the F1 of the rarer label is the optimum for the kept model's scores."""
    held_out = sorted_out(60, 1)
    run = train(sorted_out(120, 0), evaluation=held_out, sets=(*SETS, "task.threshold=tuned"), extra=TEST)
    _, logits, answers = kept(run, held_out)
    truth = np.array([row["label"] == "1" for row in held_out])
    scores = logits.double().softmax(-1)[:, 1].numpy()
    assert run.record["outputs"]["counts"][1] < run.record["outputs"]["counts"][0]
    assert sum(run.record["outputs"]["thresholds"]) == 1.0
    expected = f1_score(truth, scores > best(scores, truth))
    assert f1_score(truth, [answer["prediction"] == "1" for answer in answers]) == pytest.approx(expected, rel=1e-12)


def test_a_run_that_ended_before_its_model_was_kept_chooses_the_same(train):
    """Resumed from its last checkpoint it makes the kept model, with the same thresholds and the same test values."""
    settings = {
        "evaluation": tagged(40, 1),
        "task": "multi_label_classification",
        "sets": (*SETS, "task.threshold=tuned"),
        "extra": TEST,
    }
    run = train(tagged(120, 0), **settings)
    before = run.record
    shutil.rmtree(run.folder / "model")
    again = train(tagged(120, 0), **settings, output=run.folder, resume=True)
    assert (again.folder / "model").is_dir()
    assert again.record["outputs"] == before["outputs"]
    assert again.record["test"] == before["test"]


def test_written_thresholds_are_kept_too(train, kept):
    """A number in the pipeline is what run.json, the model card and the answers go by."""
    rows = tagged(60, 0)
    run = train(rows, task="multi_label_classification", sets=("task.threshold=0.9",))
    trained, logits, answers = kept(run, rows)
    assert run.record["outputs"]["thresholds"] == [0.9, 0.9, 0.9]
    assert trained.outputs.records == 60
    above = (logits.double().sigmoid() > 0.9).tolist()
    assert [answer["prediction"] for answer in answers] == [
        [label for label, is_on in zip("abc", row, strict=True) if is_on] for row in above
    ]
    assert "`a` is predicted above a probability of 0.9" in (run.folder / "model/README.md").read_text()


@pytest.mark.parametrize("task", ["multi_label_classification", "sequence_classification"])
def test_tuning_without_evaluation_data_is_refused_by_check(train, task):
    """One line that says what is missing, before anything is read."""
    with pytest.raises(PipelineError) as caught:
        train([{"text": "a", "label": "0"}], task=task, sets=("task.threshold=tuned",))
    assert "task.threshold: is tuned on the evaluation data, and there is neither a [data.eval] nor a" in str(
        caught.value
    )


def test_a_threshold_is_a_number_a_table_or_tuned(train):
    """Any other text is refused with what there is."""
    with pytest.raises(PipelineError, match='task.threshold: expected .*"tuned", got "tunde"'):
        train([{"text": "a", "label": []}], task="multi_label_classification", sets=("task.threshold=tunde",))
