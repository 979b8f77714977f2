"""Losses over rows of numbers or labels, against torch's functions and formulas."""

import math

import pytest
import torch
from torch.nn import functional

from rtx_core import InputError, Outputs
from rtx_plugins.losses.binary_cross_entropy import BinaryCrossEntropy
from rtx_plugins.losses.huber import Huber
from rtx_plugins.losses.mse import Mse

LABELS = ("animal", "food", "plant")
COMPONENTS = [
    BinaryCrossEntropy(),
    BinaryCrossEntropy(label_smoothing=0.1, positive_weights=(2.0, 0.0, 1.5)),
    Mse(),
    Huber(),
]


def part_of(component, size=3, labels=None):
    return component.build(Outputs(size=size, labels=labels))


def rows(seed, *, labels):
    """Logits of up to 12 rows of 3 numbers, float64, and targets of which some are NaN."""
    generator = torch.Generator().manual_seed(seed)
    shape = int(torch.randint(1, 13, (), generator=generator)), 3
    logits = 3.0 * torch.randn(shape, generator=generator, dtype=torch.float64)
    targets = 3.0 * torch.randn(shape, generator=generator)
    targets = (targets > 0).float() if labels else targets
    return logits, targets.masked_fill(torch.rand(shape, generator=generator) < 0.2, torch.nan)


def compare(component, seed, theirs, *, labels):
    """Sum over weight, and its gradient, beside torch's mean over the entries that count."""
    logits, targets = rows(seed, labels=labels)
    counted = ~targets.isnan()
    if not counted.any():
        return
    part, ours, other = part_of(component), logits.clone().requires_grad_(), logits.clone().requires_grad_()
    assert part.weight(targets) == counted.sum()
    loss = part.of_logits(ours, targets) / part.weight(targets)
    expected = theirs(other, targets.nan_to_num().double())[counted].mean()
    loss.backward()
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-13, atol=0)
    torch.testing.assert_close(ours.grad, other.grad, rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("weights", [None, (1.0, 3.0, 0.5)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_binary_cross_entropy_is_torchs(weights, smoothing):
    """On 100 random cases the mean and the gradient equal BCEWithLogitsLoss's, with positive and smoothed targets."""
    positive = None if weights is None else torch.tensor(weights, dtype=torch.float64)

    def theirs(logits, targets):
        smoothed = targets.clamp(smoothing / 2, 1.0 - smoothing / 2)
        return functional.binary_cross_entropy_with_logits(logits, smoothed, pos_weight=positive, reduction="none")

    component = BinaryCrossEntropy(positive_weights=weights, label_smoothing=smoothing)
    for seed in range(100):
        compare(component, seed, theirs, labels=True)


def test_mse_is_torchs():
    """On 100 random cases the mean and the gradient equal mse_loss's over the entries that count."""
    for seed in range(100):
        compare(Mse(), seed, lambda x, y: functional.mse_loss(x, y, reduction="none"), labels=False)


@pytest.mark.parametrize("delta", [0.3, 1.0, 2.5])
def test_huber_is_torchs(delta):
    """On 100 random cases the mean and the gradient equal huber_loss's, for a small and a large delta."""
    for seed in range(100):
        compare(
            Huber(delta=delta),
            seed,
            lambda x, y: functional.huber_loss(x, y, delta=delta, reduction="none"),
            labels=False,
        )


def test_known_values():
    """Logits 0 and ln 3 cost ln 2 and −ln 3/4 or −ln 1/4; (5 − 2)² = 9; 1 · (3 − 1/2) = 2.5 and (1/2)² / 2 = 1/8."""
    bce = part_of(BinaryCrossEntropy(), size=1)
    for logit, target, expected in ((0.0, 1.0, 0.693147), (math.log(3), 1.0, 0.287682), (math.log(3), 0.0, 1.386294)):
        loss = bce.of_logits(torch.tensor([[logit]]), torch.tensor([[target]]))
        assert loss.item() == pytest.approx(expected, abs=5e-7)
    assert part_of(Mse(), size=1).of_logits(torch.tensor([[5.0]]), torch.tensor([[2.0]])).item() == 9.0
    huber = part_of(Huber(), size=2).of_logits(torch.tensor([[5.0, 1.0]]), torch.tensor([[2.0, 1.5]]))
    assert huber.item() == 2.625


def test_positive_weights_count_where_the_label_is():
    """A weight of 3 triples the loss of a label that is there; the sum is divided by the number of entries still."""
    part = part_of(BinaryCrossEntropy(positive_weights={"food": 3.0}), labels=LABELS)
    targets = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert part.weight(targets) == 6.0
    assert part.of_logits(torch.zeros(2, 3), targets).item() == pytest.approx(8 * math.log(2), rel=1e-6)


@pytest.mark.parametrize(
    ("labels", "weights", "message"),
    [
        (LABELS, {"fod": 2.0}, 'loss.positive_weights: no label "fod"; the labels are animal, food, plant'),
        (None, {"food": 2.0}, "give one number for each class"),
        (LABELS, (1.0, 2.0), "loss.positive_weights: 2 weights for 3 classes"),
    ],
)
def test_positive_weights_must_fit_the_labels(labels, weights, message):
    """An unknown label, names without labels and a wrong number of weights are each one clear line."""
    with pytest.raises(InputError, match=message) as error:
        part_of(BinaryCrossEntropy(positive_weights=weights), labels=labels)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BinaryCrossEntropy(positive_weights=(1.0, -1.0)), "must be a number ≥ 0"),
        (lambda: BinaryCrossEntropy(label_smoothing=1.0), "label_smoothing"),
        (lambda: Huber(delta=0.0), "delta"),
        (lambda: Huber(delta=math.nan), "delta"),
    ],
)
def test_settings_out_of_range_are_refused(make, message):
    """Negative weights, a target that is smoothed away and a distance of 0 or NaN."""
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("component", COMPONENTS)
@pytest.mark.parametrize("rows_ignored", [0, 2])
def test_nothing_to_learn_weighs_nothing(component, rows_ignored):
    """Without a counted entry the weight is 0, and loss and gradient are 0 and never NaN."""
    part = part_of(component)
    targets = torch.full((rows_ignored, 3), torch.nan)
    logits = torch.randn(rows_ignored, 3, requires_grad=True)
    loss = part.of_logits(logits, targets)
    loss.backward()
    assert part.weight(targets) == 0.0
    assert loss.item() == 0.0
    assert not logits.grad.any()


