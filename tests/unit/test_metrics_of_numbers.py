"""Metrics of numbers against scipy and scikit-learn."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from sklearn import metrics as sklearn_metrics

from rtx_core import Outputs
from rtx_plugins.metrics.mae import Mae
from rtx_plugins.metrics.mse import Mse
from rtx_plugins.metrics.pearson import Pearson
from rtx_plugins.metrics.spearman import Spearman

COMPONENTS = [Pearson(), Spearman(), Mse(), Mae()]
NAMES = ["pearson", "spearman", "mse", "mae"]


@pytest.fixture(params=[100, pytest.param(1000, marks=pytest.mark.nightly)])
def cases(request):
    """How many random cases are compared: scipy takes a millisecond for each."""
    return request.param


def rows(seed, columns=1):
    """Random predictions, targets and weights of 3 to 60 rows, with ties, NaN targets and rows of weight 0."""
    draw = np.random.default_rng(seed)
    count = int(draw.integers(3, 61))
    center = 10.0 ** draw.integers(-2, 6)
    targets = center + draw.normal(size=(count, columns)).round(1 if seed % 2 else 12)
    predictions = targets + draw.normal(size=(count, columns)).round(1 if seed % 2 else 12)
    targets[draw.random((count, columns)) < 0.1] = np.nan
    weights = (draw.random(count) < 0.9).astype(np.float32)
    return torch.tensor(predictions), torch.tensor(targets), torch.tensor(weights)


def computed(component, predictions, targets, weights, *, batch_size=None):
    part = component.build(Outputs(size=predictions.shape[-1]))
    size = batch_size or len(targets)
    for batch in zip(predictions.split(size), targets.split(size), weights.split(size), strict=True):
        part.update(*batch)
    (value,) = part.compute().values()
    return value


def columns_of(predictions, targets, weights):
    """Of each number the predictions and targets that count, as arrays."""
    for column, truth in zip(predictions.T, targets.T, strict=True):
        kept = ~truth.isnan() & (weights > 0)
        yield column[kept].numpy(), truth[kept].numpy()


@pytest.mark.parametrize(
    ("component", "theirs"), [(Pearson(), scipy.stats.pearsonr), (Spearman(), scipy.stats.spearmanr)]
)
def test_correlations_are_scipys(component, theirs, cases):
    """On random cases, far from 0 and with ties; rows of weight 0 and NaN targets are left out."""
    compared = 0
    for seed in range(cases):
        case = rows(seed)
        ((guess, truth),) = columns_of(*case)
        if len(truth) < 2 or min(np.ptp(guess), np.ptp(truth)) == 0:
            continue
        # Both centre numbers near 10⁵ that differ by 1, which leaves 11 of 16 digits.
        assert computed(component, *case) == pytest.approx(theirs(guess, truth).statistic, rel=1e-9, abs=1e-9)
        compared += 1
    assert compared > 0.95 * cases


@pytest.mark.parametrize(
    ("component", "theirs"),
    [(Mse(), sklearn_metrics.mean_squared_error), (Mae(), sklearn_metrics.mean_absolute_error)],
)
def test_errors_are_scikit_learns(component, theirs, cases):
    """On random cases; rows of weight 0 and NaN targets are left out."""
    for seed in range(cases):
        case = rows(seed)
        ((guess, truth),) = columns_of(*case)
        if len(truth):
            assert computed(component, *case) == pytest.approx(theirs(truth, guess), rel=1e-12)


@pytest.mark.parametrize("component", COMPONENTS, ids=NAMES)
def test_of_several_numbers_it_is_the_mean(component):
    """Of 3 targets each with gaps of its own the figure is the mean of the three figures."""
    for seed in range(100):
        predictions, targets, weights = rows(seed, columns=3)
        each = [computed(component, predictions[:, k : k + 1], targets[:, k : k + 1], weights) for k in range(3)]
        expected = np.mean([figure for figure in each if not math.isnan(figure)])
        assert computed(component, predictions, targets, weights) == pytest.approx(expected, rel=1e-14)


def test_weights_between_0_and_1_weigh_rows():
    """Errors weigh as scikit-learn's sample_weight, Pearson's r as the weighted covariance over deviations."""
    predictions, targets, _ = rows(3)
    targets = targets.nan_to_num()
    weights = torch.rand(len(targets), generator=torch.Generator().manual_seed(4)).double()
    pair = targets[:, 0].numpy(), predictions[:, 0].numpy()
    for component, theirs in (
        (Mse(), sklearn_metrics.mean_squared_error),
        (Mae(), sklearn_metrics.mean_absolute_error),
    ):
        value = computed(component, predictions, targets, weights)
        assert value == pytest.approx(theirs(*pair, sample_weight=weights), rel=1e-12)
    covariance = np.cov(np.stack(pair), aweights=weights, ddof=0)
    expected = covariance[0, 1] / math.sqrt(covariance[0, 0] * covariance[1, 1])
    assert computed(Pearson(), predictions, targets, weights) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("component", [Pearson(), Spearman()], ids=NAMES[:2])
def test_a_weight_of_2_is_a_row_that_stands_twice(component):
    """Whole weights count rows, in ranks too."""
    predictions, targets, _ = rows(5)
    weights = torch.randint(0, 4, (len(targets),), generator=torch.Generator().manual_seed(1))
    repeated = predictions.repeat_interleave(weights, 0), targets.repeat_interleave(weights, 0)
    expected = computed(component, *repeated, torch.ones(int(weights.sum())))
    assert computed(component, predictions, targets, weights) == pytest.approx(expected, rel=1e-12)


def test_known_values():
    """2x + 1 correlates perfectly; 1, 4, 9, 100 keeps the order; errors of 1, −1 and 2 have means 2 and 4/3."""
    line = torch.tensor([[3.0], [5.0], [9.0], [7.0]]), torch.tensor([[1.0], [2.0], [4.0], [3.0]]), torch.ones(4)
    assert computed(Pearson(), *line) == pytest.approx(1.0, rel=1e-15)
    curve = torch.tensor([[1.0], [4.0], [100.0], [9.0]]), *line[1:]
    assert computed(Spearman(), *curve) == pytest.approx(1.0, rel=1e-15)
    off = torch.tensor([[1.0], [2.0], [5.0]]), torch.tensor([[0.0], [3.0], [3.0]]), torch.ones(3)
    assert (computed(Mse(), *off), computed(Mae(), *off)) == (2.0, pytest.approx(4 / 3, rel=1e-15))


@pytest.mark.parametrize("component", [Pearson(), Spearman()], ids=NAMES[:2])
@pytest.mark.parametrize("predictions", [[0.1] * 3, [1.0, math.nan, 2.0], [1.0, math.inf, 2.0]])
def test_a_model_that_says_nothing_has_no_correlation(component, predictions):
    """Constant predictions, NaN and infinity: NaN, without a warning."""
    case = torch.tensor(predictions).unsqueeze(1), torch.tensor([[1.0], [2.0], [3.0]]), torch.ones(3)
    assert math.isnan(computed(component, *case))


@pytest.mark.parametrize("component", COMPONENTS, ids=NAMES)
def test_no_value_depends_on_the_batch_size(component):
    """Batches of 1 to 7 rows, the last one short, give the value of one batch; sums differ by rounding alone."""
    case = rows(12, columns=2)
    expected = computed(component, *case)
    values = [computed(component, *case, batch_size=size) for size in range(1, 8)]
    assert values == pytest.approx([expected] * 7, rel=1e-14)


@pytest.mark.parametrize("component", COMPONENTS, ids=NAMES)
def test_where_nothing_counts_there_is_no_number(component):
    """No batch, or only ignored rows: NaN under the same name, not an error."""
    (empty,) = component.build(Outputs(size=1)).compute().values()
    targets, weights = torch.tensor([[math.nan], [1.0]]), torch.tensor([1.0, 0.0])
    assert math.isnan(empty)
    assert math.isnan(computed(component, torch.zeros(2, 1), targets, weights))


def test_each_says_which_way_it_gets_better():
    """Correlations go up, errors go down."""
    directions = {name: way for component in COMPONENTS for name, way in component.names().items()}
    assert directions == {"pearson": "max", "spearman": "max", "mse": "min", "mae": "min"}
