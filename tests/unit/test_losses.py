"""Cross-entropy against torch's and the formula, all at once and in chunks."""

import math

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional

from rtx_core import InputError, Outputs
from rtx_plugins.losses.cross_entropy import CrossEntropy

LABELS = ("animal", "food", "plant")


def build(size=3, labels=None, **settings):
    return CrossEntropy(**settings).build(Outputs(size=size, labels=labels))


@pytest.fixture
def rows():
    """Logits of 12 rows and 3 classes; four targets are ignored, by different negative numbers."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(12, 3, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, 3, (12,), generator=generator)
    targets[[0, 3, 7, 11]] = torch.tensor([-100, -1, -100, -7])
    return logits, targets


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("class_weights", [None, (1.0, 3.0, 0.5)])
def test_the_mean_is_torchs(rows, label_smoothing, class_weights):
    """Sum over weight equals torch's mean reduction without the ignored rows, for every setting, with its gradient."""
    logits, targets = rows
    part = build(label_smoothing=label_smoothing, class_weights=class_weights)
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss = part.of_logits(ours, targets) / part.weight(targets)
    kept = targets >= 0
    weight = None if class_weights is None else torch.tensor(class_weights, dtype=torch.float64)
    expected = functional.cross_entropy(theirs[kept], targets[kept], weight=weight, label_smoothing=label_smoothing)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-14, atol=0)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-13, atol=1e-16)


def test_smoothing_spreads_its_share_over_all_classes_of_counted_targets(rows):
    """The sum is (1 − ε) · −log p[y] + ε · mean over classes of −log p, and an ignored target adds nothing."""
    logits, targets = rows
    nats = -logits.log_softmax(-1)
    expected = sum(0.8 * nats[n, y] + 0.2 * nats[n].mean() for n, y in enumerate(targets.tolist()) if y >= 0)
    torch.testing.assert_close(build(label_smoothing=0.2).of_logits(logits, targets), expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("pieces", [1, 2, 4])
def test_class_weights_act_the_same_however_the_step_is_cut(pieces):
    """Weights [1, 3] and labels 0, 0, 1, 1 with zero logits: loss ln 2 and bias gradient (+1/4, −1/4) (case 2)."""
    part = build(size=2, class_weights=(1.0, 3.0))
    targets = torch.tensor([0, 0, 1, 1])
    bias = torch.zeros(2, requires_grad=True)
    weight = sum(part.weight(piece) for piece in targets.chunk(pieces))
    total = 0.0
    for piece in targets.chunk(pieces):
        loss = part.of_logits(bias.expand(len(piece), 2), piece) / weight
        loss.backward()
        total += loss.item()
    assert weight == 8.0
    assert total == pytest.approx(math.log(2), rel=1e-6)
    torch.testing.assert_close(bias.grad, torch.tensor([0.25, -0.25]), rtol=1e-6, atol=0)


def test_known_logits_have_the_known_loss():
    """Logits (ln 3, 0) cost 0.287682 for label 0 and 1.386294 for label 1."""
    logits = torch.tensor([[math.log(3), 0.0]])
    part = build(size=2)
    assert part.of_logits(logits, torch.tensor([0])).item() == pytest.approx(0.287682, abs=5e-7)
    assert part.of_logits(logits, torch.tensor([1])).item() == pytest.approx(1.386294, abs=5e-7)


@pytest.mark.parametrize("settings", [{}, {"label_smoothing": 0.1}, {"class_weights": (1.0, 2.0, 3.0)}])
@pytest.mark.parametrize("targets", [[], [-100, -1]])
def test_nothing_to_learn_weighs_nothing(settings, targets):
    """Without a counted target the weight is 0, and loss and gradient are 0 and never NaN (case 6)."""
    part = build(**settings)
    targets = torch.tensor(targets, dtype=torch.int64)
    logits = torch.randn(len(targets), 3, requires_grad=True)
    loss = part.of_logits(logits, targets)
    loss.backward()
    assert part.weight(targets) == 0.0
    assert loss.item() == 0.0
    assert not logits.grad.any()


def test_half_precision_logits_are_summed_in_float32():
    """The sum of bfloat16 logits is float32 and as exact as float32 can be."""
    logits = torch.randn(512, 8, generator=torch.Generator().manual_seed(1)).bfloat16()
    targets = torch.arange(512) % 8
    loss = build(size=8).of_logits(logits, targets)
    assert loss.dtype == torch.float32
    expected = functional.cross_entropy(logits.double(), targets, reduction="sum").item()
    assert loss.item() == pytest.approx(expected, rel=1e-6)


def test_class_weights_are_settings_and_no_state():
    """They follow the module to another device or dtype, and no checkpoint holds them."""
    part = build(class_weights=(1.0, 2.0, 3.0))
    assert part.state_dict() == {}
    assert part.to("meta").class_weights.device.type == "meta"
    assert part.weight(torch.tensor([0, 2, -100])) == 4.0


def test_class_weights_may_name_labels():
    """A label that is not named counts 1."""
    part = build(labels=LABELS, class_weights={"plant": 2.5, "animal": 0.0})
    assert part.class_weights.tolist() == [0.0, 1.0, 2.5]


@pytest.mark.parametrize("counts", [(480, 480, 40), (1, 1, 1), (7, 200, 3)])
def test_balanced_class_weights_are_scikit_learns(counts):
    """``"balanced"`` is n / (K · count) from the counts of the training data."""
    part = CrossEntropy(class_weights="balanced").build(Outputs(size=3, labels=LABELS, counts=counts))
    classes = np.repeat(np.arange(3), counts)
    expected = compute_class_weight("balanced", classes=np.arange(3), y=classes)
    assert part.weight(torch.tensor([0, 1, 2])) == pytest.approx(expected.sum(), rel=1e-15)
    np.testing.assert_allclose(part.class_weights.numpy(), expected, rtol=1e-7)
    # A target counts 1 on average.
    assert part.weight(torch.from_numpy(classes)) == pytest.approx(len(classes), rel=1e-12)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (
            Outputs(size=3, labels=LABELS, counts=(3, 0, 1)),
            'loss.class_weights: "balanced" has no weight for the label "food", which never occurs in the training',
        ),
        (Outputs(size=3), 'loss.class_weights: "balanced" goes by how often each label occurs'),
    ],
)
def test_what_never_occurs_cannot_be_balanced(outputs, message):
    """A label without a training example is refused by its name, and so is a task without labels."""
    with pytest.raises(InputError, match=message):
        CrossEntropy(class_weights="balanced").build(outputs)


