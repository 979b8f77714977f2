"""Tasks end to end: a few steps of training, evaluation in the unit of the data, the kept model's answers, a resume."""

import json
import math

import numpy as np
import pytest

from rtx_core import Record, inference
from rtx_core.errors import PipelineError
from rtx_core.registry import Registry

LETTERS = "abcdef"


def texts(count, seed):
    """Random texts of 1 to 6 letters."""
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(list(LETTERS), draw.integers(1, 7))) for _ in range(count)]


def priced(count, seed):
    """A price for each text that its letters decide: 10,000 and 500 for each a."""
    return [{"text": text, "target": 10_000 + 500 * text.count("a")} for text in texts(count, seed)]


def tagged(count, seed):
    """For each text the letters a, b and c that it has."""
    return [{"text": text, "label": sorted(set(text.split()) & set("abc"))} for text in texts(count, seed)]


def answers(run, rows, **options):
    trained = inference.load(run.folder, Registry.discover())
    records = [Record({"text": row["text"]}, "new", number) for number, row in enumerate(rows, start=1)]
    return list(trained.answers(records, **options))


LONGER = ("optimizer.lr=0.01", "training.batch_size=16", "training.duration=20 epochs", "training.eval_every=20 epochs")


def test_regression_learns_prices_and_predicts_them_in_their_unit(train):
    """Huber and early stopping by Spearman, as in job 6: the error is a fraction of the prices' spread, and what is
    evaluated is what ``predict`` says.
    """
    rows, held_out = priced(96, 0), priced(32, 1)
    run = train(
        rows,
        task="regression",
        evaluation=held_out,
        sets=(*LONGER, "loss.type=huber", "training.monitor=eval/spearman"),
        extra="[callbacks.early_stopping]\npatience = 4\n",
    )
    prices = np.array([row["target"] for row in held_out], dtype=float)
    predicted = np.array([answer["prediction"] for answer in answers(run, held_out)])
    values = {name: value for row in run.rows for name, value in row.items() if name.startswith("eval/")}
    assert values.keys() == {"eval/loss", "eval/pearson", "eval/spearman", "eval/mae"}
    assert values["eval/mae"] == pytest.approx(np.abs(predicted - prices).mean(), rel=1e-5)
    assert values["eval/mae"] < 0.5 * np.abs(prices - prices.mean()).mean()
    assert run.record["best"]["monitor"] == "eval/spearman"
    assert values["eval/spearman"] > 0.8


def test_run_json_keeps_the_unit_to_the_bit(train):
    """Mean and deviation come back from run.json as they were, and the model card says how logits become prices."""
    rows = priced(10, 2)
    run = train(rows, task="regression")
    prices = [row["target"] for row in rows]
    outputs = inference.load(run.folder, Registry.discover()).outputs
    assert outputs.center == (math.fsum(prices) / 10,)
    assert outputs.scale[0] == pytest.approx(np.std(prices), rel=1e-14)
    assert run.record["outputs"]["scale"] == list(outputs.scale)
    card = (run.folder / "model" / "README.md").read_text()
    assert f"the value is {outputs.scale[0]!r} × the logit + {outputs.center[0]!r}" in card


def test_a_resumed_regression_goes_on_to_the_same_bits(train):
    """Stopped after 3 of 6 steps: the unit is that of the training data again, and so are the weights."""
    rows, sets = (
        priced(12, 3),
        ("training.duration=6 steps", "training.batch_size=4", "callbacks.checkpoint.every=3 steps"),
    )
    whole = train(rows, task="regression", sets=sets)
    first = train(rows, task="regression", sets=sets, steps=3)
    resumed = train(rows, task="regression", sets=sets, output=first.folder, resume=True)
    assert resumed.watch.run.step == 6
    for name, parameter in whole.watch.run.model.parameters_by_name().items():
        assert (parameter == resumed.parameter(name)).all()


@pytest.mark.parametrize("sizes", ["micro_batch_size=1", "micro_batch_size=3"])
def test_a_step_of_regression_does_not_depend_on_its_cut(train, sizes):
    """With two targets of which some are missing, loss and gradients are those of the whole batch."""
    rows = [{"text": text, "x": n, "y": None if n % 3 == 0 else -n} for n, text in enumerate(texts(7, 4))]
    sets = ('task.target=["x", "y"]', "training.batch_size=7")
    whole, cut = (
        train(rows, task="regression", sets=sets),
        train(rows, task="regression", sets=(*sets, f"training.{sizes}")),
    )
    assert sum(cut.watch.weights) == sum(whole.watch.weights) == 11.0
    assert cut.rows[0]["train/loss"] == pytest.approx(whole.rows[0]["train/loss"], rel=1e-6)
    for name, gradient in whole.watch.gradients.items():
        error = (cut.watch.gradients[name] - gradient).norm()
        assert error <= 1e-5 * gradient.norm() + 1e-7, name


