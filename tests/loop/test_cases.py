"""Cases with a known right answer, each a kind of mistake that real trainers have made."""

import math

import pytest
import torch

from rtx_core.errors import DataError, InputError, PipelineError, RunError

ZERO = "[callbacks.zero_head]\n"


def texts(*labels):
    """One short record for each label."""
    return [{"text": "abcdef"[i % 6], "label": str(label)} for i, label in enumerate(labels)]


def logged(outcome):
    return [row["train/loss"] for row in outcome.rows if "train/loss" in row]


@pytest.mark.parametrize("micro", [1, 2])
def test_token_losses_are_summed_over_the_whole_step(train, micro):
    """Case 1: records of 2 and 6 tokens, one update of the bias by (−0.1, +0.1), loss ln 2, however it is cut."""
    records = [{"words": list("ab"), "tags": ["0"] * 2}, {"words": list("abcdef"), "tags": ["1"] * 6}]
    outcome = train(records, task="token_classification", extra=ZERO, sets=[f"training.micro_batch_size={micro}"])
    assert outcome.parameter("classifier.bias").tolist() == pytest.approx([-0.1, 0.1], abs=1e-6)
    assert logged(outcome) == pytest.approx([0.693147], abs=1e-6)


@pytest.mark.parametrize("micro", [2, 4])
def test_class_weights_count_over_the_whole_step(train, micro):
    """Case 2: weights [1, 3], labels 0, 0, 1, 1."""
    extra = ZERO + '[loss]\ntype = "cross_entropy"\nclass_weights = [1.0, 3.0]\n'
    sets = ["training.batch_size=4", f"training.micro_batch_size={micro}"]
    outcome = train(texts(0, 0, 1, 1), extra=extra, sets=sets)
    assert outcome.parameter("classifier.bias").tolist() == pytest.approx([-0.1, 0.1], abs=1e-6)
    assert logged(outcome) == pytest.approx([0.693147], abs=1e-6)


def test_a_ragged_last_batch_is_a_step_like_any_other(train):
    """Case 3: 9 records, batch 4, micro-batch 2, 3 epochs: 9 steps, every id 3 times."""
    sets = ["training.batch_size=4", "training.micro_batch_size=2", "training.duration=3 epochs"]
    outcome = train(texts(*[0, 1] * 4, 0), sets=sets)
    seen = [i for piece in outcome.watch.ids for i in piece]
    assert sorted(seen) == sorted(list(range(9)) * 3)
    assert [row["step"] for row in outcome.rows] == list(range(1, 10))
    assert outcome.watch.run.horizon.total == 9
    assert [len(piece) for piece in outcome.watch.ids] == [2, 2, 2, 2, 1] * 3


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_evaluation_is_the_same_for_every_batch_size(train, size):
    """Case 4: logits (ln 3, 0), labels 0,0,0,0,1: loss 0.507405, accuracy 0.8."""
    outcome = train(
        texts(0, 1),
        extra=f"[callbacks.zero_head]\nbias = [{math.log(3)}, 0.0]\n",
        evaluation=texts(0, 0, 0, 0, 1),
        sets=[f"training.eval_batch_size={size}", "training.eval_at_start=true"],
    )
    first = next(row for row in outcome.rows if "eval/loss" in row)
    assert first["step"] == 0
    assert first["eval/loss"] == pytest.approx(0.507405, abs=1e-6)
    assert first["eval/accuracy"] == pytest.approx(0.8)


def test_clipping_sees_the_whole_step(train):
    """Case 5: labels 0, 0, 1, 1 as four pieces: the gradient of the step is 0, so the bias stays."""
    outcome = train(
        texts(0, 0, 1, 1),
        extra=ZERO,
        sets=[
            *("training.batch_size=4", "training.micro_batch_size=1"),
            *("callbacks.clip_grad_norm.enabled=true", "callbacks.clip_grad_norm.max_norm=0.05"),
        ],
    )
    assert outcome.parameter("classifier.bias").tolist() == pytest.approx([0.0, 0.0], abs=1e-6)
    assert outcome.watch.gradients["classifier.bias"].abs().max() < 1e-7


def test_a_step_without_targets_makes_no_update(train):
    """Case 6: nothing was masked: weight 0, no NaN, nothing moves, and Adam has counted nothing."""
    outcome = train([{"text": "a"}, {"text": "b"}], task="masked_lm", sets=["task.mask_probability=1e-9"])
    row = outcome.rows[0]
    assert (row["train/loss"], row["skipped"]) == (None, "no_targets")
    assert (outcome.watch.run.step, outcome.watch.run.updates) == (1, 0)
    assert len(outcome.watch.run.optimizer.state) == 0
    assert "all steps, so nothing was learnt: no update was made" in outcome.said