@pytest.mark.parametrize(
    ("labels", "weights", "message"),
    [
        (LABELS, {"plnat": 2.0}, 'no label "plnat"; the labels are animal, food, plant'),
        (None, {"plant": 2.0}, "give one number for each class"),
        (LABELS, (1.0, 2.0), "2 weights for 3 classes"),
        (LABELS, (0.0, 0.0, 0.0), "all are 0, so no target would count"),
    ],
)
def test_class_weights_must_fit_the_labels(labels, weights, message):
    """An unknown label, names without labels, a wrong number of weights and none above 0 are each one clear line."""
    with pytest.raises(InputError, match=message) as error:
        build(labels=labels, class_weights=weights)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("weights", [(1.0, -1.0), {"animal": math.nan}, (math.inf,)])
def test_class_weights_are_numbers_from_0(weights):
    """Negative weights, NaN and infinity are refused by name."""
    with pytest.raises(ValueError, match="must be a number ≥ 0"):
        CrossEntropy(class_weights=weights)


@pytest.mark.parametrize("smoothing", [-0.1, 1.0])
def test_smoothing_leaves_something_to_the_target(smoothing):
    """The share lies in [0, 1)."""
    with pytest.raises(ValueError, match="label_smoothing"):
        CrossEntropy(label_smoothing=smoothing)


# --- z-loss -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("class_weights", [None, (1.0, 3.0, 0.5)])
def test_z_loss_adds_the_squared_logarithm_of_the_partition_function(rows, class_weights):
    """For each counted target w[y] · z · (log Σ exp x)² is added, summed term by term here, with its gradient."""
    logits, targets = rows
    part = build(z_loss=0.01, label_smoothing=0.1, class_weights=class_weights)
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss = part.of_logits(ours, targets)
    loss.backward()
    weights = class_weights or (1.0, 1.0, 1.0)
    expected = build(label_smoothing=0.1, class_weights=class_weights).of_logits(theirs, targets)
    for row, target in zip(theirs, targets.tolist(), strict=True):
        if target >= 0:
            expected = expected + weights[target] * 0.01 * row.exp().sum().log() ** 2
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-14, atol=0)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-13, atol=1e-16)


