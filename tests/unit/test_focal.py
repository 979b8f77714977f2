"""The focal loss against torchvision's formula, the paper's, and cross-entropy."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from rtx_core import InputError, Outputs
from rtx_plugins.losses.cross_entropy import CrossEntropy
from rtx_plugins.losses.focal import Focal

THREE = Outputs(size=3, labels=("animal", "food", "plant"), counts=(10, 1, 4))


def sigmoid_focal_loss(inputs, targets, alpha, gamma):
    """``torchvision.ops.sigmoid_focal_loss`` with its default reduction, as its documentation has it."""
    p = inputs.sigmoid()
    ce_loss = functional.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    loss = ce_loss * ((1 - p_t) ** gamma)
    return loss if alpha is None else (alpha * targets + (1 - alpha) * (1 - targets)) * loss


@pytest.fixture
def logits():
    return torch.randn(9, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


CLASSES = torch.tensor([0, 2, -100, 1, 1, -1, 2, 0, 0])
LABELS = functional.one_hot(CLASSES.clamp_min(0), 3).float()


@pytest.mark.parametrize("alpha", [None, 0.25, 1.0])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0, 5.0])
def test_of_labels_it_is_torchvisions(logits, alpha, gamma):
    """Sum over weight is the mean of its losses, ignored entries left out, with the gradient."""
    targets = LABELS.clone()
    targets[0, 1] = targets[4] = math.nan
    part = Focal(alpha=alpha, gamma=gamma).build(Outputs(size=3))
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss = part.of_logits(ours, targets) / part.weight(targets)
    kept = ~targets.isnan()
    expected = sigmoid_focal_loss(theirs[kept], targets[kept].double(), alpha, gamma).mean()
    loss.backward()
    expected.backward()
    assert part.weight(targets) == 23.0
    torch.testing.assert_close(loss, expected, rtol=1e-13, atol=0)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("weights", [None, (1.0, 3.0, 0.5)])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0, 5.0])
def test_of_classes_it_is_the_papers(logits, weights, gamma):
    """Σ w[y] · −(1 − p)^γ · log p over Σ w[y], p by softmax, row by row; ignored ones left out, with the gradient."""
    part = Focal(class_weights=weights, gamma=gamma).build(THREE)
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss = part.of_logits(ours, CLASSES)
    factors = weights or (1.0, 1.0, 1.0)
    kept = [(n, y) for n, y in enumerate(CLASSES.tolist()) if y >= 0]
    p = theirs.exp() / theirs.exp().sum(-1, keepdim=True)
    expected = sum(-factors[y] * (1 - p[n, y]) ** gamma * p[n, y].log() for n, y in kept)
    loss.backward()
    expected.backward()
    assert part.weight(CLASSES) == sum(factors[y] for _, y in kept)
    torch.testing.assert_close(loss, expected, rtol=1e-13, atol=0)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("weights", [None, (1.0, 3.0, 0.5), {"food": 2.0}, "balanced"])
def test_without_focus_it_is_cross_entropy(logits, weights):
    """With gamma 0 loss and weight are those of ``cross_entropy`` with the same class weights."""
    focal, plain = (
        cls.build(THREE) for cls in (Focal(gamma=0.0, class_weights=weights), CrossEntropy(class_weights=weights))
    )
    assert focal.weight(CLASSES) == plain.weight(CLASSES)
    torch.testing.assert_close(focal.of_logits(logits, CLASSES), plain.of_logits(logits, CLASSES), rtol=1e-13, atol=0)


def test_the_papers_figure():
    """With gamma 2 an example that is right with p = 0.9 counts 100 times less than in cross-entropy (section 3.2)."""
    logits = torch.tensor([[math.log(9.0), 0.0]], dtype=torch.float64)
    target = torch.tensor([0])
    ratio = CrossEntropy().build(Outputs(size=2)).of_logits(logits, target) / Focal().build(Outputs(size=2)).of_logits(
        logits, target
    )
    assert ratio.item() == pytest.approx(100.0, rel=1e-12)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("targets", [torch.tensor([0]), torch.tensor([[1.0, 0.0, 0.0]])])
def test_certainty_has_a_finite_gradient(gamma, targets):
    """Where p rounds to 1, or to 0, loss and gradient are finite, also with gamma < 1; certain and right costs 0."""
    for sign in (1.0, -1.0):
        logits = (sign * torch.tensor([[500.0, -500.0, -500.0]])).requires_grad_()
        loss = Focal(gamma=gamma).build(Outputs(size=3)).of_logits(logits, targets)
        loss.backward()
        assert loss.isfinite()
        assert logits.grad.isfinite().all()
        assert (loss.item() == 0.0) == (sign > 0)


@pytest.mark.parametrize("targets", [CLASSES, LABELS])
def test_the_gradient_is_that_of_the_formula(logits, targets):
    """Numerical differentiation agrees, for classes and labels."""
    part = Focal(class_weights=(1.0, 3.0, 0.5)) if targets is CLASSES else Focal(alpha=0.25)
    part = part.build(THREE)
    assert torch.autograd.gradcheck(lambda x: part.of_logits(x, targets), logits.requires_grad_())


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("class", {"alpha": 0.25}, "loss.alpha: this task has classes, .* take class_weights"),
        ("labels", {"class_weights": (1.0, 2.0, 3.0)}, "loss.class_weights: this task has labels .* take alpha"),
    ],
)
def test_the_other_kinds_factor_is_refused(kind, settings, message):
    """A factor that the task's targets would never use is one clear line before anything is written."""
    run = SimpleNamespace(pipeline=SimpleNamespace(task=SimpleNamespace(target_kind=kind)))
    Focal().build(THREE).on_build(run)
    with pytest.raises(InputError, match=message):
        Focal(**settings).build(THREE).on_build(run)


@pytest.mark.parametrize("settings", [{"gamma": -0.1}, {"alpha": 1.1}, {"alpha": -0.1}])
def test_settings_have_a_range(settings):
    """The exponent is not negative, and alpha is a share."""
    with pytest.raises(ValueError, match=next(iter(settings))):
        Focal(**settings)
