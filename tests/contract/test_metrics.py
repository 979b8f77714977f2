"""What every installed metric promises, whoever published it: a new one is tested by having an entry point."""

import importlib.metadata

import numpy as np
import pytest
import torch

from rtx_core import Outputs

POINTS = {
    f"{point.dist.name}:{point.name.partition('.')[2]}": point
    for point in importlib.metadata.entry_points(group="rtx.v1")
    if point.name.startswith("metric.")
}

SAMPLES = 20
"""Of two targets each."""
OUTPUTS = Outputs(size=4, labels=("B-a", "I-a", "B-b", "O"), scheme="IOB2")

pytestmark = pytest.mark.parametrize("name", sorted(POINTS))


@pytest.fixture
def metric(name, settings):
    """The component with its defaults."""
    point = POINTS[name]
    component = settings(point.load().metric()[point.name.partition(".")[2]])
    if not component.target_kinds:
        pytest.skip(f"{name} doesn't say which kinds of targets it takes (target_kinds)")
    return component


@pytest.fixture
def rows_of(targets_of):
    """Predictions, targets, weights and samples of a kind, some of the targets ignored."""

    def make(kind):
        generator = torch.Generator().manual_seed(0)
        count = 2 * SAMPLES
        classes = torch.randint(-1, 4, (count,), generator=generator)
        return (
            torch.randn(count, 4, generator=generator),
            targets_of(kind, classes, by="metric"),
            torch.ones(count),
            torch.arange(count) // 2,
        )

    return make


def counted(metric, rows, batches):
    """A part that saw these batches, each some samples."""
    part = metric.build(OUTPUTS)
    for samples in batches:
        places = torch.tensor([place for sample in samples for place in (2 * sample, 2 * sample + 1)])
        part.update_by_sample(*(column[places] for column in rows))
    return part


def joined(part, other):
    """As two processes are: what one added and collected, beside the other's."""
    part.add(**other.sums)
    for name, tensors in other.rows.items():
        part.collect(**{name: torch.cat(tensors)})
    return part


def assert_same(values, expected):
    assert values.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(values[name], value, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("seed", range(3))
def test_it_adds_up(metric, seed, rows_of):
    """Any partition of the samples, in any order, over two processes, gives the value of all at once."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(SAMPLES).tolist()
    ends = sorted(rng.choice(np.arange(1, SAMPLES), size=5, replace=False).tolist())
    batches = [order[start:end] for start, end in zip([0, *ends], [*ends, SAMPLES], strict=True)]
    for kind in metric.target_kinds:
        rows = rows_of(kind)
        expected = counted(metric, rows, [range(SAMPLES)]).compute()
        assert_same(counted(metric, rows, batches).compute(), expected)
        assert_same(joined(*(counted(metric, rows, batches[half::2]) for half in range(2))).compute(), expected)


def test_its_values_are_those_that_it_declares(metric, rows_of):
    """The same names, numbers that can be written down, and at least one of them is finite; what has a better and a
    worse is a single number.
    """
    for kind in metric.target_kinds:
        values = counted(metric, rows_of(kind), [range(SAMPLES)]).compute()
        assert values.keys() == metric.names().keys()
        assert any(np.isfinite(np.asarray(value, dtype=float)).all() for value in values.values())
        assert all(np.ndim(values[name]) == 0 for name, way in metric.names().items() if way is not None)


def test_a_reset_forgets(metric, rows_of):
    """After it an evaluation gives what a new part gives."""
    for kind in metric.target_kinds:
        rows = rows_of(kind)
        used = counted(metric, rows, [range(7)])
        used.compute()
        used.reset()
        used.update_by_sample(*(column[20:] for column in rows))
        assert_same(used.compute(), counted(metric, rows, [range(10, SAMPLES)]).compute())
