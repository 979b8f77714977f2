"""The metric of entities against seqeval."""

import warnings

import numpy as np
import pytest
import torch
from seqeval import metrics as seqeval_metrics
from seqeval import scheme as seqeval_schemes

from rtx_core import InputError, Outputs
from rtx_plugins.metrics.entities import Entities
from rtx_plugins.tasks.tags import all_tags

FIGURES = {
    "entity_precision": seqeval_metrics.precision_score,
    "entity_recall": seqeval_metrics.recall_score,
    "entity_f1": seqeval_metrics.f1_score,
}


def outputs(labels, scheme="IOB2"):
    names = all_tags(labels, scheme)
    return Outputs(size=len(names), labels=names, scheme=scheme)


def random_case(seed, count):
    """Targets and predictions of up to 7 samples of 0 to 8 words, half of them without any entity."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(0, 9, draw.integers(1, 8))
    targets = [draw.integers(0, count, size) if draw.random() < 0.5 else np.zeros(size, int) for size in sizes]
    predicted = [np.where(draw.random(len(row)) < 0.6, row, draw.integers(0, count, len(row))) for row in targets]
    return targets, predicted


def updated(part, targets, predicted, classes, numbers=None):
    """Count samples in one call."""
    expected, found = (torch.tensor(np.concatenate(rows), dtype=torch.int64) for rows in (targets, predicted))
    numbers = range(len(targets)) if numbers is None else numbers
    samples = torch.tensor(np.repeat(list(numbers), [len(row) for row in targets]))
    logits = torch.nn.functional.one_hot(found, classes).float()
    part.update_by_sample(logits, expected, torch.ones(len(expected)), samples)


def theirs(figure, targets, predicted, names, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seqeval warns where it makes 0 of 0 a 0
        return figure(
            [[names[k] for k in row] for row in targets], [[names[k] for k in row] for row in predicted], **options
        )


@pytest.mark.parametrize("scheme", ["IOB2", "IOBES"])
@pytest.mark.parametrize("mode", ["lenient", "strict"])
def test_the_figures_are_seqevals(scheme, mode):
    """Of 250 random cases, many without targets or without predictions, to the last bit."""
    options = {} if mode == "lenient" else {"mode": "strict", "scheme": getattr(seqeval_schemes, scheme)}
    between = 0
    for seed in range(250):
        known = outputs(["a", "b", "c-d"][: 1 + seed % 3], scheme)
        targets, predicted = random_case(seed, known.size)
        part = Entities(mode=mode).build(known)
        updated(part, targets, predicted, known.size)
        expected = {name: theirs(f, targets, predicted, known.labels, **options) for name, f in FIGURES.items()}
        assert part.compute() == expected, seed
        between += 0.0 < expected["entity_f1"] < 1.0
    assert between > 100


def test_the_figures_of_each_label_are_seqevals():
    """Lists in the order of the labels, 0 for one that no entity has."""
    known = outputs(["z", "a", "m"])
    for seed in range(50):
        targets, predicted = random_case(seed, known.size)
        part = Entities(per_label=True).build(known)
        updated(part, targets, predicted, known.size)
        values = part.compute()
        report = theirs(
            seqeval_metrics.classification_report, targets, predicted, known.labels, output_dict=True, zero_division=0
        )
        for name, key in (("precision", "precision"), ("recall", "recall"), ("f1", "f1-score")):
            expected = [report.get(label, {key: 0.0})[key] for label in ("a", "m", "z")]
            assert values[f"entity_{name}_per_label"] == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1), (2, 3), (4, 1), (5,)])
def test_batches_and_their_order_change_nothing(sizes):
    """Batches of uneven sizes, forwards and backwards, give the bits of all samples at once."""
    known = outputs(["a", "b"])
    for seed in range(100):
        draw = np.random.default_rng(seed)
        targets = [draw.integers(0, known.size, draw.integers(1, 7)) for _ in range(5)]
        predicted = [np.where(draw.random(len(row)) < 0.7, row, 0) for row in targets]
        whole, parts = Entities().build(known), [Entities().build(known) for _ in range(2)]
        updated(whole, targets, predicted, known.size)
        groups = np.split(np.arange(5), np.cumsum(sizes)[:-1])
        for part, order in zip(parts, (groups, groups[::-1]), strict=True):
            for numbers in order:
                updated(part, [targets[i] for i in numbers], [predicted[i] for i in numbers], known.size, numbers)
            assert part.compute() == whole.compute()


def test_an_entity_ends_where_its_sample_does():
    """B-a | I-a of two samples are two entities; of one sample they are one."""
    known = outputs(["a"])
    begin, inside = known.labels.index("B-a"), known.labels.index("I-a")
    two, one = Entities().build(known), Entities().build(known)
    updated(two, [[begin], [inside]], [[begin], [begin]], known.size)
    updated(one, [[begin, inside]], [[begin, begin]], known.size)
    assert (two.compute()["entity_f1"], one.compute()["entity_f1"]) == (1.0, 0.0)


def test_what_is_ignored_is_not_there():
    """A target below 0 or of weight 0 doesn't part an entity, whatever is predicted for it."""
    known = outputs(["a"])
    begin, inside = known.labels.index("B-a"), known.labels.index("I-a")
    logits = torch.nn.functional.one_hot(torch.tensor([begin, 0, inside, 0]), known.size).float()
    part = Entities().build(known)
    targets, weights = torch.tensor([begin, -100, inside, begin]), torch.tensor([1.0, 1.0, 1.0, 0.0])
    part.update_by_sample(logits, targets, weights, torch.zeros(4, dtype=torch.int64))
    assert part.compute() == {"entity_precision": 1.0, "entity_recall": 1.0, "entity_f1": 1.0}


def test_nothing_is_0():
    """Without any target the figures are 0, as in seqeval, and the lists have their lengths."""
    part = Entities(per_label=True).build(outputs(["a", "b"]))
    empty = dict.fromkeys(FIGURES, 0.0) | {f"{name}_per_label": [0.0, 0.0] for name in FIGURES}
    assert part.compute() == empty
    part.update_by_sample(torch.zeros(0, 5), *(torch.zeros(0, dtype=torch.int64) for _ in range(3)))
    assert part.compute() == empty


def test_names_and_their_directions():
    """Three figures may be the monitor, the larger the better; lists may not."""
    assert Entities().names() == dict.fromkeys(FIGURES, "max")
    lists = dict.fromkeys(f"{name}_per_label" for name in FIGURES)
    assert Entities(per_label=True).names() == dict.fromkeys(FIGURES, "max") | lists


def test_tags_without_a_scheme_are_refused():
    """They make up no entities."""
    with pytest.raises(InputError, match="^metrics.entities: the task's tags have no scheme"):
        Entities().build(Outputs(size=2, labels=("A", "O")))
