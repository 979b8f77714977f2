"""Parts that train other weights than they show: what is measured, kept, exported, and what training goes on from."""

import json

import attrs
import pytest
import torch
from safetensors.torch import load_file

from rtx_core import Callback, Optimizer, RunError, hookimpl

BIAS = "classifier.bias"
SCRIPT = '[metrics.script]\nvalues = ["0.5", "0.4", "0.6", "0.7"]\n'
TEXTS = [{"text": "abcdef"[i], "label": "01"[i % 2]} for i in range(6)]
LONG = [
    *("training.batch_size=2", "training.duration=4 steps", "training.eval_every=1 step"),
    *(
        "optimizer.type=shifted",
        "optimizer.lr=0.1",
        "callbacks.checkpoint.every=1 step",
        "callbacks.checkpoint.keep_last=9",
    ),
]
BEST_IS_2 = "training.monitor=eval/script"


class ShiftedPart(torch.optim.SGD):
    """Gradient descent that shows its weights times 1.1, by arithmetic that does not come back to the bit."""

    def __init__(self, groups, lr, calls):
        super().__init__(groups, lr)
        self.calls, self.shown = calls, False

    def train(self):
        self.calls.append("train")
        self._scale(1 / 1.1, shown=False)

    def eval(self):
        self.calls.append("eval")
        self._scale(1.1, shown=True)

    def _scale(self, factor, *, shown):
        if shown != self.shown:
            self.shown = shown
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.mul_(factor)

    def step(self, closure=None):
        assert not self.shown
        return super().step(closure)


@attrs.frozen(kw_only=True)
class Shifted(Optimizer):
    """Builds the part above; the newest one's calls are in ``latest``."""

    def build(self, groups):
        Shifted.latest = []
        return ShiftedPart([group.options() for group in groups], self.lr, Shifted.latest)


class AveragePart:
    """A callback's part that shows zeros for the classifier's bias."""

    def on_run_start(self, run):
        self.bias = run.model.parameters_by_name()[BIAS]

    def train(self):
        pass

    def eval(self):
        self.bias.zero_()


@attrs.frozen(kw_only=True)
class Average(Callback):
    """Builds the part above."""

    def build(self):
        return AveragePart()


@attrs.frozen(kw_only=True)
class FailsAt(Callback):
    """Fails once at the end of a step."""

    step: int

    def on_step_end(self, run):
        if run.step == self.step and not hasattr(FailsAt, "failed"):
            FailsAt.failed = True
            raise RunError("the power failed")


@attrs.frozen(kw_only=True)
class Seen(Callback):
    """Keeps the classifier's bias as evaluations see it, by set; in ``latest``."""

    def build(self):
        Seen.latest = {}
        return self

    def on_eval_end(self, run, name, values):
        Seen.latest[name, run.step] = values[f"{name}/loss"]


@pytest.fixture
def parts(plugins):
    """Offer the parts above."""
    vars(FailsAt).get("failed") and delattr(FailsAt, "failed")
    before = plugins.callback()

    @hookimpl
    def callback():
        return before | {"average": Average, "fails_at": FailsAt, "seen": Seen}

    @hookimpl
    def optimizer():
        return {"shifted": Shifted}

    plugins.callback, plugins.optimizer = callback, optimizer


@pytest.fixture
def run(train, parts):
    """Train four steps with an evaluation and a checkpoint after each."""

    def start(*sets, extra="", **options):
        return train(TEXTS, evaluation=TEXTS, sets=[*LONG, *sets], extra=extra, **options)

    return start


def saved(outcome, step, name="model"):
    return load_file(outcome.folder / "checkpoints" / f"step-{step:08d}" / f"{name}.safetensors")


def kept(outcome):
    return load_file(outcome.folder / "model" / "model.safetensors")


def assert_equal(ours, theirs):
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def test_the_weights_of_training_come_back_to_the_bit(run):
    """A part's rounding there and back does not reach training: one evaluation, or one a step, the same weights."""
    often = run()
    seldom = run("training.eval_every=4 steps", "callbacks.checkpoint.every=4 steps")
    assert_equal(saved(often, 4), saved(seldom, 4))


