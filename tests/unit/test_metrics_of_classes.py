"""Metrics of classes and labels against scikit-learn: counts, rankings, matrices."""

import itertools
import math

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn_metrics

from rtx_core import InputError, Outputs
from rtx_plugins.metrics.auroc import Auroc
from rtx_plugins.metrics.average_precision import AveragePrecision
from rtx_plugins.metrics.confusion_matrix import ConfusionMatrix
from rtx_plugins.metrics.f1 import F1
from rtx_plugins.metrics.mcc import Mcc

AVERAGES = ("macro", "micro", "weighted", "none")
RANKINGS = [
    (Auroc, sklearn_metrics.roc_auc_score),
    (AveragePrecision, sklearn_metrics.average_precision_score),
]
COMPONENTS = [Mcc(), *(cls(average=average) for cls in (Auroc, AveragePrecision) for average in AVERAGES)]


@pytest.fixture(params=[100, pytest.param(1000, marks=pytest.mark.nightly)])
def cases(request):
    """How many random cases are compared: scikit-learn takes milliseconds for each."""
    return request.param


def of_classes(seed, classes=None):
    """Random logits, targets and weights of 2 to 60 rows, with ties, ignored targets and rows of weight 0."""
    draw = np.random.default_rng(seed)
    count, classes = int(draw.integers(2, 61)), classes or int(draw.integers(2, 6))
    # Halves of whole numbers, so that many scores are equal.
    logits = draw.integers(-6, 7, (count, classes)) / 2 if seed % 2 else draw.normal(size=(count, classes))
    targets = draw.integers(0, classes, count)
    targets[draw.random(count) < 0.1] = -100
    weights = (draw.random(count) < 0.9).astype(np.float32)
    return torch.tensor(logits), torch.tensor(targets), torch.tensor(weights)


def of_labels(seed, labels=4):
    """The same with a 0 or 1 for each label, of which some are NaN."""
    draw = np.random.default_rng(seed)
    count = int(draw.integers(2, 61))
    logits = draw.integers(-6, 7, (count, labels)) / 2 if seed % 2 else draw.normal(size=(count, labels))
    targets = (draw.random((count, labels)) < draw.random(labels)).astype(np.float32)
    targets[draw.random((count, labels)) < 0.1] = np.nan
    weights = (draw.random(count) < 0.9).astype(np.float32)
    return torch.tensor(logits), torch.tensor(targets), torch.tensor(weights)


def computed(component, logits, targets, weights, *, batch_size=None):
    part = component.build(Outputs(size=logits.shape[-1]))
    size = batch_size or len(targets)
    for batch in zip(logits.split(size), targets.split(size), weights.split(size), strict=True):
        part.update(*batch)
    (value,) = part.compute().values()
    return value


def counted(logits, targets, weights):
    """The rows that count, as arrays."""
    kept = (targets >= 0) & (weights > 0)
    return logits[kept].numpy(), targets[kept].numpy()


def label_columns(logits, targets, weights):
    """Of each label the scores and the 0s and 1s that count, as arrays."""
    for scores, truth in zip(logits.T, targets.T, strict=True):
        kept = ~truth.isnan() & (weights > 0)
        yield scores[kept].numpy(), truth[kept].numpy().astype(int)


# --- counts -----------------------------------------------------------------------------------------------------------


