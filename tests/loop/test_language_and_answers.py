"""Answers and the next token end to end: training, evaluation that equals predict, cutting, packing, refusals."""

import json
import math

import numpy as np
import pytest

from rtx_core import Record, inference
from rtx_core.errors import PipelineError
from rtx_core.registry import Registry

QA = (
    "training.batch_size=16",
    "optimizer.lr=0.02",
    "task.max_length=16",
    "task.max_question_length=2",
    "task.stride=3",
)
CAUSAL = ("architecture.is_decoder=true", "task.text=text", "training.batch_size=8", "optimizer.lr=0.02")


def questions(count, seed):
    """Contexts of 4 to 24 letters; the answer is the letter f, and where there is none there is none."""
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        letters = draw.choice(list("bcde"), draw.integers(4, 25)).tolist()
        place = int(draw.integers(len(letters)))
        letters[place] = "f" if draw.random() < 0.7 else letters[place]
        there = letters[place] == "f"
        answers = [{"text": "f", "start": 2 * place}] if there else []
        rows.append({"question": "b", "context": " ".join(letters), "answers": answers})
    return rows


def evaluated(run):
    return {name: value for row in run.rows for name, value in row.items() if name.startswith("eval/")}


def test_answers_are_learnt_measured_and_predicted(train):
    """The letter f is found, or its absence, over windows; the metrics are those of what ``predict`` answers."""
    held_out = questions(40, 1)
    run = train(
        questions(96, 0),
        task="question_answering",
        evaluation=held_out,
        sets=(*QA, "training.duration=10 epochs", "training.eval_every=10 epochs", "training.monitor=eval/answer_f1"),
    )
    values = evaluated(run)
    assert values.keys() == {"eval/loss", "eval/exact_match", "eval/answer_f1"}
    trained = inference.load(run.folder, Registry.discover())
    records = [Record({"question": row["question"], "context": row["context"]}, "new", 1) for row in held_out]
    answers = list(trained.answers(records, scores=True))
    right = [
        answer["answer"] == (row["answers"][0]["text"] if row["answers"] else None)
        for row, answer in zip(held_out, answers, strict=True)
    ]
    assert values["eval/exact_match"] == np.mean(right)
    assert values["eval/exact_match"] > 0.9
    places = [
        answer["start"] == row["answers"][0]["start"]
        for row, answer in zip(held_out, answers, strict=True)
        if row["answers"] and answer["answer"]
    ]
    assert np.mean(places) > 0.95
    assert all(0.0 < answer["score"] <= 1.0 + 1e-12 for answer in answers)
    assert max(len(trained.task.samples([record], targets=False).__next__().sequence_lengths) for record in records) > 1
    assert run.record["outputs"]["size"] == 2


@pytest.mark.parametrize("size", [1, 3, 60])
def test_an_evaluation_of_answers_does_not_depend_on_its_batches(train, size):
    """Loss and both metrics are those of one batch, whatever the size of the pieces."""
    values = [
        evaluated(
            train(
                questions(16, 0),
                task="question_answering",
                evaluation=questions(23, 1),
                sets=(*QA, "training.duration=2 steps", f"training.eval_batch_size={pieces}"),
            )
        )
        for pieces in (size, 23)
    ]
    assert values[0].pop("eval/loss") == pytest.approx(values[1].pop("eval/loss"), rel=1e-6)
    assert values[0] == values[1]


def test_a_step_of_answers_does_not_depend_on_the_cut(train):
    """The logged loss is the mean over the windows of the step, and the weights add to their number."""
    rows, losses = questions(8, 0), []
    for pieces in (8, 3, 1):
        sets = (*QA, "training.batch_size=8", f"training.micro_batch_size={pieces}", "training.duration=1 step")
        run = train(rows, task="question_answering", sets=sets)
        losses.append(run.rows[0]["train/loss"])
        windows = sum(len(batch.lengths) for batch in run.watch.batches)
        assert sum(run.watch.weights) == windows > 8
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-6)
    # An untrained model hesitates among all tokens of a window, of at most 16.
    assert 1.5 < losses[0] < math.log(16) + 0.3