def test_a_checkpoint_has_both_weights(run):
    """``model`` is what training goes on from, ``evaluated`` what was measured: 1.1 times as much."""
    outcome = run()
    trained, shown = saved(outcome, 3), saved(outcome, 3, "evaluated")
    assert_equal({name: tensor * 1.1 for name, tensor in trained.items()}, shown)


def test_the_evaluated_weights_of_the_best_step_are_kept(run):
    """The kept model is what was measured at step 2, not what was trained, and the record says so."""
    outcome = run(BEST_IS_2, extra=SCRIPT)
    assert outcome.record["kept"] == {"step": 2, "is": "best"}
    assert_equal(kept(outcome), saved(outcome, 2, "evaluated"))


def test_the_evaluated_weights_of_the_last_step_are_kept(run):
    """Also where the last step is the best."""
    script = SCRIPT.replace('"0.7"', '"0.1"')
    outcome = run(BEST_IS_2, extra=script)
    assert outcome.record["kept"]["step"] == 4
    assert_equal(kept(outcome), saved(outcome, 4, "evaluated"))


@pytest.mark.parametrize("last", ["0.7", "0.1"])
def test_the_test_set_is_read_with_the_kept_weights(run, last):
    """Whether the best step or the last: the test set, here that of evaluation, gives the loss of that evaluation."""
    extra = SCRIPT.replace('"0.7"', f'"{last}", "0.0"') + '[callbacks.seen]\n[data.test]\nfiles = ["eval.jsonl"]\n'
    outcome = run(BEST_IS_2, extra=extra)
    step = outcome.record["kept"]["step"]
    assert Seen.latest["test", 4] == Seen.latest["eval", step]
    assert outcome.record["test"]["test/loss"] == Seen.latest["eval", step]


def test_a_resumed_run_goes_on_from_the_weights_of_training(run, tmp_path):
    """After a failure at step 3 the run ends with the bits of one that did not fail."""
    extra, folder = "[callbacks.fails_at]\nstep = 3\n", tmp_path / "failing"
    with pytest.raises(RunError, match="the power failed"):
        run(BEST_IS_2, extra=SCRIPT + extra, output=folder)
    resumed = run(BEST_IS_2, extra=SCRIPT + extra, output=folder, resume=True)
    straight = run(BEST_IS_2, extra=SCRIPT + extra)
    for name in ("model", "evaluated", "optimizer"):
        assert_equal(saved(resumed, 4, name), saved(straight, 4, name))
    assert_equal(kept(resumed), kept(straight))


def test_a_model_that_was_not_written_yet_is_the_same_later(run):
    """Killed between the last checkpoint and the model: the resume keeps the same weights."""
    outcome = run()
    before = kept(outcome)
    (outcome.folder / "model").rename(outcome.folder / "model-before")
    record = json.loads((outcome.folder / "run.json").read_text()) | {"ended": None}
    (outcome.folder / "run.json").write_text(json.dumps(record))
    assert_equal(kept(run(output=outcome.folder, resume=True)), before)


def test_a_part_is_told_in_pairs(run):
    """``train`` before the first step; ``eval`` and ``train`` around each evaluation, checkpoint and export."""
    run("training.duration=1 step")
    assert Shifted.latest == ["train"] + ["eval", "train"] * 3


def test_a_callback_may_show_other_weights_too(run):
    """A part of a callback with both modes: what it shows is measured and kept, the optimizer's weights are trained."""
    outcome = run("optimizer.type=adamw", extra="[callbacks.average]\n")
    assert kept(outcome)[BIAS].tolist() == [0.0, 0.0]
    assert saved(outcome, 4, "evaluated")[BIAS].tolist() == [0.0, 0.0]
    assert (saved(outcome, 4)[BIAS] != 0).all()


def test_without_such_a_part_a_checkpoint_has_one_model(run):
    """No second file, no copy."""
    outcome = run("optimizer.type=adamw")
    folder = outcome.folder / "checkpoints" / "step-00000004"
    assert sorted(path.stem for path in folder.glob("*.safetensors")) == ["model", "optimizer", "parts"]
