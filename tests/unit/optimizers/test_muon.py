"""Muon: which tensors are whose, its iteration, and one state for both optimizers."""

import copy

import numpy as np
import pytest
import torch

from rtx_core.groups import parameter_groups
from rtx_plugins.optimizers.muon import Muon
from rtx_plugins.optimizers.muon_part import MuonWithAdamW, OwnMuon

HAS_TORCHS = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon (2.9 or newer has)")


def bf16(x):
    """Numbers rounded to bfloat16: 8 significant bits, ties to even."""
    bits = np.asarray(x, dtype=np.float32).view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return (rounded & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


def orthogonal(matrix, steps=5, a=3.4445, b=-4.7750, c=2.0315):
    """Jordan's iteration X ← aX + (bA + cA²)X with A = XXᵀ, rounded to bfloat16 after each product."""
    x = bf16(matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T)
    x = bf16(x / bf16(np.linalg.norm(x)))
    for _ in range(steps):
        gram = bf16(x @ x.T)
        x = bf16(a * x + bf16(b * gram + c * gram @ gram) @ x)
    return x if matrix.shape[0] <= matrix.shape[1] else x.T


def muon(*, decay, nesterov, adjust, mu=0.95):
    def formula(w, gradients, rates):
        average = np.zeros_like(w)
        rows, columns = w.shape
        factor = np.sqrt(max(1, rows / columns)) if adjust == "original" else 0.2 * np.sqrt(max(rows, columns))
        for gradient, lr in zip(gradients, rates, strict=True):
            average = mu * average + (1 - mu) * gradient
            direction = (1 - mu) * gradient + mu * average if nesterov else average
            w = (1 - lr * decay) * w - lr * factor * orthogonal(direction)
        return w

    return formula


@pytest.mark.parametrize("shape", [(8, 4), (4, 8)])
@pytest.mark.parametrize("adjust", ["original", "match_rms_adamw"])
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_it_is_the_papers_iteration(follows, weight_decay, nesterov, adjust, shape):
    """20 updates of a matrix of −1 … 1 in float64 follow the formula with its own bfloat16 iteration within 1e-3."""
    component = Muon(lr=0.02, nesterov=nesterov, adjust_lr=adjust)
    formula = muon(decay=weight_decay, nesterov=nesterov, adjust=adjust)
    follows(component, formula, weight_decay=weight_decay, shape=shape, steps=20, rtol=0.0, atol=1e-3)


def test_a_step_is_nearly_orthogonal(group, train):
    """The first update of a 6 × 4 matrix has singular values of 0.5 to 1.5 times √(6/4), whatever the gradient."""
    weight = torch.nn.Parameter(torch.zeros(6, 4))
    train(Muon(lr=1.0).build([group({"w": weight}, lr=1.0)]), weight, [torch.randn(6, 4) * 1e3])
    assert ((torch.linalg.svdvals(weight.detach()) / 1.5**0.5 - 1.0).abs() < 0.5).all()


@HAS_TORCHS
@pytest.mark.parametrize("shape", [(8, 4), (4, 8)])
@pytest.mark.parametrize("adjust", ["original", "match_rms_adamw"])
@pytest.mark.parametrize("nesterov", [False, True])
def test_our_own_is_torchs_to_the_bit(gradients, train, nesterov, adjust, shape):
    """20 updates of the one for an older torch equal torch.optim.Muon."""
    ends = []
    for kind in (OwnMuon, torch.optim.Muon):
        weight = torch.nn.Parameter(torch.linspace(-1, 1, 32).reshape(shape))
        settings = {"momentum": 0.9, "nesterov": nesterov, "ns_steps": 4, "adjust_lr_fn": adjust}
        optimizer = kind([{"params": [weight], "lr": 0.01, "weight_decay": 0.1}], **settings)
        train(optimizer, weight, gradients(shape))
        ends.append(weight.detach())
    assert torch.equal(*ends)


def test_an_older_torch_gets_our_own(group, monkeypatch):
    """Without torch.optim.Muon ours is taken, and run.json will say so."""
    monkeypatch.delattr(torch.optim, "Muon", raising=False)
    optimizer = Muon(lr=0.1).build([group({"w": torch.nn.Parameter(torch.zeros(2, 2))})])
    assert optimizer.implementation == "rtx_plugins.optimizers.muon_part.OwnMuon, for-loop"


def test_only_matrices_inside_the_backbone_are_muons(bert):
    """Embeddings, head, norms and biases have AdamW and its rate; every matrix of a layer has Muon's."""
    model, architecture = bert
    component = Muon(lr=0.02, adamw_lr=0.001)
    groups = parameter_groups(model, architecture.layer_names(), component)
    optimizer = component.build(groups)
    by_muon = {
        name
        for group, options in zip(groups, optimizer.param_groups, strict=True)
        for name in group.parameters
        if "ns_steps" in options
    }
    matrices = {name for name, p in model.parameters_by_name().items() if p.ndim == 2 and ".layer." in name}
    assert by_muon == matrices
    assert len(matrices) == 6
    rates = {name: group.lr for group in groups for name in group.parameters}
    assert {rates[name] for name in matrices} == {0.02}
    assert {rate for name, rate in rates.items() if name not in matrices} == {0.001}
    assert {group.rate_name for group in groups} == {None, "embedding", "norm", "bias", "head"}


def test_filters_with_more_axes_are_adamws():
    """A convolution's filters are no matrix: they have AdamW's rate."""
    filters = torch.nn.Parameter(torch.zeros(2, 2, 3))
    assert Muon(lr=0.02, adamw_lr=0.001).peak_lr("matrix", filters) == 0.001


def test_a_model_without_hidden_matrices_has_adamw_alone(group):
    """An empty group of matrices, which torch refuses, is left out."""
    optimizer = Muon(lr=0.1).build([group({"b": torch.nn.Parameter(torch.zeros(2))}, role="bias")])
    assert optimizer.implementation == "torch.optim.AdamW, fused"


def test_both_go_on_from_one_state(group, gradients):
    """Groups and state are shared with the two inside, also after a restore: rates reach them, bits agree."""
    shapes = {"matrix": (4, 3), "bias": (3,)}

    def made():
        weights = {role: torch.nn.Parameter(torch.ones(shape)) for role, shape in shapes.items()}
        return Muon(lr=0.1).build([group({r: w}, role=r, lr=0.1) for r, w in weights.items()]), weights

    def updates(optimizer, weights, steps):
        for step in steps:
            for role, weight in weights.items():
                weight.grad = gradients(shapes[role])[step]
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
            optimizer.step()

    straight, weights = made()
    updates(straight, weights, range(3))
    state = copy.deepcopy(straight.state_dict())
    resumed, others = made()
    with torch.no_grad():
        for role, weight in others.items():
            weight.copy_(weights[role])
    resumed.load_state_dict(state)
    updates(straight, weights, range(3, 8))
    updates(resumed, others, range(3, 8))
    assert all(torch.equal(weights[role], others[role]) for role in shapes)
    assert isinstance(resumed, MuonWithAdamW)
    assert len(resumed.state) == 2
