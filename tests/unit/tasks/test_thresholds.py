"""Thresholds: written, by label, and tuned for the best F1, as scikit-learn's curve has it."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score, precision_recall_curve, roc_auc_score

from rtx_core import InputError, Outputs
from rtx_plugins.metrics.auroc import Auroc
from rtx_plugins.metrics.average_precision import AveragePrecision
from rtx_plugins.metrics.f1 import F1
from rtx_plugins.tasks.multi_label_classification import MultiLabelClassification
from rtx_plugins.tasks.sequence_classification import SequenceClassification
from rtx_plugins.tasks.thresholds import best

THREE = Outputs(size=3, labels=("cli", "json", "web"), counts=(5, 2, 1), records=10)
HAM_SPAM = Outputs(size=2, labels=("ham", "spam"), counts=(90, 10))
RARE_FIRST = Outputs(size=2, labels=("fraud", "good"), counts=(3, 90))


@pytest.fixture
def build(tokenizer, special_tokens):
    """A function: the part of a task for these outputs."""

    def make(task, outputs):
        return task.build(tokenizer, outputs, max_length=16, special_tokens=special_tokens)

    return make


# --- the best threshold -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(200))
def test_the_tuned_threshold_has_the_best_f1_of_scikit_learns_curve(seed):
    """On random scores, with and without ties, no threshold of the precision-recall curve has a better F1."""
    draw = np.random.default_rng(seed)
    count = int(draw.integers(1, 60))
    scores = draw.random(count) if seed % 2 else draw.integers(1, 8, count) / 8.0
    positive = draw.random(count) < draw.choice([0.1, 0.5, 0.9])
    positive[draw.integers(count)] = True
    precision, recall, _ = precision_recall_curve(positive, scores)
    optimum = (2 * precision * recall / np.maximum(precision + recall, 1e-300)).max()
    threshold = best(scores, positive)
    assert 0.0 < threshold < 1.0
    assert f1_score(positive, scores > threshold) == pytest.approx(optimum, rel=1e-12)


@pytest.mark.parametrize(
    ("scores", "positive", "expected"),
    [
        ([0.1, 0.3, 0.8, 0.9], [0, 0, 1, 1], 0.55),  # the middle between 0.3 and 0.8
        ([0.6, 0.8], [1, 1], 0.3),  # all are positive: between the lowest and 0
        ([0.2, 0.4], [1, 0], 0.1),
        # F1 is 2/3 for the first one and for all four: 0.7 is nearer to 0.5 than 0.1 is.
        ([0.9, 0.5, 0.4, 0.2], [1, 0, 0, 1], 0.7),
        ([0.7, 0.7, 0.7], [0, 1, 0], 0.35),
        ([1.0, 0.0], [1, 0], 0.5),
    ],
)
def test_the_threshold_is_the_middle_between_two_neighbouring_scores(scores, positive, expected):
    """Of several with the best F1 the one nearest to 0.5."""
    found = best(np.array(scores), np.array(positive, dtype=bool))
    assert found == pytest.approx(expected, rel=1e-9)


def test_without_an_example_there_is_nothing_to_choose():
    """Of no row, or of none that is positive."""
    assert best(np.array([0.2, 0.9]), np.array([False, False])) is None
    assert best(np.array([]), np.array([], dtype=bool)) is None


def test_saturated_scores_leave_a_threshold_between_0_and_1():
    """Logits of 40 and 50 have the probability 1 in floats; what they differ in can't be told, and F1 goes by that."""
    scores = torch.tensor([50.0, 40.0, -800.0]).double().sigmoid().numpy()
    threshold = best(scores, np.array([True, False, False]))
    assert 0.0 < threshold < 1.0
    assert math.isfinite(math.log(threshold / (1.0 - threshold)))


# --- several labels ---------------------------------------------------------------------------------------------------


