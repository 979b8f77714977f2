"""A step does not depend on how it is cut into micro-batches: one loss, one gradient, one update (case 5)."""

import random

import attrs
import numpy as np
import pytest
import torch

from rtx_core import Callback, Loss, Outputs, Sample, Task, hookimpl

BATCH = 16
STEPS = 5
HEAD = '[head]\ntype = "linear"\ndropout = 0.0\n'
NAIVE = HEAD + '[callbacks.double]\n[loss]\ntype = "naive_info_nce"\n'


@attrs.frozen(kw_only=True)
class Double(Callback):
    """Computes in float64, so that what is left of a difference is not rounding."""

    def on_run_start(self, run):
        run.model.double()


@attrs.frozen(kw_only=True)
class Pairs(Task):
    """Two texts that belong together: a sample of two sequences, with a target at the start of each."""

    default_loss = "info_nce"
    default_head = "linear"

    def columns(self, *, targets):
        return ("anchor", "positive")

    def texts(self, record):
        yield from record.values.values()

    def outputs(self, records, vocab_size):
        return Outputs(size=2)

    def build(self, tokenizer, outputs, *, max_length, special_tokens):
        return PairsPart(tokenizer)


class PairsPart:
    """The task with its tokenizer."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def samples(self, records, *, targets=True):
        for record in records:
            sides = [self.tokenizer.encode(record.values[side]).ids for side in ("anchor", "positive")]
            ids = np.array([*sides[0], *sides[1]], np.int32)
            yield Sample(
                input_ids=ids,
                token_types=np.zeros(len(ids), np.uint8),
                target_positions=np.array([0, len(sides[0])], np.int32),
                targets=np.zeros(2, np.int64),
                lengths=tuple(map(len, sides)),
            )

    def notes(self):
        return ()


class InfoNcePart:
    """−log softmax of an anchor's similarity to its own positive, among all positives (van den Oord et al. 2018)."""

    def weight(self, targets):
        return len(targets) / 2

    def of_features(self, features, project, targets):
        anchors, positives = torch.nn.functional.normalize(features, dim=-1).unflatten(0, (-1, 2)).unbind(1)
        scores = anchors @ positives.T / 0.1
        return torch.nn.functional.cross_entropy(scores, torch.arange(len(scores)), reduction="sum")


@attrs.frozen(kw_only=True)
class InfoNce(Loss):
    """In-batch negatives over the whole step, as a loss over pairs must be."""

    whole_step = True

    def build(self, outputs):
        return InfoNcePart()


@attrs.frozen(kw_only=True)
class NaiveInfoNce(InfoNce):
    """The same, but each piece sees its own negatives alone."""

    whole_step = False


@pytest.fixture
def plugins(plugins):
    """The fixtures of the loop's tests and the parts above."""
    callbacks = plugins.callback()

    @hookimpl
    def callback():
        return {**callbacks, "double": Double}

    @hookimpl
    def task():
        return {"pairs": Pairs}

    @hookimpl
    def loss():
        return {"info_nce": InfoNce, "naive_info_nce": NaiveInfoNce}

    plugins.callback, plugins.task, plugins.loss = callback, task, loss
    return plugins


def words(generator, most):
    return [generator.choice("abcdef") for _ in range(generator.randint(1, most))]


def seeded(seed):
    return random.Random(seed)  # noqa: S311 - records, not secrets


def classified():
    """37 texts of 1 to 12 tokens: the third step of an epoch holds 5."""
    generator = seeded(0)
    return [{"text": " ".join(words(generator, 12)), "label": str(generator.randint(0, 1))} for _ in range(37)]


def tagged():
    """The same with a label for each word, some texts without any."""
    generator = seeded(1)
    texts = [[] if i % 9 == 0 else words(generator, 12) for i in range(37)]
    return [{"words": text, "tags": [str(generator.randint(0, 1)) for _ in text]} for text in texts]


def paired(count):
    generator = seeded(2)
    return [{side: " ".join(words(generator, 8)) for side in ("anchor", "positive")} for _ in range(count)]


CASES = {
    "class weights": (
        classified(),
        "sequence_classification",
        '[loss]\ntype = "cross_entropy"\nclass_weights = [1.0, 3.0]\n',
    ),
    "ragged tokens": (tagged(), "token_classification", ""),
    "masked lm": (classified(), "masked_lm", ""),
    "pairs": (paired(37), "pairs", HEAD + "[callbacks.double]\n"),
}