def test_questions_without_any_answer_are_learnt(train):
    """Where all training data have none, what is learnt is to give none."""
    rows = [{**row, "answers": []} for row in questions(32, 0)]
    run = train(rows, task="question_answering", evaluation=rows, sets=(*QA, "training.duration=10 epochs"))
    assert evaluated(run)["eval/exact_match"] == 1.0


def test_a_second_start_counts_the_same(train, monkeypatch, tmp_path):
    """From the cache, where there are no records: the text to measure is in the samples themselves."""
    monkeypatch.setenv("RTX_CACHE", str(tmp_path / "cache"))
    sets = (*QA, "training.duration=2 steps")
    values, stored = [], []
    for _ in range(2):
        run = train(questions(16, 0), task="question_answering", evaluation=questions(9, 1), sets=sets)
        values.append(evaluated(run))
        stored.append(sorted(path.name for path in (tmp_path / "cache").rglob("*.arrow")))
    assert values[0] == values[1]
    assert stored[0] == stored[1]
    assert len(stored[0]) == 2


def cycles(count, seed):
    """Texts that go round a, b, c, d, e, f from anywhere."""
    draw = np.random.default_rng(seed)
    return [
        {"text": " ".join("abcdef"[(start + i) % 6] for i in range(length))}
        for start, length in zip(draw.integers(6, size=count), draw.integers(5, 20, size=count), strict=True)
    ]


@pytest.mark.parametrize("packing", ["none", "best_fit", "concat"])
def test_the_next_token_is_learnt(train, packing):
    """After a few epochs a cycle of letters is known; perplexity is the loss's exponential; packed or not."""
    run = train(
        cycles(64, 0),
        task="causal_lm",
        evaluation=cycles(16, 1),
        sets=(*CAUSAL, f"training.packing={packing}", "training.duration=12 epochs"),
    )
    first, last = run.rows[0]["train/loss"], evaluated(run)
    assert last["eval/perplexity"] == pytest.approx(math.exp(last["eval/loss"]), rel=1e-6)
    assert first > 2.0
    # The first letter and the end of a text can't be known: at most ln 6 + about ln 15 / 12 for each of 13 tokens.
    assert last["eval/loss"] < 0.75
    config = json.loads((run.folder / "model" / "config.json").read_text())
    assert (config["architectures"], config["is_decoder"]) == (["BertLMHeadModel"], True)


def test_causal_lm_needs_a_causal_architecture(train):
    """BERT as it is sees what it should predict: one line at the architecture."""
    with pytest.raises(PipelineError, match="architecture: lets a token see those after it; this task predicts"):
        train(cycles(4, 0), task="causal_lm", sets=("task.text=text",))


@pytest.mark.parametrize(("masking", "packing"), [("whole_word", "concat"), ("span", "best_fit")])
def test_masking_words_goes_through_a_run(train, masking, packing):
    """Packed or not, the run ends with a loss and both figures."""
    run = train(
        cycles(32, 0),
        task="masked_lm",
        evaluation=cycles(8, 1),
        sets=(f"task.masking={masking}", f"training.packing={packing}", "training.duration=2 steps"),
    )
    values = evaluated(run)
    assert values.keys() == {"eval/loss", "eval/perplexity", "eval/accuracy"}
    assert 0.0 <= values["eval/accuracy"] <= 1.0
    assert all(np.isfinite(row["train/loss"]) for row in run.rows if "train/loss" in row)


def test_shares_are_written_as_a_table(train):
    """``replace = { mask = 1.0, random = 0.0 }``; more than all is refused at its key."""
    run = train(cycles(8, 0), task="masked_lm", sets=("task.replace={mask = 1.0, random = 0.0}",))
    assert "replace" in (run.folder / "resolved.toml").read_text()
    with pytest.raises(PipelineError, match="task.replace: mask 0.8 and random 0.5 are more than 1 together"):
        train(cycles(8, 0), task="masked_lm", sets=("task.replace.random=0.5",))
