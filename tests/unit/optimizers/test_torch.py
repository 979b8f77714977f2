"""200 steps on a small BERT, with the core's groups, equal torch's own class to the bit."""

import numpy as np
import pytest
import torch

from rtx_core import Batch, Sample
from rtx_core.groups import parameter_groups
from rtx_core.optimizers import reset_state
from rtx_plugins.optimizers.adafactor import Adafactor
from rtx_plugins.optimizers.adam import Adam
from rtx_plugins.optimizers.adamw import AdamW
from rtx_plugins.optimizers.muon import Muon
from rtx_plugins.optimizers.sgd import SGD

STEPS = 200
DECAY = 0.1


@pytest.fixture
def batches():
    """Batches of 4 sequences with a target at every token."""
    generator = np.random.default_rng(0)

    def sample():
        ids = generator.integers(5, 20, 6).astype(np.int32)
        return Sample(ids, np.zeros(6, np.uint8), np.arange(6, dtype=np.int32), ids.astype(np.int64))

    return [Batch.of([sample() for _ in range(4)], range(4)) for _ in range(20)]


def train(model, optimizer, theirs, batches):
    """Steps at linearly falling rates, as the loop makes them; the mean loss of the first and of the last ten.

    The other optimizer is given the gradients of ours: as long as the weights are equal, they are its own.
    """
    peaks = [options["lr"] for options in optimizer.param_groups]
    losses = []
    for step in range(STEPS):
        falling = 1 - step / STEPS
        for options, peak in zip(optimizer.param_groups, peaks, strict=True):
            options["lr"] = peak * falling
        batch = batches[step % len(batches)]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(batch), batch.targets)
        loss.backward()
        theirs.step({name: p.grad.clone() for name, p in model.parameters_by_name().items()}, falling)
        optimizer.step()
        losses.append(loss.item())
    return np.mean(losses[:10]), np.mean(losses[-10:])


def built(component, model, architecture):
    return component.build(parameter_groups(model, architecture.layer_names(), component))


class Theirs:
    """Copies of a model's weights under optimizers of torch, whose groups are made by the weights' names alone."""

    def __init__(self, model):
        self.weights = {n: torch.nn.Parameter(p.detach().clone()) for n, p in model.parameters_by_name().items()}
        self.optimizers = []

    def add(self, kind, names, **settings):
        """Let torch's class update the named weights: those of norms and biases without decay."""
        plain = {name for name in names if name.endswith("bias") or "LayerNorm" in name}
        groups = [
            {"params": [self.weights[name] for name in members], "weight_decay": decay}
            for members, decay in (([n for n in names if n not in plain], DECAY), (sorted(plain), 0.0))
            if members
        ]
        self.optimizers.append((kind(groups, **settings), settings["lr"]))

    def step(self, gradients, falling):
        """One update by these gradients, at this share of the peak rate."""
        for name, weight in self.weights.items():
            weight.grad = gradients[name]
        for optimizer, peak in self.optimizers:
            for options in optimizer.param_groups:
                options["lr"] = peak * falling
            optimizer.step()

    def assert_equal(self, model):
        """To the bit."""
        assert all(torch.equal(p, self.weights[name]) for name, p in model.parameters_by_name().items())


SAME = {
    "adam": (Adam, torch.optim.Adam, {"lr": 1e-3, "betas": (0.8, 0.98), "amsgrad": True}, {"fused": True}),
    "adamw": (AdamW, torch.optim.AdamW, {"lr": 1e-3, "eps": 1e-6, "fused": False}, {}),
    "sgd": (SGD, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}, {"fused": True}),
    "adafactor": (Adafactor, torch.optim.Adafactor, {"lr": 0.02}, {}),
}
"""Component, torch's class, settings of both, and what only torch has to be told. Other kernels: test_formulas.py."""


@pytest.mark.parametrize("name", SAME)
def test_200_steps_are_torchs_to_the_bit(bert, batches, name):
    """Every parameter is equal after 200 steps with decay at falling rates, in which the loss fell."""
    component, kind, settings, told = SAME[name]
    model, architecture = bert
    theirs = Theirs(model)
    theirs.add(kind, list(theirs.weights), **settings, **told)
    first, last = train(model, built(component(weight_decay=DECAY, **settings), model, architecture), theirs, batches)
    assert last < 0.8 * first
    theirs.assert_equal(model)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon (2.9 or newer has)")
def test_200_steps_of_muon_are_torchs_to_the_bit(bert, batches):
    """Matrices by torch.optim.Muon, all other parameters by torch.optim.AdamW with its own rate."""
    model, architecture = bert
    theirs = Theirs(model)
    matrices = [name for name, weight in theirs.weights.items() if ".layer." in name and weight.ndim == 2]
    others = [name for name in theirs.weights if name not in matrices]
    theirs.add(torch.optim.Muon, matrices, lr=0.02)
    theirs.add(torch.optim.AdamW, others, lr=1e-3, betas=(0.9, 0.95), eps=1e-10, fused=True)
    component = Muon(lr=0.02, adamw_lr=1e-3, weight_decay=DECAY)
    first, last = train(model, built(component, model, architecture), theirs, batches)
    assert last < 0.8 * first
    theirs.assert_equal(model)


@pytest.mark.parametrize(
    ("component", "said"),
    [
        (Adam(lr=0.1), "torch.optim.Adam, fused"),
        (Adam(lr=0.1, fused=False), "torch.optim.Adam, for-loop"),
        (AdamW(lr=0.1), "torch.optim.AdamW, fused"),
        (SGD(lr=0.1), "torch.optim.SGD, fused"),
        (Adafactor(lr=0.1), "torch.optim.Adafactor, for-loop"),
    ],
)
def test_which_implementation_runs_is_said(bert, component, said):
    """What decides the last bits is an attribute of the part, for run.json; on a CPU torch has fused kernels."""
    assert built(component, *bert).implementation == said


@pytest.mark.parametrize("component", [Adam, SGD])
def test_fused_is_refused_where_there_is_no_kernel(group, component):
    """``fused = true`` on such a device is one clear line, and without it the plain form is taken."""
    from rtx_core import InputError

    weight = torch.nn.Parameter(torch.empty(2, device="meta"))
    with pytest.raises(InputError, match=rf"optimizer\.fused: there is no fused {component.__name__} on meta"):
        component(lr=0.1, fused=True).build([group({"w": weight})])
    assert component(lr=0.1).build([group({"w": weight})]).param_groups[0]["fused"] is False


def test_the_state_of_some_parameters_can_be_reset(group, gradients):
    """What was averaged of one weight is forgotten, the other's stays; rates stay too."""
    one, two = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    optimizer = AdamW(lr=0.1).build([group({"one": one, "two": two})])
    for gradient in gradients(3, 4):
        one.grad, two.grad = gradient.clone(), gradient.clone()
        optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.05
    reset_state(optimizer, [one])
    assert set(optimizer.state) == {two}
    one.grad, two.grad = torch.full((3,), 2.0), None
    before = one.detach().clone()
    optimizer.step()
    # The first update of Adam is the rate in the gradient's direction, whatever its size.
    torch.testing.assert_close(before - one.detach(), torch.full((3,), 0.05), rtol=1e-6, atol=1e-8)