def test_z_loss_of_equal_logits_is_known():
    """Four logits of 0 have Z = 4: the loss is ln 4 + z · ln² 4, and only z · 2 ln 4 / 4 pulls at each logit beside
    cross-entropy's 1/4 − (is it the target).
    """
    logits = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    loss = build(size=4, z_loss=0.5).of_logits(logits, torch.tensor([2]))
    loss.backward()
    assert loss.item() == pytest.approx(math.log(4) + 0.5 * math.log(4) ** 2, rel=1e-15)
    pull = 0.5 * 2 * math.log(4) / 4
    torch.testing.assert_close(
        logits.grad, torch.tensor([[0.25 + pull, 0.25 + pull, -0.75 + pull, 0.25 + pull]], dtype=torch.float64)
    )


@pytest.mark.parametrize("settings", [{"z_loss": -1e-4}, {"chunk_size": 0}])
def test_settings_have_a_range(settings):
    """A negative factor and a chunk of nothing are refused by name."""
    with pytest.raises(ValueError, match=next(iter(settings))):
        CrossEntropy(**settings)


# --- in chunks --------------------------------------------------------------------------------------------------------

EVERYTHING = {"label_smoothing": 0.1, "class_weights": (1.0, 3.0, 0.5), "z_loss": 0.01}


class Projection:
    """A head's projection whose parameters get gradients too."""

    def __init__(self, size=3):
        generator = torch.Generator().manual_seed(3)
        self.weight = torch.randn(size, 5, generator=generator, dtype=torch.float64, requires_grad=True)
        self.bias = torch.randn(size, generator=generator, dtype=torch.float64, requires_grad=True)

    def __call__(self, features):
        return torch.nn.functional.linear(features.tanh(), self.weight, self.bias)


def features_of(targets):
    generator = torch.Generator().manual_seed(4)
    return torch.randn(len(targets), 5, generator=generator, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("chunk_size", [1, 5, 12, 100])
@pytest.mark.parametrize("settings", [{}, EVERYTHING])
def test_chunks_change_nothing(rows, settings, chunk_size):
    """Loss and gradients, those of the projection's parameters too, are those of all logits at once."""
    _, targets = rows
    results = []
    for part in (build(**settings), build(**settings, chunk_size=chunk_size)):
        features, project = features_of(targets), Projection()
        if hasattr(part, "of_features"):
            loss = part.of_features(features, project, targets)
        else:
            loss = part.of_logits(project(features), targets)
        loss.backward()
        results.append((loss.detach(), features.grad, project.weight.grad, project.bias.grad, part.weight(targets)))
    for all_at_once, in_chunks in zip(*results, strict=True):
        torch.testing.assert_close(in_chunks, all_at_once, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("targets", [[], [-100, -1, -100]])
def test_chunks_of_nothing_weigh_nothing(targets):
    """Without a counted target, or any, the sum is 0 with a graph, so that the step can go on (case 6)."""
    targets = torch.tensor(targets, dtype=torch.int64)
    features, project = features_of(targets), Projection()
    loss = build(chunk_size=2).of_features(features, project, targets)
    loss.backward()
    assert loss.item() == 0.0
    assert not project.weight.grad.any()


def test_a_projection_with_dropout_is_computed_twice_with_one_chance(rows):
    """The gradient is that of the loss that was returned: what fell out in the first pass falls out in the second."""
    _, targets = rows
    features, project = features_of(targets), Projection()
    torch.manual_seed(5)
    loss = build(chunk_size=4).of_features(
        features, lambda chunk: project(torch.nn.functional.dropout(chunk, 0.5)), targets
    )
    torch.manual_seed(6)
    loss.backward()
    fallen = (features.grad == 0)[targets >= 0].double().mean().item()
    torch.manual_seed(5)
    kept = torch.cat([torch.nn.functional.dropout(chunk, 0.5) for chunk in features.detach().split(4)]) != 0
    assert torch.equal(features.grad[targets >= 0] != 0, kept[targets >= 0])
    assert 0.2 < fallen < 0.8


def test_the_gradients_are_those_of_the_formula(rows):
    """Numerical differentiation agrees, in chunks and at once, with every setting on."""
    logits, targets = rows
    assert torch.autograd.gradcheck(lambda x: build(**EVERYTHING).of_logits(x, targets), logits.requires_grad_())
    project, part = Projection(), build(**EVERYTHING, chunk_size=5)
    features = features_of(targets)
    assert torch.autograd.gradcheck(
        lambda x, w: part.of_features(x, lambda f: torch.nn.functional.linear(f, w), targets),
        (features, project.weight),
    )