def test_a_step_whose_numbers_are_all_missing_is_none(train):
    """One of two steps has no target: it is skipped, and weights stay finite."""
    rows = [{"text": "a", "target": value} for value in (1, 2, None, None)]
    run = train(rows, task="regression", sets=("training.batch_size=1", "training.duration=1 epoch"))
    assert [row.get("skipped") for row in run.rows].count("no_targets") == 2
    assert all(parameter.isfinite().all() for parameter in run.watch.run.model.parameters())
    assert "training: 2 numbers are missing and neither learnt nor measured" in run.said


def test_multi_label_classification_learns_and_predicts_lists(train):
    """It finds the letters of new texts; F1 and average precision say so."""
    run = train(
        tagged(256, 0),
        task="multi_label_classification",
        evaluation=(held_out := tagged(48, 1)),
        sets=(*LONGER, "optimizer.lr=0.02", "architecture.hidden_size=16", "training.monitor=eval/f1_macro"),
    )
    given = answers(run, held_out, scores=True)
    values = {name: value for row in run.rows for name, value in row.items() if name.startswith("eval/")}
    assert values.keys() == {"eval/loss", "eval/f1_macro", "eval/average_precision"}
    shares = [np.mean([letter in row["label"] for row in held_out]) for letter in "abc"]
    assert values["eval/f1_macro"] > np.mean([2 * share / (1 + share) for share in shares]) + 0.1  # of all, always
    right = [answer["prediction"] == row["label"] for answer, row in zip(given, held_out, strict=True)]
    assert np.mean(right) > 0.5
    for answer in given:
        assert answer["prediction"] == [label for label, score in answer["scores"].items() if score > 0.5]
    assert run.record["outputs"]["labels"] == ["a", "b", "c"]


def test_a_kept_tagger_knows_which_tag_is_the_most_frequent(train):
    """A word that ``max_length`` cuts off gets it in ``predict`` too: run.json keeps how often each occurs."""
    rows = [{"words": list("abc"), "tags": ["1", "1", "0"]}]
    run = train(rows, task="token_classification")
    trained = inference.load(run.folder, Registry.discover())
    assert trained.outputs.counts == (1, 2)
    (answer,) = trained.answers([Record({"words": ["a"] * 40}, "new", 1)])
    assert answer["prediction"][30:] == ["1"] * 10  # the model has 32 positions, of which 2 are special tokens'


# --- what does not fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "extra", "message"),
    [
        (
            "sequence_classification",
            '[loss]\ntype = "mse"\n',
            "loss: takes targets that are numbers; this task's are one class each",
        ),
        (
            "regression",
            "[metrics.accuracy]\n",
            "metrics.accuracy: takes targets that are one class each; this task's are numbers",
        ),
        (
            "multi_label_classification",
            "[metrics.mae]\n",
            "metrics.mae: takes targets that are numbers; this task's are any number of labels each",
        ),
        (
            "regression",
            "[metrics.f1]\n",
            "metrics.f1: takes targets that are one class each or any number of labels each; this task's are numbers",
        ),
    ],
)
def test_a_part_for_other_targets_is_refused_where_it_is_written(train, task, extra, message):
    """Before anything is read, with the line of its table."""
    with pytest.raises(PipelineError) as caught:
        train([{"text": "a"}], task=task, extra=extra)
    (problem,) = caught.value.problems
    assert f"{problem.path}: {problem.message}" == message
    assert problem.source_line == extra.splitlines()[0]


def test_metrics_that_fit_are_reported_together(train):
    """A matrix is written to metrics.jsonl as nested lists, and every metric of classes stands beside it."""
    rows = [{"text": text, "label": str(n % 2)} for n, text in enumerate(texts(12, 5))]
    names = ("mcc", "auroc", "average_precision", "confusion_matrix")
    run = train(rows, evaluation=rows, extra="".join(f"[metrics.{name}]\n" for name in names))
    (values,) = [row for row in run.rows if "eval/mcc" in row]
    matrix = np.array(values["eval/confusion_matrix"])
    assert matrix.sum(1).tolist() == [6.0, 6.0]
    assert matrix.trace() / 12 == values["eval/accuracy"]
    assert json.loads(json.dumps(values)) == values
