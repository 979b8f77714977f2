"""AdamW against torch's and the paper's formula."""

import copy

import pytest
import torch

from rtx_core import InputError
from rtx_plugins.optimizers.adamw import AdamW


def parameter(*values, dtype=torch.float32):
    return torch.nn.Parameter(torch.tensor(values, dtype=dtype))


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_it_is_torchs_to_the_bit(group, gradients, train, fused, amsgrad):
    """20 updates with decay equal torch.optim.AdamW of the same implementation bit for bit."""
    ours, theirs = (torch.nn.Parameter(torch.linspace(-1, 1, 12).reshape(3, 4)) for _ in range(2))
    settings = {"betas": (0.8, 0.99), "eps": 1e-6, "amsgrad": amsgrad, "fused": fused}
    optimizer = AdamW(lr=0.1, **settings).build([group({"w": ours}, lr=0.05, weight_decay=0.2)])
    train(optimizer, ours, gradients((3, 4)))
    reference = torch.optim.AdamW([theirs], lr=0.05, weight_decay=0.2, **settings)
    train(reference, theirs, gradients((3, 4)))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("fused", [False, True])
def test_it_is_the_papers_formula(group, gradients, train, fused):
    """In float64 every weight follows algorithm 2 of arXiv:1711.05101 within 1e-12."""
    weight = torch.nn.Parameter(torch.linspace(-1, 1, 6, dtype=torch.float64))
    expected = weight.detach().clone()
    lr, decay, beta1, beta2, eps = 0.01, 0.1, 0.9, 0.999, 1e-8
    m, v = torch.zeros_like(expected), torch.zeros_like(expected)
    for t, g in enumerate(gradients(6, dtype=torch.float64), start=1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        update = (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + eps)
        expected = expected - lr * update - lr * decay * expected
    optimizer = AdamW(lr=lr, fused=fused).build([group({"w": weight}, lr=lr, weight_decay=decay)])
    train(optimizer, weight, gradients(6, dtype=torch.float64))
    torch.testing.assert_close(weight.detach(), expected, rtol=1e-12, atol=0)


def test_eps_is_added_after_the_bias_correction(group, train):
    """Gradient ∓1/4, lr 0.1, eps 0.25: the first update moves each bias by 0.05 (case 12)."""
    bias = parameter(0.0, 0.0)
    optimizer = AdamW(lr=0.1, eps=0.25).build([group({"bias": bias})])
    train(optimizer, bias, [torch.tensor([0.25, -0.25])])
    torch.testing.assert_close(bias.detach(), torch.tensor([-0.05, 0.05]), rtol=1e-6, atol=0)


def test_each_group_has_its_own_rate_and_decay(group):
    """Zero gradients, lr 0.1: a decay of 0.1 leaves × 0.99, none leaves the weights alone (case 13)."""
    dense, norm = parameter(2.0), parameter(1.0)
    optimizer = AdamW(lr=0.1).build(
        [group({"dense": dense}, weight_decay=0.1), group({"norm": norm}, weight_decay=0.0, role="norm")]
    )
    for weight in (dense, norm):
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    assert dense.item() == pytest.approx(1.98, rel=1e-7)
    assert norm.item() == 1.0


def test_a_parameter_without_gradient_stays(group, train):
    """Neither decay nor moments touch what took no part in the step."""
    used, unused = parameter(1.0), parameter(1.0)
    optimizer = AdamW(lr=0.1).build([group({"used": used, "unused": unused}, weight_decay=0.1)])
    train(optimizer, used, [torch.ones(1)])
    assert unused.item() == 1.0
    assert unused not in optimizer.state


@pytest.mark.parametrize(
    ("asked", "device", "used"), [(None, "cpu", True), (False, "cpu", False), (None, "meta", False)]
)
def test_the_fused_kernel_is_taken_where_there_is_one(group, asked, device, used):
    """Unless the file says otherwise: on the CPU yes, on a device without the kernel no."""
    weight = torch.nn.Parameter(torch.empty(2, device=device))
    optimizer = AdamW(lr=0.1, fused=asked).build([group({"w": weight})])
    assert optimizer.param_groups[0]["fused"] is used


def test_fused_is_refused_where_there_is_no_kernel(group):
    """``fused = true`` on such a device is one clear line."""
    weight = torch.nn.Parameter(torch.empty(2, device="meta"))
    with pytest.raises(InputError, match=r"optimizer\.fused: there is no fused AdamW on meta"):
        AdamW(lr=0.1, fused=True).build([group({"w": weight})])


@pytest.mark.parametrize("fused", [False, True])
def test_the_state_goes_on_where_it_was(group, gradients, train, fused):
    """After a restore the next updates have the same bits as without one."""
    straight, restored = parameter(1.0, -2.0), parameter(1.0, -2.0)
    steps = gradients(2)
    optimizer = AdamW(lr=0.1, fused=fused).build([group({"w": straight}, weight_decay=0.1)])
    train(optimizer, straight, steps[:10])
    state = copy.deepcopy(optimizer.state_dict())
    restored.data.copy_(straight.data)
    other = AdamW(lr=0.1, fused=fused).build([group({"w": restored}, weight_decay=0.1)])
    other.load_state_dict(state)
    train(optimizer, straight, steps[10:])
    train(other, restored, steps[10:])
    assert torch.equal(straight, restored)


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"betas": (0.9, 1.0)}, "betas"), ({"betas": (-0.1, 0.9)}, "betas"), ({"eps": 0.0}, "eps"), ({"lr": 0.0}, "lr")],
)
def test_settings_outside_their_range_are_refused(settings, named):
    """Decay rates lie in [0, 1), eps and lr above 0."""
    with pytest.raises(ValueError, match=named):
        AdamW(**{"lr": 0.1, **settings})


def test_weight_decay_is_on_by_default():
    """AdamW's is 0.01, as torch's."""
    assert AdamW(lr=0.1).weight_decay == 0.01
