"""Lion against the formula of its paper."""

import numpy as np
import pytest
from rtx_extra_optimizers.lion import Lion


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_it_is_the_papers_formula(started, gradients, weight_decay):
    """In float64, at falling rates: the sign of β1 m + (1 − β1) g, with m as a weighted sum of all gradients so far."""
    weight, optimizer = started(Lion(lr=0.01, weight_decay=weight_decay))
    expected, seen = weight.detach().numpy().copy(), []
    for step, gradient in enumerate(gradients):
        lr = 0.01 / (1 + step)
        optimizer.param_groups[0]["lr"] = lr
        weight.grad = gradient
        optimizer.step()
        ages = np.arange(len(seen) - 1, -1, -1.0)
        average = 0.01 * np.tensordot(0.99**ages, np.array(seen).reshape(-1, 4, 3), 1)
        seen.append(gradient.numpy())
        expected -= lr * (np.sign(0.9 * average + 0.1 * seen[-1]) + weight_decay * expected)
        np.testing.assert_allclose(weight.detach().numpy(), expected, rtol=1e-9, atol=1e-12)


def test_every_weight_moves_by_the_rate(started, gradients):
    """The first update is the rate against the gradient's sign, however large the gradient."""
    weight, optimizer = started(Lion(lr=0.25))
    before = weight.detach().clone()
    weight.grad = gradients[0] * 1e6
    optimizer.step()
    np.testing.assert_allclose((before - weight.detach()).numpy(), 0.25 * np.sign(gradients[0].numpy()), rtol=1e-12)