def test_an_empty_piece_in_a_step_with_targets_changes_nothing(train):
    """Case 6: token labels that are all ignored in one record leave the other's loss alone."""
    records = [{"words": ["a"], "tags": ["0"]}, {"words": [], "tags": []}]
    outcome = train(records, task="token_classification", extra=ZERO, sets=["training.micro_batch_size=1"])
    assert logged(outcome) == pytest.approx([0.693147], abs=1e-6)
    assert outcome.parameter("classifier.bias").tolist() == pytest.approx([0.1, -0.1], abs=1e-6)


def test_the_linear_schedule_reaches_the_optimizer(train):
    """Case 7: 10 steps without warm-up use 1 − i/10 of the peak rate."""
    outcome = train(texts(0, 1), sets=["training.duration=10 steps", "scheduler.type=linear"])
    assert outcome.watch.rates == pytest.approx([0.1 * (1 - i / 10) for i in range(10)], abs=1e-12)


def test_warm_up_stands_in_front_of_the_schedule(train):
    """Case 7: with 4 steps of warm-up the factors are 0, .25, .5, .75, 1, .8333, …."""
    outcome = train(
        texts(0, 1), sets=["training.duration=10 steps", "scheduler.type=linear", "scheduler.warmup=4 steps"]
    )
    expected = [0, 0.25, 0.5, 0.75, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]
    assert outcome.watch.rates == pytest.approx([0.1 * factor for factor in expected], abs=1e-12)


def test_warm_up_longer_than_the_run_is_refused(train):
    """Case 7: with both numbers, also when the run's steps are only known from the data."""
    with pytest.raises((InputError, PipelineError), match=r"(?s)20.*3"):
        train(texts(0, 1), sets=["training.duration=3 epochs", "scheduler.warmup=20 steps"])


def test_adam_adds_eps_after_the_bias_correction(train):
    """Case 12: labels 0,1,1,1, eps 0.25: the bias moves by 0.05."""
    outcome = train(texts(0, 1, 1, 1), extra=ZERO, sets=["training.batch_size=4", "optimizer.eps=0.25"])
    assert outcome.parameter("classifier.bias").tolist() == pytest.approx([-0.05, 0.05], abs=1e-6)


def test_nan_is_never_best(train):
    """Case 16: NaN, 0.6, 0.5 (min): best is 0.5."""
    outcome = train(
        texts(0, 1),
        evaluation=texts(0, 1),
        extra='[metrics.script]\nvalues = ["nan", "0.6", "0.5"]\n',
        sets=["training.duration=3 epochs", "training.monitor=eval/script"],
    )
    assert outcome.record["best"] == {"monitor": "eval/script", "value": 0.5, "step": 3}
    assert [row["eval/script"] for row in outcome.rows if "eval/script" in row] == [None, 0.6, 0.5]


def test_a_monitor_that_nothing_gives_is_refused(train):
    """Case 16: with the names that there are."""
    with pytest.raises((InputError, PipelineError), match=r"(?s)eval/nobody.*eval/loss"):
        train(texts(0, 1), evaluation=texts(0, 1), sets=["training.monitor=eval/nobody"])


def test_a_checkpoint_follows_the_last_step(train):
    """Case 17: 7 steps, every 3: checkpoints 3, 6 and 7."""
    outcome = train(
        texts(0, 1),
        sets=["training.duration=7 steps", "callbacks.checkpoint.every=3 steps", "callbacks.checkpoint.keep_last=9"],
    )
    assert outcome.checkpoints == [3, 6, 7]


def test_rotation_keeps_the_best_and_the_last(train):
    """Case 17: keep_last 1 with 0.9, 0.5, 0.6, 0.4 (max) leaves 1 and 4."""
    outcome = train(
        texts(0, 1),
        evaluation=texts(0, 1),
        extra='[metrics.script]\nvalues = ["0.9", "0.5", "0.6", "0.4"]\nbetter = "max"\n',
        sets=["training.duration=4 epochs", "training.monitor=eval/script", "callbacks.checkpoint.keep_last=1"],
    )
    assert outcome.checkpoints == [1, 4]
    assert outcome.record["kept"] == {"step": 1, "is": "best"}