@pytest.mark.parametrize("component", COMPONENTS)
def test_half_precision_logits_are_summed_in_float32(component):
    """The sum of bfloat16 logits is float32, and that of the same numbers in float64 but for its rounding."""
    logits = torch.randn(512, 3, generator=torch.Generator().manual_seed(1)).bfloat16()
    targets = (torch.arange(1536).reshape(512, 3) % 2).float()
    loss = part_of(component).of_logits(logits, targets)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(part_of(component).of_logits(logits.double(), targets).item(), rel=1e-6)


def test_positive_weights_are_settings_and_no_state():
    """They follow the module to another device, and no checkpoint holds them."""
    part = part_of(BinaryCrossEntropy(positive_weights=(1.0, 2.0, 3.0)))
    assert part.state_dict() == {}
    assert part.to("meta").positive_weights.device.type == "meta"


# --- balanced ---------------------------------------------------------------------------------------------------------


def test_balanced_positive_weights_are_negatives_over_positives():
    """Of 10 records 1, 5 and 8 have a label: its presence counts 9, 1 and 1/4 times its absence, and in sum as much."""
    outputs = Outputs(size=3, labels=LABELS, counts=(1, 5, 8), records=10)
    part = BinaryCrossEntropy(positive_weights="balanced").build(outputs)
    assert part.positive_weights.tolist() == [9.0, 1.0, 0.25]
    # At logit 0 each entry costs ln 2 times its weight: negatives and positives of a label cost the same in sum.
    costs = part.costs(torch.zeros(2, 3), torch.tensor([[1.0] * 3, [0.0] * 3])) / math.log(2)
    torch.testing.assert_close(costs[0] * torch.tensor([1.0, 5.0, 8.0]), costs[1] * torch.tensor([9.0, 5.0, 2.0]))


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (Outputs(size=3, labels=LABELS, counts=(1, 0, 8), records=10), 'no weight for the label "food", which never'),
        (Outputs(size=3, labels=LABELS, counts=(1, 2, 10), records=10), 'the label "plant" is in each of the 10 train'),
        (Outputs(size=3, labels=LABELS, counts=(1, 2, 3)), "needs the number of training records"),
        (Outputs(size=3), "goes by how often each label occurs"),
    ],
)
def test_what_cannot_be_balanced_is_named(outputs, message):
    """A label that no training record has, or that all have, is refused by its name."""
    with pytest.raises(InputError, match=message):
        BinaryCrossEntropy(positive_weights="balanced").build(outputs)


@pytest.mark.parametrize("component", COMPONENTS[:2])
def test_the_gradient_of_labels_is_that_of_the_formula(component):
    """Numerical differentiation agrees, with smoothing and weights too, and is 0 where a target is ignored."""
    logits, targets = rows(1, labels=True)
    assert torch.autograd.gradcheck(lambda x: part_of(component).of_logits(x, targets), logits.requires_grad_())