def test_mcc_is_scikit_learns(cases):
    """On random cases of 2 to 5 classes, also where a class never occurs or only one is predicted."""
    for seed in range(cases):
        logits, targets, weights = of_classes(seed)
        kept, truth = counted(logits, targets, weights)
        if len(truth) < 2:
            continue
        expected = sklearn_metrics.matthews_corrcoef(truth, kept.argmax(-1))
        assert computed(Mcc(), logits, targets, weights) == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_mcc_of_guessing_one_class_is_0():
    """The same prediction for every row says nothing, however often it is right."""
    assert computed(Mcc(), torch.tensor([[1.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1]), torch.ones(4)) == 0.0


def test_confusion_matrix_is_scikit_learns(cases):
    """On random cases: rows are targets, columns predictions, in the order of the labels."""
    for seed in range(cases):
        logits, targets, weights = of_classes(seed)
        kept, truth = counted(logits, targets, weights)
        if not len(truth):
            continue
        expected = sklearn_metrics.confusion_matrix(truth, kept.argmax(-1), labels=range(logits.shape[1]))
        assert computed(ConfusionMatrix(), logits, targets, weights) == expected.tolist()


def test_confusion_matrix_of_nothing_is_0():
    """Without a row each pair was seen 0 times."""
    assert ConfusionMatrix().build(Outputs(size=2)).compute() == {"confusion_matrix": [[0.0, 0.0], [0.0, 0.0]]}


def test_a_matrix_of_a_vocabulary_is_refused():
    """Of 30,522 classes it would take 7 GB; one line says so before the run."""
    with pytest.raises(InputError, match=r"^metrics.confusion_matrix: 30522 classes; it takes at most 1000$"):
        ConfusionMatrix().build(Outputs(size=30522))


@pytest.mark.parametrize("average", AVERAGES)
def test_f1_of_labels_is_scikit_learns(average, cases):
    """On random cases a label is predicted above 0; one that neither is nor is predicted has no F1."""
    for seed in range(cases):
        logits, targets, weights = of_labels(seed)
        # An ignored entry as scikit-learn can be told of it: not there, and not predicted.
        ignored = targets.isnan() | (weights == 0).unsqueeze(1)
        truth, guess = ((x > 0).masked_fill(ignored, 0).numpy() for x in (targets, logits))
        expected = sklearn_metrics.f1_score(
            truth, guess, average=None if average == "none" else average, zero_division=np.nan
        )
        if average == "weighted" and not truth.any():
            expected = np.nan  # a mean without weights, for which scikit-learn has 0
        value = computed(F1(average=average), logits, targets, weights)
        np.testing.assert_allclose(value, expected, rtol=1e-13)


# --- rankings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cls", "theirs"), RANKINGS)
def test_ranking_of_two_classes_is_scikit_learns(cls, theirs, cases):
    """On random cases, half of them full of ties, the figure is the second class's for every average."""
    for seed in range(cases):
        rows = of_classes(seed, classes=2)
        kept, truth = counted(*rows)
        values = [computed(cls(average=average), *rows) for average in AVERAGES[:3]]
        if len(set(truth)) < 2:
            assert np.isnan(values).all()
        else:
            expected = theirs(truth, kept[:, 1] - kept[:, 0])
            assert values == pytest.approx([expected] * 3, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(("cls", "theirs"), RANKINGS)
@pytest.mark.parametrize("average", AVERAGES)
def test_ranking_of_classes_is_scikit_learns(cls, theirs, average, cases):
    """Of 3 classes, each against the rest by its probability, on random cases in which all occur."""
    compared = 0
    for seed in range(cases):
        # Random logits alone: equal probabilities of different logits are equal only up to rounding.
        rows = of_classes(2 * seed, classes=3)
        kept, truth = counted(*rows)
        if set(truth) != {0, 1, 2}:
            continue
        probabilities = np.exp(kept) / np.exp(kept).sum(1, keepdims=True)
        expected = theirs(np.eye(3)[truth], probabilities, average=None if average == "none" else average)
        np.testing.assert_allclose(computed(cls(average=average), *rows), expected, rtol=1e-12)
        compared += 1
    assert compared > 0.8 * cases


@pytest.mark.parametrize(("cls", "theirs"), RANKINGS)
def test_ranking_of_labels_is_scikit_learns(cls, theirs, cases):
    """On random cases with ties and ignored entries; a label that no row has, or every row, stays out of a mean."""
    for seed in range(cases):
        rows = of_labels(seed)
        columns = list(label_columns(*rows))
        each = [theirs(truth, scores) if len(set(truth)) > 1 else math.nan for scores, truth in columns]
        there = [(figure, truth.sum()) for figure, (_, truth) in zip(each, columns, strict=True) if figure >= 0]
        figures, support = zip(*there, strict=True) if there else ([math.nan], [1])
        scores, truth = map(np.concatenate, zip(*columns, strict=True))
        expected = {
            "none": each,
            "macro": np.mean(figures),
            "weighted": np.average(figures, weights=support),
            "micro": theirs(truth, scores) if len(set(truth)) > 1 else math.nan,
        }
        for average in AVERAGES:
            np.testing.assert_allclose(computed(cls(average=average), *rows), expected[average], rtol=1e-12)


@pytest.mark.parametrize(("cls", "theirs"), RANKINGS)
def test_weights_between_0_and_1_weigh_rows(cls, theirs):
    """A row counts as much as its weight, as scikit-learn's sample_weight."""
    for seed in range(100):
        logits, targets, _ = of_classes(seed, classes=2)
        targets = targets.clamp_min(0)
        if len(set(targets.tolist())) < 2:
            continue
        weights = torch.rand(len(targets), generator=torch.Generator().manual_seed(seed))
        expected = theirs(targets, logits[:, 1] - logits[:, 0], sample_weight=weights.double())
        assert computed(cls(), logits, targets, weights) == pytest.approx(expected, rel=1e-12)


def test_known_rankings():
    """Scores .9 .8 .7 .6 with labels 1 0 1 0: 3 of 4 pairs are in order; precision 1 and 2/3 at the two positives."""
    rows = torch.tensor([[0.9], [0.8], [0.7], [0.6]]), torch.tensor([[1.0], [0.0], [1.0], [0.0]]), torch.ones(4)
    assert computed(Auroc(), *rows) == 0.75
    assert computed(AveragePrecision(), *rows) == pytest.approx((1 + 2 / 3) / 2, rel=1e-15)


def test_a_model_that_diverged_has_no_figure():
    """NaN among the scores gives NaN, and no order in which NaN came first."""
    logits = torch.tensor([[0.0, math.nan], [0.0, 1.0]])
    for component in (Auroc(), AveragePrecision()):
        assert math.isnan(computed(component, logits, torch.tensor([0, 1]), torch.ones(2)))


# --- all --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda component: next(iter(component.names())))
def test_no_value_depends_on_the_batch_size(component):
    """Batches of 1 to 7 rows, the last one short, give the same bits as one batch."""
    rows = of_classes(12, classes=3)
    expected = computed(component, *rows)
    assert np.isfinite(expected).all()
    assert [computed(component, *rows, batch_size=size) for size in range(1, 8)] == [expected] * 7


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda component: next(iter(component.names())))
def test_where_nothing_counts_there_is_no_number(component):
    """No batch, or only ignored rows: NaN under the same name, not an error."""
    (empty,) = component.build(Outputs(size=2)).compute().values()
    ignored = computed(component, torch.zeros(2, 2), torch.tensor([-100, 1]), torch.tensor([1.0, 0.0]))
    assert np.isnan(empty).all()
    assert np.isnan(ignored).all()
    assert np.shape(empty) == np.shape(ignored)


def test_only_a_number_can_be_the_monitor():
    """Names say which way they get better; lists and matrices have no direction."""
    directions = {name: way for part in (*COMPONENTS, ConfusionMatrix()) for name, way in part.names().items()}
    ranked = itertools.product(("auroc", "average_precision"), ("", "_micro", "_weighted", "_per_class"))
    expected = {f"{name}{suffix}": None if suffix == "_per_class" else "max" for name, suffix in ranked}
    assert directions == {"mcc": "max", "confusion_matrix": None, **expected}