def test_a_skipped_step_moves_the_data_but_not_the_schedule(train):
    """Case 11: a refused update counts as a step, not as an update, and metrics.jsonl says so."""
    outcome = train(
        texts(0, 1),
        extra="[callbacks.refuse]\nsteps = [1]\n",
        sets=["training.duration=4 steps", "scheduler.type=linear"],
    )
    run = outcome.watch.run
    assert (run.step, run.updates) == (4, 3)
    assert outcome.watch.rates == pytest.approx([0.1, 0.075, 0.075, 0.05])
    assert [row.get("skipped") for row in outcome.rows] == [None, "overflow", None, None]
    assert outcome.rows[1]["train/loss"] is None
    assert "1 of them: no update was made" in outcome.said
    assert all(state["step"] == 3 for state in run.optimizer.state.values())


def test_early_stopping_waits_for_its_patience(train):
    """Case 15, in one go: 0.5, 0.6, 0.7, 0.8 with patience 3 stops right after the fourth evaluation."""
    outcome = train(
        texts(0, 1),
        evaluation=texts(0, 1),
        extra='[metrics.script]\nvalues = ["0.5", "0.6", "0.7", "0.8", "0.9"]\n[callbacks.early_stopping]\n',
        sets=[
            *("training.duration=9 epochs", "training.monitor=eval/script"),
            "callbacks.early_stopping.patience=3",
        ],
    )
    assert outcome.record["status"] == "stopped_early"
    assert outcome.record["best"]["step"] == 1
    assert outcome.watch.run.step == 4


def test_weight_zero_pieces_have_finite_losses(train):
    """No NaN comes out of a piece without targets."""
    records = [{"words": ["a"], "tags": ["0"]}, {"words": [], "tags": []}]
    outcome = train(records, task="token_classification", extra=ZERO, sets=["training.micro_batch_size=1"])
    assert all(math.isfinite(loss) for loss in outcome.watch.losses)
    assert all(torch.isfinite(g).all() for g in outcome.watch.gradients.values())


def test_a_diverged_model_is_not_kept(train):
    """A rate of 1e30 gives NaN: the run fails in one line instead of leaving a model that answers nothing."""
    with pytest.raises(RunError, match=r"training diverged: .* holds NaN or infinities, so no model is kept"):
        train(texts(0, 1), sets=["optimizer.lr=1e30", "training.duration=4 steps"])


def test_a_run_of_warm_up_alone_is_said(train):
    """One step with the default warm-up has a rate of 0; that is said before it starts."""
    outcome = train(texts(0, 1), sets=["scheduler.warmup=6%"])
    assert "all 1 steps are warm-up (scheduler.warmup), so the rate never reaches its peak" in outcome.said


def test_a_schedule_that_ends_before_the_run_is_said(train):
    """Two steps level, two from 1 to 0: the last two of 6 have the rate 0. One that ends with the run says nothing."""
    parts = "[{scheduler = 'constant', length = '2 steps'}, {scheduler = 'linear', length = '2 steps'}]"
    six, sequence = "training.duration=6 steps", ["scheduler.type=sequence", f"scheduler.parts={parts}"]
    assert "at 0 in the last 2 of 6 steps" in train(texts(0, 1), sets=[six, *sequence]).said
    assert "at 0 in" not in train(texts(0, 1), sets=[six, "scheduler.type=linear"]).said


def test_bad_data_do_not_cost_the_run_that_is_there(train, tmp_path):
    """--overwrite deletes the old run only once the new one is built."""
    folder = tmp_path / "kept"
    train(texts(0, 1), output=folder)
    before = sorted(str(path) for path in folder.rglob("*"))
    with pytest.raises(DataError, match="unknown label"):
        train(texts(0, 7), output=folder, overwrite=True)
    assert sorted(str(path) for path in folder.rglob("*")) == before


def test_a_run_does_not_replace_the_model_that_it_starts_from(train, tmp_path):
    """An interrupted run couldn't go on without it: refused, and all is left as it was."""
    folder = tmp_path / "kept"
    train(texts(0, 1), output=folder)
    before = sorted(str(path) for path in folder.rglob("*"))
    tokenizer = [f"tokenizer.path={folder}/model"]
    for key, sets in (
        ("architecture.from_pretrained", [f"architecture.from_pretrained={folder}/model"]),
        ("tokenizer.path", tokenizer),
    ):
        with pytest.raises(InputError, match=rf"{key}: .* is in .*kept, which --overwrite deletes"):
            train(texts(0, 1), output=folder, overwrite=True, sets=sets)
    assert sorted(str(path) for path in folder.rglob("*")) == before


def test_a_mistake_after_the_first_step_is_a_failed_run(train):
    """What a part does wrong at step 2 is no refusal: exit status 1, and the line says after which step."""
    with pytest.raises(RunError, match=r"finish_gradients returned None.*after step 1; --resume goes on"):
        train(texts(0, 1), extra="[callbacks.refuse]\nnone_at = 1\n", sets=["training.duration=4 steps"])