@attrs.frozen
class Trained:
    """What five steps led to."""

    losses: list
    gradients: dict
    """Of the last step."""
    weights: dict


@pytest.fixture
def cut(train):
    """Train a case for a few steps with a micro-batch of the given size."""

    def run(case, micro, *, steps=STEPS, extra=None):
        records, task, tables = CASES[case]
        sets = {
            "training.batch_size": BATCH,
            "training.micro_batch_size": micro,
            "training.duration": f"{steps} steps",
            "optimizer.lr": 1e-3,
        }
        outcome = train(records, task=task, sets=[f"{k}={v}" for k, v in sets.items()], extra=extra or tables)
        weights = {name: p.detach().clone() for name, p in outcome.watch.run.model.parameters_by_name().items()}
        return Trained([row["train/loss"] for row in outcome.rows], outcome.watch.gradients, weights)

    return run


def assert_equal_by_norm(ours, theirs, *, relative, floor):
    """‖Δ‖ ≤ relative · ‖x‖ + floor · (the largest ‖x‖), tensor by tensor.

    The floor is for what is zero in exact arithmetic: a key's bias moves every score of a query alike, and softmax
    doesn't see it, so that its gradient, and what Adam makes of it, is rounding alone.
    """
    assert ours.keys() == theirs.keys()
    largest = max(float(x.norm()) for x in theirs.values())
    for name, expected in theirs.items():
        error, allowed = float((ours[name] - expected).norm()), relative * float(expected.norm()) + floor * largest
        assert error <= allowed, f"{name}: {error:.3g} > {allowed:.3g}"


@pytest.mark.parametrize("case", ["class weights", "ragged tokens", "masked lm"])
def test_five_steps_are_equal_for_any_cut(cut, case):
    """Loss, gradients and weights after 5 steps, two of them ragged: within 1e-6 in float32, tensor by tensor."""
    whole = cut(case, BATCH)
    assert len(whole.losses) == STEPS
    for micro in (1, 2, 4, 8):
        pieces = cut(case, micro)
        assert pieces.losses == pytest.approx(whole.losses, rel=1e-6)
        assert_equal_by_norm(pieces.gradients, whole.gradients, relative=1e-6, floor=1e-8)
        assert_equal_by_norm(pieces.weights, whole.weights, relative=1e-6, floor=1e-8)


def test_five_steps_of_a_loss_over_pairs_are_equal_for_any_cut(cut):
    """In-batch negatives by cached gradients, in float64: an untrained encoder's features are almost parallel, so that
    the gradient of their cosines is a difference of nearly equal terms and float32 leaves two digits of it, cut or not.
    """
    whole = cut("pairs", BATCH)
    for micro in (1, 2, 4, 8):
        pieces = cut("pairs", micro)
        assert pieces.losses == pytest.approx(whole.losses, rel=1e-6)  # a loss is float32
        assert_equal_by_norm(pieces.gradients, whole.gradients, relative=1e-9, floor=1e-11)
        assert_equal_by_norm(pieces.weights, whole.weights, relative=1e-9, floor=1e-11)


def test_a_loss_over_pairs_that_is_cut_naively_is_another_loss(cut, monkeypatch):
    """Case 5: 8 pairs in 1, 2 and 4 pieces have three losses where each piece sees its own negatives alone.

    By cached gradients all of them have that of one piece, which plain automatic differentiation gives.
    """
    monkeypatch.setitem(CASES, "pairs", (paired(8), "pairs", HEAD))
    naive = {micro: cut("pairs", micro, steps=1, extra=NAIVE) for micro in (8, 4, 2)}
    losses = [trained.losses[0] for trained in naive.values()]
    assert losses[0] > 1.2 * losses[1] > 1.2**2 * losses[2]
    for micro in (8, 4, 2, 1):
        cached = cut("pairs", micro, steps=1, extra=HEAD + "[callbacks.double]\n")
        assert cached.losses == pytest.approx(naive[8].losses, rel=1e-6)
        assert_equal_by_norm(cached.gradients, naive[8].gradients, relative=1e-9, floor=1e-11)
