"""Each optimizer in float64 against an independent form of its paper's formula, over falling rates."""

import numpy as np
import pytest

from rtx_plugins.optimizers.adafactor import Adafactor
from rtx_plugins.optimizers.adam import Adam
from rtx_plugins.optimizers.adamw import AdamW
from rtx_plugins.optimizers.sgd import SGD

FLAGS = [False, True]


def adam(*, l2=0.0, decay=0.0, amsgrad=False, sign=1.0, beta1=0.9, beta2=0.99, eps=1e-8):
    """Algorithm 1 of arXiv:1412.6980 in its closed form: averages as weighted sums over all gradients so far.

    ``l2`` is added to the gradient, ``decay`` shrinks the weights (algorithm 2 of arXiv:1711.05101); ``amsgrad`` as
    torch's: the largest average before its bias correction.
    """

    def formula(w, gradients, rates):
        seen, largest = [], 0.0
        for t, (gradient, lr) in enumerate(zip(gradients, rates, strict=True), start=1):
            seen.append(sign * gradient + l2 * w)
            ages = np.arange(t - 1, -1, -1)
            mean = (1 - beta1) * np.tensordot(beta1**ages, np.array(seen), 1) / (1 - beta1**t)
            square = (1 - beta2) * np.tensordot(beta2**ages, np.array(seen) ** 2, 1)
            largest = np.maximum(largest, square)
            root = np.sqrt((largest if amsgrad else square) / (1 - beta2**t))
            w = (1 - lr * decay) * w - lr * mean / (root + eps)
        return w

    return formula


@pytest.mark.parametrize("fused", FLAGS)
@pytest.mark.parametrize("maximize", FLAGS)
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("amsgrad", FLAGS)
def test_adam_adds_decay_to_the_gradient(follows, amsgrad, weight_decay, maximize, fused):
    """Adam with L2, case 14: the penalty goes through both averages; ± amsgrad, ± maximize, in both kernels."""
    component = Adam(lr=0.01, betas=(0.9, 0.99), amsgrad=amsgrad, maximize=maximize, fused=fused)
    formula = adam(l2=weight_decay, amsgrad=amsgrad, sign=-1.0 if maximize else 1.0)
    follows(component, formula, weight_decay=weight_decay)


@pytest.mark.parametrize("fused", FLAGS)
@pytest.mark.parametrize("maximize", FLAGS)
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("amsgrad", FLAGS)
def test_adamw_shrinks_the_weights(follows, amsgrad, weight_decay, maximize, fused):
    """AdamW, case 14: decay never enters the averages; ± amsgrad, ± maximize, in both kernels."""
    component = AdamW(lr=0.01, betas=(0.9, 0.99), amsgrad=amsgrad, maximize=maximize, fused=fused)
    formula = adam(decay=weight_decay, amsgrad=amsgrad, sign=-1.0 if maximize else 1.0)
    follows(component, formula, weight_decay=weight_decay)


def sgd(*, momentum, dampening=0.0, nesterov=False, l2=0.0, sign=1.0):
    """The running sum written out: the first gradient whole, each later one by 1 − dampening."""

    def formula(w, gradients, rates):
        seen = []
        for t, (gradient, lr) in enumerate(zip(gradients, rates, strict=True)):
            seen.append(sign * gradient + l2 * w)
            shares = np.where(np.arange(t + 1) == 0, 1.0, 1.0 - dampening) * momentum ** np.arange(t, -1, -1.0)
            total = np.tensordot(shares, np.array(seen), 1)
            w = w - lr * (seen[-1] + momentum * total if nesterov else total)
        return w

    return formula


@pytest.mark.parametrize("fused", FLAGS)
@pytest.mark.parametrize("maximize", FLAGS)
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize(
    "settings",
    [
        {"momentum": 0.0},
        {"momentum": 0.9},
        {"momentum": 0.9, "dampening": 0.5},
        {"momentum": 0.9, "nesterov": True},
    ],
)
def test_sgd_steps_down_the_running_sum(follows, settings, weight_decay, maximize, fused):
    """Plain, with momentum, with dampening, with Nesterov's: each ± decay, ± maximize, in both kernels."""
    formula = sgd(**settings, l2=weight_decay, sign=-1.0 if maximize else 1.0)
    follows(SGD(lr=0.01, maximize=maximize, fused=fused, **settings), formula, weight_decay=weight_decay)


def adafactor(*, decay=0.0, sign=1.0, eps1=1e-30, eps2=1e-3, d=1.0, power=-0.8):
    """Algorithms 4 and 5 of arXiv:1804.04235: row and column means of the squared gradient as an outer product."""

    def rms(x):
        return np.sqrt(np.mean(x**2))

    def formula(w, gradients, rates):
        rows = columns = whole = 0.0
        for t, (gradient, lr) in enumerate(zip(gradients, rates, strict=True), start=1):
            g, beta = sign * gradient, 1 - t**power
            alpha = max(eps2, rms(w)) * min(lr, 1 / np.sqrt(t))
            if w.ndim > 1:
                rows = beta * rows + (1 - beta) * np.mean(g**2, axis=-1)
                columns = beta * columns + (1 - beta) * np.mean(g**2, axis=-2)
                square = np.outer(rows, columns) / max(np.mean(rows), eps1)
            else:
                whole = beta * whole + (1 - beta) * g**2
                square = whole
            update = g / np.sqrt(np.maximum(square, eps1**2))
            w = (1 - lr * decay) * w - alpha * update / max(1, rms(update) / d)
        return w

    return formula


@pytest.mark.parametrize("shape", [(4, 3), (12,)])
@pytest.mark.parametrize("maximize", FLAGS)
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adafactor_keeps_rows_and_columns(follows, weight_decay, maximize, shape):
    """Adafactor of a matrix and of a vector: relative rate, clipped update, ± decay, ± maximize."""
    formula = adafactor(decay=weight_decay, sign=-1.0 if maximize else 1.0, d=1.5)
    component = Adafactor(lr=0.05, maximize=maximize, eps1=1e-30, d=1.5)
    follows(component, formula, weight_decay=weight_decay, shape=shape)


def test_adam_and_adamw_differ(group, gradients, train):
    """Case 14: with the same decay L2 through the moments and decoupled decay give other weights; without, the same."""
    import torch

    def ends(decay):
        weights = []
        for kind in (Adam, AdamW):
            weight = torch.nn.Parameter(torch.linspace(-1, 1, 6))
            train(kind(lr=0.1).build([group({"w": weight}, weight_decay=decay)]), weight, gradients(6))
            weights.append(weight.detach())
        return weights

    assert torch.equal(*ends(0.0))
    decoupled, through_moments = ends(0.1)
    assert (decoupled - through_moments).abs().max() > 0.01


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"nesterov": True}, [("nesterov", "needs a momentum above 0")]),
        ({"nesterov": True, "momentum": 0.9, "dampening": 0.1}, [("nesterov", "needs a dampening of 0, got 0.1")]),
        ({"nesterov": True, "momentum": 0.9}, []),
        ({"dampening": 0.1}, [("dampening", "needs a momentum above 0")]),
        ({"dampening": 0.1, "momentum": 0.9}, []),
    ],
)
def test_what_needs_momentum_is_refused_without(settings, said):
    """What torch refuses when it is built, or leaves without effect, is refused by ``check``."""
    assert list(SGD(lr=0.1, **settings).check()) == said