def random_rows(seed, count=80):
    """Logits ``[N, 3]`` and labels of which some are NaN."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(count, 3, generator=generator) - 1.0
    targets = (logits + 1.5 * torch.randn(count, 3, generator=generator) > 0.5).float()
    return logits, targets.masked_fill(torch.rand(count, 3, generator=generator) < 0.1, torch.nan)


@pytest.mark.parametrize("seed", range(20))
def test_each_label_is_tuned_alone(build, seed):
    """With the tuned thresholds each label's F1 is the optimum of scikit-learn's curve over the rows that count."""
    logits, targets = random_rows(seed)
    task = MultiLabelClassification(threshold="tuned")
    chosen = build(task, THREE).thresholds(logits, targets)
    tuned = build(task, Outputs(**{**vars_of(THREE), "thresholds": chosen}))
    metric = F1(average="none").build(THREE)
    metric.update(tuned.predictions(logits), targets, torch.ones(len(logits)))
    for k, found in enumerate(metric.compute()["f1_per_class"]):
        counted = ~targets[:, k].isnan()
        precision, recall, _ = precision_recall_curve(targets[counted, k], logits[counted, k].double().sigmoid())
        optimum = np.nanmax(2 * precision * recall / np.maximum(precision + recall, 1e-300))
        assert found == pytest.approx(optimum, rel=1e-12)


def vars_of(outputs):
    return {name: getattr(outputs, name) for name in ("size", "labels", "counts", "records")}


def test_what_ranks_the_texts_of_a_label_does_not_change(build):
    """AUROC and average precision per label are scikit-learn's on the bare logits, whatever the thresholds."""
    logits, targets = random_rows(3)
    targets = targets.nan_to_num()
    part = build(MultiLabelClassification(threshold={"cli": 0.01, "web": 0.987654321}), THREE)
    for component, name, theirs in (
        (Auroc(average="none"), "auroc_per_class", roc_auc_score),
        (AveragePrecision(average="none"), "average_precision_per_class", average_precision_score),
    ):
        metric = component.build(THREE)
        metric.update(part.predictions(logits), targets, torch.ones(len(logits)))
        expected = [theirs(targets[:, k], logits[:, k]) for k in range(3)]
        assert metric.compute()[name] == pytest.approx(expected, rel=1e-12)


def test_thresholds_may_be_written_by_label(build, record):
    """A label that is not named has 0.5, or its tuned one; the outputs keep what was written."""
    task = MultiLabelClassification(threshold={"json": 0.2}, labels=THREE.labels)
    outputs = task.outputs([record(text="a", label=["cli"])], 0)
    assert outputs.thresholds == (0.5, 0.2, 0.5)
    logits = [torch.tensor([0.3, 0.3, 0.6]).logit().unsqueeze(0)]
    assert build(task, outputs).answers([record(text="a")], logits, scores=False) == [{"prediction": ["json", "web"]}]
    tuned = Outputs(**{**vars_of(THREE), "thresholds": (0.1, 0.9, 0.7)})
    assert build(task, tuned).decided == (0.1, 0.2, 0.7)
    assert build(MultiLabelClassification(threshold="tuned"), tuned).decided == (0.1, 0.9, 0.7)
    assert build(MultiLabelClassification(threshold=0.4), tuned).decided == (0.4, 0.4, 0.4)


def test_a_threshold_of_an_unknown_label_is_refused(record):
    """By ``check`` where the labels are written, otherwise once the data are read."""
    message = 'no label "xml"; the labels are "cli", "json", "web"'
    known = MultiLabelClassification(threshold={"xml": 0.2}, labels=THREE.labels)
    assert list(known.check()) == [("threshold", message)]
    with pytest.raises(InputError, match=f"task.threshold: {message}"):
        MultiLabelClassification(threshold={"xml": 0.2}).outputs([record(text="a", label=["cli", "json", "web"])], 0)


@pytest.mark.parametrize("task", [MultiLabelClassification, SequenceClassification])
@pytest.mark.parametrize("threshold", [0.0, 1.0, -0.5, math.nan, {"cli": 1.5}])
def test_a_threshold_lies_between_0_and_1(task, threshold):
    """At 0 everything would be predicted, at 1 nothing."""
    with pytest.raises(ValueError, match="lies between 0 and 1"):
        task(threshold=threshold)


