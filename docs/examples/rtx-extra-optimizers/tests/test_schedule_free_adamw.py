"""Schedule-free AdamW against algorithm 1 of its paper, and its two modes."""

import numpy as np
import pytest
import torch
from rtx_extra_optimizers.schedule_free_adamw import ScheduleFreeAdamW


def paper(x, gradients, rates, *, decay, beta1, beta2, eps=1e-8):
    """Both y and x after each step, with all three sequences kept."""
    z, v, squares = x.copy(), 0.0, 0.0
    y = x
    for t, (g, lr) in enumerate(zip(gradients, rates, strict=True), start=1):
        v = beta2 * v + (1 - beta2) * g**2
        rate = lr * np.sqrt(1 - beta2**t)
        z = z - rate * g / (np.sqrt(v) + eps) - rate * decay * y
        squares += rate**2
        c = rate**2 / squares
        x = (1 - c) * x + c * z
        y = (1 - beta1) * z + beta1 * x
        yield y, x


@pytest.mark.parametrize("beta1", [0.9, 0.5])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_it_is_the_papers_algorithm(started, gradients, weight_decay, beta1):
    """In float64, over a warm-up, the weights of training and the average that is shown follow it within 1e-9."""
    component = ScheduleFreeAdamW(lr=0.05, weight_decay=weight_decay, beta1=beta1, beta2=0.99)
    weight, optimizer = started(component)
    rates = [0.05 * min(1, (step + 1) / 10) for step in range(len(gradients))]
    given = [gradient.numpy() for gradient in gradients]
    start = weight.detach().numpy().copy()
    expected = paper(start, given, rates, decay=weight_decay, beta1=beta1, beta2=0.99)
    for gradient, lr, (y, x) in zip(gradients, rates, expected, strict=True):
        optimizer.param_groups[0]["lr"] = lr
        weight.grad = gradient
        optimizer.step()
        np.testing.assert_allclose(weight.detach().numpy(), y, rtol=1e-9, atol=1e-12)
        optimizer.eval()
        np.testing.assert_allclose(weight.detach().numpy(), x, rtol=1e-9, atol=1e-12)
        optimizer.train()


def test_it_settles_without_a_falling_rate(started):
    """At a constant rate, with noise in every gradient, the average is nearer to the least than what is trained."""
    weight, optimizer = started(ScheduleFreeAdamW(lr=0.05))
    generator = torch.Generator().manual_seed(0)
    for _ in range(1000):
        weight.grad = weight.detach() - 3.0 + torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
        optimizer.step()
    newest = (optimizer.state[weight]["z"] - 3.0).square().mean()
    optimizer.eval()
    assert (weight.detach() - 3.0).square().mean() < 0.25 * newest


def test_a_rate_of_nothing_moves_nothing(started, gradients):
    """The first step of a warm-up has a rate of 0."""
    weight, optimizer = started(ScheduleFreeAdamW(lr=0.1, weight_decay=0.1))
    before = weight.detach().clone()
    optimizer.param_groups[0]["lr"], weight.grad = 0.0, gradients[0]
    optimizer.step()
    assert torch.equal(weight.detach(), before)


def test_no_step_is_made_with_the_average_in_the_model(started, gradients):
    """Gradients would be of the wrong place; one line says what to call."""
    weight, optimizer = started(ScheduleFreeAdamW(lr=0.1))
    optimizer.eval()
    weight.grad = gradients[0]
    with pytest.raises(RuntimeError, match=r"holds averaged weights; call train\(\)"):
        optimizer.step()
