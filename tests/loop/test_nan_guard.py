"""A step whose loss or gradient is NaN or infinite makes no update, whatever happens next."""

import pytest
import torch

from rtx_core import RunError

EIGHT = [{"text": "abcdef"[i % 6] * (1 + i % 2), "label": str(i % 2)} for i in range(8)]
SETS = ["training.batch_size=4", "training.micro_batch_size=2", "training.duration=8 steps", "optimizer.lr=0.01"]
SAVING = [*SETS, "callbacks.checkpoint.every=2 steps", "callbacks.checkpoint.keep_last=9"]


def guard(action, **settings):
    """The callback's table, after one that injects NaN."""
    written = "".join(f"{name} = {value}\n" for name, value in settings.items())
    return f'[callbacks.nan_guard]\naction = "{action}"\n{written}'


def inject(**settings):
    return "[callbacks.inject]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items())


def rows(outcome):
    """Rows without what the clock says."""
    return [{key: value for key, value in row.items() if key != "tokens_per_second"} for row in outcome.rows]


def assert_same_weights(ours, theirs, step):
    """Weights and the optimizer's state of a checkpoint are equal to the bit."""
    for file in ("model", "optimizer"):
        first, second = ours.saved(step, file), theirs.saved(step, file)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[name], second[name]) for name in first)


def test_stop_names_the_step_and_its_samples(train, tmp_path):
    """NaN in step 5 (the sixth): exit status 1 with step and samples, a finite checkpoint, and a row that says why."""
    plain = train(EIGHT, sets=SAVING)
    samples = sorted(plain.watch.ids[10] + plain.watch.ids[11])
    folder = tmp_path / "stopped"
    with pytest.raises(RunError, match=r"nan_guard: the loss is nan in step 6 \(samples .*no update was made") as error:
        train(EIGHT, extra=inject(steps=[5]) + guard("stop"), sets=SAVING, output=folder)
    assert error.value.exit_status == 1
    assert f"(samples {', '.join(map(str, samples))})" in str(error.value)
    stopped = type(plain)(folder, None, "")
    assert stopped.record["status"] == "failed"
    assert (stopped.rows[-1]["step"], stopped.rows[-1]["train/loss"], stopped.rows[-1]["skipped"]) == (
        6,
        None,
        "nan_loss",
    )
    assert stopped.checkpoints == [2, 4, 6]
    # What step 5 left, and so what stays.
    assert rows(stopped)[:5] == rows(plain)[:5]
    assert all(torch.isfinite(tensor).all() for tensor in stopped.saved(6).values())


def test_skip_is_the_run_without_the_steps_targets(train):
    """It equals, to the bit, the run in which all targets of that step were ignored, but for the reason in its row."""
    ours = train(EIGHT, extra=inject(steps=[5]) + guard("skip"), sets=[*SETS, "scheduler.type=linear"])
    everybody = list(range(len(EIGHT)))
    theirs = train(
        EIGHT,
        extra=f"[callbacks.leave_out]\nsamples = {everybody}\nsince = 5\nuntil = 6\n",
        sets=[*SETS, "scheduler.type=linear"],
    )
    assert_same_weights(ours, theirs, 8)
    our_rows, their_rows = rows(ours), rows(theirs)
    reasons = [[row.pop("skipped", None) for row in found] for found in (our_rows, their_rows)]
    assert our_rows == their_rows
    assert reasons == [[None] * 5 + [reason] + [None] * 2 for reason in ("nan_loss", "no_targets")]
    assert our_rows[5]["train/loss"] is None
    assert "the step is skipped" in ours.said


def test_rewind_goes_on_without_the_micro_batch(train, tmp_path):
    """A sample whose loss is NaN from step 5 on: back to the checkpoint of step 4, and on without its micro-batch's
    targets, as the run in which they were ignored from there on; also when that is interrupted and resumed.
    """
    plain = train(EIGHT, sets=SAVING)
    piece = sorted(plain.watch.ids[10])
    extra = inject(steps=[5, 6, 7], sample=piece[0]) + guard("rewind")
    ours = train(EIGHT, extra=extra, sets=SAVING)
    theirs = train(EIGHT, extra=f"[callbacks.leave_out]\nsamples = {piece}\nsince = 4\n", sets=SAVING)
    assert "went back from step 6 to step-00000004" in ours.said
    assert (ours.watch.run.left_out, ours.watch.run.rewinds) == (frozenset(piece), 1)
    assert rows(ours) == rows(theirs)
    assert [row["step"] for row in ours.rows] == list(range(1, 9))
    assert_same_weights(ours, theirs, 8)
    folder = tmp_path / "resumed"
    train(EIGHT, extra=extra, sets=SAVING, output=folder, steps=7)
    resumed = train(EIGHT, extra=extra, sets=SAVING, output=folder, resume=True)
    assert "resumed from step-00000007" in resumed.said
    assert resumed.watch.run.left_out == frozenset(piece)
    assert rows(resumed) == rows(ours)
    assert_same_weights(resumed, ours, 8)


def test_rewind_has_something_to_go_back_to_from_the_start(train):
    """NaN in the very first step: back to step 0; all of the step's targets are left out, so it has none."""
    ours = train(EIGHT, extra=inject(steps=[0]) + guard("rewind"), sets=SETS)
    assert "went back from step 1 to step-00000000" in ours.said
    assert (ours.rows[0]["train/loss"], ours.rows[0]["skipped"]) == (None, "no_targets")
    assert (ours.watch.run.step, len(ours.watch.run.left_out)) == (8, 4)


@pytest.mark.parametrize(
    ("action", "limit", "step", "words"), [("skip", 2, 3, "the 2. in a row"), ("rewind", 1, 3, "after 1 times back")]
)
def test_what_never_ends_is_ended(train, action, limit, step, words):
    """NaN again and again is no matter of single samples: after the limit the run fails, with a checkpoint."""
    with pytest.raises(RunError, match=rf"step {step} .*{words}"):
        train(EIGHT, extra=inject(steps=[1, 2, 3]) + guard(action, limit=limit), sets=SETS)


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_gradient_is_looked_at_too(train, value):
    """A finite loss with a gradient that isn't makes no update either; whose it was can't be told."""
    ours = train(EIGHT, extra=inject(steps=[2], gradient="true", value=f'"{value}"') + guard("skip"), sets=SETS)
    assert [row["step"] for row in ours.rows if row.get("skipped") == "overflow"] == [3]
    assert all(torch.isfinite(tensor).all() for tensor in ours.saved(8).values())
    assert "a gradient is not finite in step 3 (samples " in ours.said


@pytest.mark.parametrize("first", [True, False])
def test_an_overflow_is_the_scalers(train, first):
    """With float16 an infinite gradient is no failure, in either order of the file; a loss that is NaN is one."""
    tables = [guard("stop"), '[callbacks.amp]\ndtype = "fp16"\n']
    extra = inject(steps=[1], gradient="true", value='"inf"') + "".join(tables if first else tables[::-1])
    ours = train(EIGHT, extra=extra, sets=SETS)
    assert [row["step"] for row in ours.rows if row.get("skipped") == "overflow"] == [2]
    with pytest.raises(RunError, match="the loss is nan in step 2"):
        train(EIGHT, extra=extra.replace('gradient = true\nvalue = "inf"', 'value = "nan"'), sets=SETS)
