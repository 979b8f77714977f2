"""Mixed precision: a scaler that skips steps and moves nothing else, and an order that the file can't break."""

import math

import attrs
import pytest
import torch

from rtx_core import Callback, hookimpl

EIGHT = [{"text": "abcdef"[i % 6] * (1 + i % 2), "label": str(i % 2)} for i in range(8)]
ZERO = "[callbacks.zero_head]\n"
FP16 = '[callbacks.amp]\ndtype = "fp16"\n'
SETS = ["training.batch_size=4", "training.micro_batch_size=2", "training.duration=6 steps", "optimizer.lr=0.01"]
SAVING = ["callbacks.checkpoint.every=1 step", "callbacks.checkpoint.keep_last=9", "scheduler.type=linear"]


@attrs.frozen(kw_only=True)
class OutsideClip(Callback):
    """Somebody else's clipping."""

    max_norm: float

    def on_gradients(self, run):
        parameters = [p for group in run.optimizer.param_groups for p in group["params"]]
        run.log({"grad_norm": torch.nn.utils.clip_grad_norm_(parameters, self.max_norm)})


@pytest.fixture
def outside(plugins):
    """Offer the clipping above."""
    before = plugins.callback()

    @hookimpl
    def callback():
        return {**before, "outside_clip": OutsideClip}

    plugins.callback = callback


def rows(outcome):
    """Rows without what the clock says."""
    return [{key: value for key, value in row.items() if key != "tokens_per_second"} for row in outcome.rows]


def test_an_overflow_halves_the_scale_and_moves_nothing_else(train, tmp_path):
    """An infinite gradient in the third of 6 steps: the scale halves; weights, Adam's count and moments, and the
    schedule stay; the step is counted as skipped; all of it is restored by a resume.
    """
    extra = '[callbacks.inject]\nsteps = [2]\ngradient = true\nvalue = "inf"\n' + FP16
    ours = train(EIGHT, extra=extra, sets=[*SETS, *SAVING])
    assert [row.get("skipped") for row in ours.rows] == [None, None, "overflow", None, None, None]
    assert [row["amp/scale"] for row in ours.rows] == [2.0**16] * 3 + [2.0**15] * 3
    assert [row["amp/skipped_steps"] for row in ours.rows] == [0, 0, 1, 1, 1, 1]
    for file in ("model", "optimizer"):
        before, after = ours.saved(2, file), ours.saved(3, file)
        assert all(torch.equal(before[name], after[name]) for name in before)
    assert ours.watch.rates == pytest.approx([0.01 * (1 - i / 6) for i in (0, 1, 2, 2, 3, 4)], rel=1e-12)
    assert (ours.watch.run.step, ours.watch.run.updates) == (6, 5)
    assert all(state["step"] == 5 for state in ours.watch.run.optimizer.state.values())
    folder = tmp_path / "resumed"
    train(EIGHT, extra=extra, sets=[*SETS, *SAVING], output=folder, steps=3)
    resumed = train(EIGHT, extra=extra, sets=[*SETS, *SAVING], output=folder, resume=True)
    assert rows(resumed) == rows(ours)
    assert all(torch.equal(tensor, resumed.saved(6)[name]) for name, tensor in ours.saved(6).items())


OUTSIDE = "[callbacks.outside_clip]\nmax_norm = 0.05\n"
CLIP = ["callbacks.clip_grad_norm.enabled=true", "callbacks.clip_grad_norm.max_norm=0.05"]


def test_clipping_sees_unscaled_gradients_in_every_order(train, outside):
    """Z, labels 0,1,1,1 in two pieces: the bias has the gradient ±0.25, so plain descent moves it by lr · 0.25 · 0.05 /
    norm; the norm is logged as torch's clipping has it in float32, but for the rounding of half precision.
    """
    records = [{"text": "abcd"[i], "label": label} for i, label in enumerate("0111")]
    sets = ["training.batch_size=4", "training.micro_batch_size=2", "optimizer.type=sgd", "optimizer.lr=0.1"]
    norm = train(records, extra=OUTSIDE + ZERO, sets=sets).rows[0]["grad_norm"]
    assert norm > 0.25 * math.sqrt(2)  # that of the bias alone
    for tables, clip, order in (
        ("", [*CLIP, "callbacks.amp.dtype=fp16"], ["amp", "clip_grad_norm"]),
        (FP16, CLIP, ["clip_grad_norm", "amp"]),
        (FP16 + OUTSIDE, [], ["amp", "outside_clip"]),
        (OUTSIDE + FP16, [], ["outside_clip", "amp"]),
    ):
        ours = train(records, extra=tables + ZERO, sets=[*sets, *clip])
        parts = [name.removeprefix("callback.") for name in ours.watch.run.parts]
        assert [name for name in parts if name in order] == order
        logged = ours.rows[0]["grad_norm"]
        assert logged == pytest.approx(norm, rel=2**-10)
        moved = 0.1 * 0.25 * 0.05 / (logged + 1e-6)
        assert ours.parameter("classifier.bias").tolist() == pytest.approx([-moved, moved], rel=1e-6)


def test_where_it_is_inactive_nothing_is_in_the_way(train):
    """On a CPU ``auto`` leaves no part and says nothing; ``bf16`` says in one line, before the model, that it is so."""
    silent = train(EIGHT, sets=["run.device=cpu"])
    assert "callback.amp" not in silent.watch.run.parts
    assert "amp" not in silent.said
    said = train(EIGHT, sets=["run.device=cpu"], extra='[callbacks.amp]\ndtype = "bf16"\n').said.splitlines()
    (line,) = [number for number, text in enumerate(said) if "amp" in text]
    assert said[line] == (
        "warning: callbacks.amp is inactive: cpu doesn't compute in bfloat16 here; the run stays in float32"
    )
    assert line < next(number for number, text in enumerate(said) if text.startswith("model"))
