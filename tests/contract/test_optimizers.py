"""What every installed optimizer promises, whoever published it: a new one is tested by having an entry point."""

import copy
import importlib.metadata

import attrs
import pytest
import torch

from rtx_core import ParameterGroup, state
from rtx_core.optimizers import reset_state

POINTS = {
    point.name.partition(".")[2]: point
    for point in importlib.metadata.entry_points(group="rtx.v1")
    if point.name.startswith("optimizer.")
}
"""Entry points by the name in TOML; of two with one name the last counts."""

STEPS = 300

pytestmark = pytest.mark.parametrize("name", sorted(POINTS))


def settings(name, **fields):
    """The component with a rate where it has no default, and defaults for the rest."""
    cls = POINTS[name].load().optimizer()[name]
    required = [field.name for field in attrs.fields(cls) if field.default is attrs.NOTHING]
    assert set(required) <= {"lr"}
    return cls(**(dict.fromkeys(required, 0.05) | fields))


class Problem:
    """Least squares with a matrix and a bias, whose solution is known, and an optimizer that looks for it."""

    def __init__(self, name, **fields):
        generator = torch.Generator().manual_seed(0)
        self.weights = {
            "matrix": torch.nn.Parameter(torch.randn(4, 3, generator=generator)),
            "bias": torch.nn.Parameter(torch.full((3,), 0.1)),  # a rate may be relative to the weights' size
        }
        component = settings(name, **fields)
        self.peaks = [component.peak_lr(role, weight) for role, weight in self.weights.items()]
        self.optimizer = component.build(
            [
                ParameterGroup(parameters={role: weight}, lr=peak, weight_decay=0.0, layer=None, role=role)
                for (role, weight), peak in zip(self.weights.items(), self.peaks, strict=True)
            ]
        )
        self.inputs, truth = torch.randn(32, 4, generator=generator), torch.randn(4, 3, generator=generator)
        self.outputs = self.inputs @ truth + 1.0  # so the least is 0
        self.mode("train")

    def mode(self, name):
        """Tell an optimizer that has two modes."""
        getattr(self.optimizer, name, lambda: None)()

    def loss(self):
        return (self.inputs @ self.weights["matrix"] + self.weights["bias"] - self.outputs).square().mean()

    def update(self, step=0):
        """One update at a rate that falls to 0 over the steps."""
        for options, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            options["lr"] = peak * (1 - step / STEPS)
        self.optimizer.zero_grad()
        loss = self.loss()
        loss.backward()
        self.optimizer.step()

    def copied(self, name):
        """The same weights under a new optimizer."""
        other = Problem(name)
        other.take_weights(self)
        return other

    def take_weights(self, other):
        with torch.no_grad():
            for role, weight in self.weights.items():
                weight.copy_(other.weights[role])

    def equals(self, other):
        return all(torch.equal(weight, other.weights[role]) for role, weight in self.weights.items())


def test_it_trains_a_small_problem(name):
    """Within 300 updates at a falling rate the loss falls to a hundredth, by the weights that it shows."""
    # Rates that its default leaves to large models, as adamw_lr of muon, are raised to that of this problem.
    cls = type(settings(name))
    rates = [f.name for f in attrs.fields(cls) if f.name.endswith("_lr") and isinstance(f.default, float)]
    problem = Problem(name, **dict.fromkeys(["lr", *rates], 0.05))
    first = problem.loss().item()
    for step in range(STEPS):
        problem.update(step)
    problem.mode("eval")
    assert problem.loss().item() < 0.01 * first


@pytest.mark.parametrize("steps", [1, 5])
def test_it_is_restored_exactly(name, steps):
    """Saved after k updates and loaded into another, it goes on with the same bits."""
    straight = Problem(name)
    for step in range(steps):
        straight.update(step)
    resumed = straight.copied(name)
    resumed.optimizer.load_state_dict(copy.deepcopy(straight.optimizer.state_dict()))
    for step in range(steps, steps + 10):
        straight.update(step)
        resumed.update(step)
    assert straight.equals(resumed)


def test_its_state_is_plain(name):
    """It holds tensors, numbers, booleans, strings and None, which a checkpoint gives back equal."""
    problem = Problem(name)
    problem.update()
    whole = problem.optimizer.state_dict()
    by_name = {**whole, "state": {str(key): value for key, value in whole["state"].items()}}
    tree, tensors = state.encode("optimizer", by_name)
    again, _ = state.encode("optimizer", state.decode(tree, tensors))
    assert again == tree


def test_its_groups_are_those_that_it_was_given(name):
    """In order, each with its parameters, its rate and its decay: the loop writes the rates."""
    problem = Problem(name)
    groups = problem.optimizer.param_groups
    assert [options["params"] for options in groups] == [[weight] for weight in problem.weights.values()]
    assert [options["lr"] for options in groups] == problem.peaks


def test_what_takes_no_part_in_a_step_stays(name):
    """A parameter without a gradient is neither moved nor decayed."""
    problem = Problem(name)
    problem.update()
    before = problem.weights["bias"].detach().clone()
    problem.optimizer.zero_grad()
    problem.loss().backward()
    problem.weights["bias"].grad = None
    problem.optimizer.step()
    assert torch.equal(problem.weights["bias"], before)


def test_after_a_reset_it_is_as_new(name):
    """From there its updates are those of a new optimizer over the same weights, and rates stay."""
    used = Problem(name)
    for step in range(5):
        used.update(step)
    rates = [options["lr"] for options in used.optimizer.param_groups]
    reset_state(used.optimizer)
    assert [options["lr"] for options in used.optimizer.param_groups] == rates
    new = used.copied(name)
    for step in range(5):
        used.update(step)
        new.update(step)
    assert used.equals(new)


def test_showing_and_going_on_is_no_update(name):
    """An optimizer with two modes shows other weights and comes back to those of training, near enough to tell."""
    problem = Problem(name)
    if not hasattr(problem.optimizer, "eval"):
        assert not hasattr(problem.optimizer, "train")
        return
    for step in range(5):
        problem.update(step)
    before = problem.copied(name)
    problem.mode("eval")
    assert not problem.equals(before)
    problem.mode("eval")  # told twice is told once
    problem.mode("train")
    problem.mode("train")
    for role, weight in problem.weights.items():
        torch.testing.assert_close(weight, before.weights[role], rtol=1e-5, atol=1e-6)
