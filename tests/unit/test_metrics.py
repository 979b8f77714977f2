"""Metrics against scikit-learn and formulas; sums that add exactly."""

import math

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn_metrics

from rtx_core import Outputs
from rtx_plugins.metrics.accuracy import Accuracy
from rtx_plugins.metrics.f1 import F1
from rtx_plugins.metrics.perplexity import Perplexity

COMPONENTS = [Accuracy(), Perplexity(), *(F1(average=average) for average in ("macro", "micro", "weighted", "none"))]


def rows(seed, count=40, classes=5):
    """Random logits, targets and weights: some targets are ignored, some rows weigh 0, a class may be missing."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, classes - seed % 2, (count,), generator=generator)
    targets[torch.rand(count, generator=generator) < 0.1] = -100
    weights = (torch.rand(count, generator=generator) < 0.9).float()
    return torch.randn(count, classes, generator=generator), targets, weights


def computed(component, logits, targets, weights, *, batch_size=None):
    part = component.build(Outputs(size=logits.shape[-1]))
    size = batch_size or len(targets)
    for batch in zip(logits.split(size), targets.split(size), weights.split(size), strict=True):
        part.update(*batch)
    return part.compute()


def counted(logits, targets, weights):
    """What scikit-learn is given: the classes of the rows that count."""
    kept = (targets >= 0) & (weights > 0)
    return targets[kept].numpy(), logits[kept].argmax(-1).numpy()


@pytest.mark.parametrize("seed", range(10))
def test_accuracy_is_scikit_learns(seed):
    """Rows of weight 0 and ignored targets are left out."""
    logits, targets, weights = rows(seed)
    expected = sklearn_metrics.accuracy_score(*counted(logits, targets, weights))
    assert computed(Accuracy(), logits, targets, weights)["accuracy"] == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize("seed", range(10))
def test_averages_of_f1_are_scikit_learns(seed, average):
    """Each average equals scikit-learn's, also where a class never occurs."""
    logits, targets, weights = rows(seed, count=12)
    expected = sklearn_metrics.f1_score(*counted(logits, targets, weights), average=average)
    assert computed(F1(average=average), logits, targets, weights)[f"f1_{average}"] == pytest.approx(
        expected, rel=1e-14
    )


@pytest.mark.parametrize("seed", range(10))
def test_f1_of_each_class_is_scikit_learns(seed):
    """The list has every class in order, NaN for one that occurs in neither targets nor predictions."""
    logits, targets, weights = rows(seed, count=12)
    expected = sklearn_metrics.f1_score(
        *counted(logits, targets, weights), average=None, labels=range(5), zero_division=np.nan
    )
    values = computed(F1(average="none"), logits, targets, weights)["f1_per_class"]
    assert values == pytest.approx(expected.tolist(), rel=1e-14, nan_ok=True)


def test_weights_between_0_and_1_weigh_rows():
    """A row counts as much as its weight, as scikit-learn's sample_weight."""
    logits, targets, _ = rows(3)
    targets = targets.clamp_min(0)
    weights = torch.rand(40, generator=torch.Generator().manual_seed(4))
    truth, guess = targets.numpy(), logits.argmax(-1).numpy()
    accuracy = sklearn_metrics.accuracy_score(truth, guess, sample_weight=weights.double().numpy())
    f1 = sklearn_metrics.f1_score(truth, guess, average="macro", sample_weight=weights.double().numpy())
    assert computed(Accuracy(), logits, targets, weights)["accuracy"] == pytest.approx(accuracy, rel=1e-14)
    assert computed(F1(), logits, targets, weights)["f1_macro"] == pytest.approx(f1, rel=1e-14)


def test_perplexity_is_the_exponential_of_the_mean_cross_entropy():
    """It is exp of torch's mean over the rows that count, in float64."""
    logits, targets, weights = rows(5)
    logits = logits.double()
    kept = (targets >= 0) & (weights > 0)
    expected = torch.nn.functional.cross_entropy(logits[kept], targets[kept]).exp().item()
    assert computed(Perplexity(), logits, targets, weights)["perplexity"] == pytest.approx(expected, rel=1e-13)


def test_perplexity_of_a_uniform_model_is_the_number_of_classes():
    """Equal logits in half precision: K."""
    values = computed(Perplexity(), torch.zeros(4, 7).bfloat16(), torch.tensor([0, 1, 6, 3]), torch.ones(4))
    assert values["perplexity"] == pytest.approx(7.0, rel=1e-6)


def test_perplexity_beyond_what_a_number_holds_is_infinite():
    """A mean of 1,000 nats overflows to infinity and is no error."""
    assert computed(Perplexity(), torch.tensor([[0.0, 1000.0]]), torch.tensor([0]), torch.ones(1)) == {
        "perplexity": math.inf
    }


@pytest.mark.parametrize("batch_size", range(1, 6))
def test_no_value_depends_on_the_batch_size(batch_size):
    """Logits (ln 3, 0) and labels 0,0,0,0,1: accuracy 0.8 and perplexity e^0.507405 for every batch size (case 4)."""
    logits = torch.tensor([[math.log(3), 0.0]]).expand(5, 2)
    targets, weights = torch.tensor([0, 0, 0, 0, 1]), torch.ones(5)
    assert computed(Accuracy(), logits, targets, weights, batch_size=batch_size) == {"accuracy": 0.8}
    perplexity = computed(Perplexity(), logits, targets, weights, batch_size=batch_size)["perplexity"]
    assert math.log(perplexity) == pytest.approx(0.507405, abs=5e-7)


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda component: next(iter(component.names())))
def test_where_nothing_counts_there_is_no_number(component):
    """No batch, or only ignored rows: NaN under the same names, not an error."""
    empty = component.build(Outputs(size=2)).compute()
    ignored = computed(component, torch.zeros(2, 2), torch.tensor([-100, 1]), torch.tensor([1.0, 0.0]))
    assert empty.keys() == ignored.keys() == component.names().keys()
    for values in (empty, ignored):
        assert all(np.isnan(value).all() for value in values.values())


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda component: next(iter(component.names())))
def test_reset_forgets(component):
    """After a reset the next evaluation stands alone."""
    part = component.build(Outputs(size=5))
    part.update(*rows(1))
    part.reset()
    part.update(*rows(2))
    assert part.compute() == computed(component, *rows(2))


def test_only_a_number_can_be_the_monitor():
    """Names say which way they get better; the list of classes has no direction."""
    directions = {name: way for component in COMPONENTS for name, way in component.names().items()}
    assert directions == {
        "accuracy": "max",
        "perplexity": "min",
        "f1_macro": "max",
        "f1_micro": "max",
        "f1_weighted": "max",
        "f1_per_class": None,
    }