def test_a_label_without_an_example_keeps_its_threshold_and_is_named(build):
    """0.5, and a note that says so once."""
    logits, targets = random_rows(1)
    targets[:, 1] = 0.0
    part = build(MultiLabelClassification(threshold="tuned"), THREE)
    assert part.thresholds(logits, targets)[1] == 0.5
    assert list(part.notes()) == ['no example of "json" to tune a threshold by, so it stays at 0.5']
    assert list(part.notes()) == []


# --- one of two labels ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("outputs", "rarer"), [(HAM_SPAM, 1), (RARE_FIRST, 0)])
@pytest.mark.parametrize("seed", range(10))
def test_of_two_labels_the_rarer_is_tuned(build, outputs, rarer, seed):
    """The F1 of the label that is rarer in the training data is the best there is, whichever of the two it is."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(60, 2, generator=generator)
    classes = (logits[:, 1] - logits[:, 0] + 2.0 * torch.randn(60, generator=generator) > 1.0).long()
    targets = torch.cat([classes[:55], torch.full((5,), -100)])
    task = SequenceClassification(threshold="tuned")
    chosen = build(task, outputs).thresholds(logits, targets)
    assert sum(chosen) == 1.0
    tuned = build(task, Outputs(size=2, labels=outputs.labels, counts=outputs.counts, thresholds=chosen))
    predicted = tuned.predictions(logits)[:55].argmax(-1)
    scores = logits[:55].double().softmax(-1)[:, rarer]
    precision, recall, _ = precision_recall_curve(classes[:55] == rarer, scores)
    optimum = (2 * precision * recall / np.maximum(precision + recall, 1e-300)).max()
    assert f1_score(classes[:55], predicted, pos_label=rarer) == pytest.approx(optimum, rel=1e-12)


def test_a_number_is_the_probability_of_the_second_label(build, record):
    """0.3 predicts the second above 0.3; by name it is the threshold of that label."""
    logits, records = [torch.tensor([[0.6, 0.4]]).log()], [record(text="a")]
    for threshold, expected in (
        (None, "ham"),
        (0.3, "spam"),
        ({"spam": 0.3}, "spam"),
        ({"ham": 0.7}, "spam"),
        (0.41, "ham"),
    ):
        task = SequenceClassification(threshold=threshold)
        assert build(task, HAM_SPAM).answers(records, logits, scores=False) == [{"prediction": expected}]
    assert build(SequenceClassification(threshold={"ham": 0.7}), HAM_SPAM).decided == pytest.approx((0.7, 0.3))


def test_scores_are_probabilities_whatever_the_threshold(build, record):
    """The threshold moves what is predicted, not the scores."""
    logits, records = [torch.tensor([[0.6, 0.4]]).log()], [record(text="a")]
    (answer,) = build(SequenceClassification(threshold=0.01), HAM_SPAM).answers(records, logits, scores=True)
    assert answer == {"prediction": "spam", "scores": pytest.approx({"ham": 0.6, "spam": 0.4}, rel=1e-6)}


@pytest.mark.parametrize("threshold", [0.3, "tuned", {"cli": 0.3}])
def test_more_than_two_labels_have_no_threshold(record, threshold):
    """Refused by ``check`` where the labels are written, otherwise before the first batch."""
    known = SequenceClassification(threshold=threshold, labels=THREE.labels)
    ((field, message),) = known.check()
    assert (field, message[:40]) == ("threshold", "lies between two labels; there are 3, of")
    records = [record(text="a", label=label) for label in THREE.labels]
    with pytest.raises(InputError, match="task.threshold: lies between two labels; there are 3"):
        SequenceClassification(threshold=threshold).outputs(records, 0)


@pytest.mark.parametrize(
    ("threshold", "message"),
    [({"ham": 0.2, "spam": 0.3}, "expected the threshold of one of the two"), ({"eggs": 0.3}, 'no label "eggs"')],
)
def test_a_table_names_one_of_the_two(threshold, message):
    """Two would contradict each other, and another label isn't there."""
    ((field, found),) = SequenceClassification(threshold=threshold, labels=("ham", "spam")).check()
    assert field == "threshold"
    assert found.startswith(message)
