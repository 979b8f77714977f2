"""ema, freeze and reduce_on_plateau in whole runs, and what is refused before a run has a folder."""

import attrs
import pytest
import torch
from safetensors.torch import load_file
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from rtx_core import Callback, InputError, PipelineError, hookimpl

EIGHT = [{"text": "abcdef"[i % 6] * (1 + i % 2), "label": str(i % 2)} for i in range(8)]
SETS = ["training.batch_size=4", "training.duration=4 steps", "optimizer.lr=0.01", "optimizer.weight_decay=0.1"]
SAVING = ["callbacks.checkpoint.every=1 step", "callbacks.checkpoint.keep_last=9"]


class Torchs:
    """torch's average of the same weights, which begins where ours does."""

    def on_run_start(self, run):
        self.averaged = AveragedModel(run.model, multi_avg_fn=get_ema_multi_avg_fn(0.75))
        self.averaged.update_parameters(run.model)

    def on_step_end(self, run):
        if run.skip_reason is None:
            self.averaged.update_parameters(run.model)


@attrs.frozen(kw_only=True)
class Averaging(Callback):
    """Builds the part above."""

    def build(self):
        return Torchs()


@pytest.fixture
def averaging(plugins):
    """Offer torch's average."""
    before = plugins.callback()

    @hookimpl
    def callback():
        return {**before, "torchs": Averaging}

    plugins.callback = callback


def equal(ours, theirs):
    assert ours.keys() == theirs.keys()
    return all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


# --- ema --------------------------------------------------------------------------------------------------------------

EMA = "[callbacks.ema]\ndecay = 0.75\nwarmup = false\n"


def test_the_average_is_torchs_to_the_bit(train, averaging):
    """A skipped step takes no part in it; it is what is kept, and training itself is the run without it."""
    extra = "[callbacks.refuse]\nsteps = [1]\n"
    ours = train(EIGHT, extra=extra + EMA + "[callbacks.torchs]\n", sets=[*SETS, *SAVING], evaluation=EIGHT[:3])
    run = ours.watch.run
    theirs = run.parts["callback.torchs"].averaged.module.parameters_by_name()
    averages = run.parts["callback.ema"].averages
    assert equal(averages, theirs)
    assert not equal(averages, ours.saved(4))
    assert equal(ours.saved(4), train(EIGHT, extra=extra, sets=[*SETS, *SAVING], evaluation=EIGHT[:3]).saved(4))
    step = ours.record["kept"]["step"]
    assert equal(load_file(ours.folder / "model" / "model.safetensors"), ours.saved(step, "evaluated"))
    assert equal(ours.saved(4, "evaluated"), averages)


def test_how_often_one_evaluates_changes_no_bit(train, tmp_path):
    """The weights of training come back exactly after each evaluation, and a resume goes on from them."""
    settings = {"extra": "[callbacks.ema]\n", "evaluation": EIGHT[:3]}
    often = train(EIGHT, sets=[*SETS, *SAVING, "training.eval_every=1 step"], **settings)
    assert equal(often.saved(4), train(EIGHT, sets=[*SETS, "training.eval_every=4 steps"], **settings).saved(4))
    assert [row["ema/decay"] for row in often.rows if "ema/decay" in row] == [2 / 11, 3 / 12, 4 / 13, 5 / 14]
    folder = tmp_path / "resumed"
    train(EIGHT, sets=[*SETS, *SAVING, "training.eval_every=1 step"], output=folder, steps=2, **settings)
    resumed = train(EIGHT, sets=[*SETS, *SAVING, "training.eval_every=1 step"], output=folder, resume=True, **settings)
    for file in ("model", "evaluated", "parts", "optimizer"):
        assert equal(resumed.saved(4, file), often.saved(4, file))


# --- freeze -----------------------------------------------------------------------------------------------------------

FREEZE = '[callbacks.freeze]\nmatch = ["bert.embeddings.*", "bert.encoder.*"]\n'


def frozen_names(tensors):
    return [name for name in tensors if name.startswith(("bert.embeddings.", "bert.encoder."))]


def test_frozen_parameters_have_no_update_decay_or_state(train, tmp_path):
    """Until the third of 4 steps they keep their bits in spite of decay and have no state; from then on Adam counts
    their own updates; the header says how many are trained; a resume in between changes nothing.
    """
    extra = FREEZE + 'until = "2 steps"\n'
    ours = train(EIGHT, extra=extra, sets=[*SETS, *SAVING])
    names = frozen_names(ours.saved(1))
    parameters = ours.watch.run.model.parameters_by_name()
    first, second, third = (ours.saved(step) for step in (1, 2, 3))
    assert all(torch.equal(first[name], second[name]) for name in names)
    assert not torch.equal(first["classifier.weight"], second["classifier.weight"])
    changed = [name for name in names if not torch.equal(second[name], third[name])]
    assert "bert.encoder.layer.0.output.dense.weight" in changed
    assert not any(name in key for key in ours.saved(2, "optimizer") for name in names)
    steps = {name: ours.watch.run.optimizer.state[parameter]["step"].item() for name, parameter in parameters.items()}
    assert {steps[name] for name in names} == {2.0}
    assert {steps[name] for name in steps if name not in names} == {4.0}
    trained = sum(parameter.numel() for name, parameter in parameters.items() if name not in names)
    assert f", {trained:,} of them trained" in ours.said
    folder = tmp_path / "resumed"
    train(EIGHT, extra=extra, sets=[*SETS, *SAVING], output=folder, steps=2)
    resumed = train(EIGHT, extra=extra, sets=[*SETS, *SAVING], output=folder, resume=True)
    for file in ("model", "optimizer"):
        assert equal(resumed.saved(4, file), ours.saved(4, file))
    assert "of them trained" not in resumed.said


def test_without_an_end_they_stay_frozen(train):
    """Nothing of them moves in the whole run."""
    ours = train(EIGHT, extra=FREEZE, sets=[*SETS, *SAVING])
    assert all(torch.equal(ours.saved(1)[name], ours.saved(4)[name]) for name in frozen_names(ours.saved(1)))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            'match = ["bert.embedings.*"]',
            r'freeze\.match\.0: "bert\.embedings\.\*" matches no parameter; near it .*"embeddings"',
        ),
        ('match = ["*"]', "all parameters are frozen, so there is nothing to train"),
        ('match = ["*.bias"]\nuntil = "3 steps"', r"freeze\.until: 3 steps, but there are only 1 for it"),
        (
            'match = ["*.bias"]\n[callbacks.more]\ntype = "freeze"\nmatch = ["classifier.bias"]',
            r'more\.match\.0: all that "classifier\.bias" matches is frozen already',
        ),
    ],
)
def test_what_freezes_nothing_or_everything_is_refused(train, tmp_path, table, message):
    """With near names, what another table has frozen, an end that the run doesn't reach; before there is a folder."""
    with pytest.raises(InputError, match=message):
        train(EIGHT, extra=f"[callbacks.freeze]\n{table}\n", output=tmp_path / "none")
    assert not (tmp_path / "none").exists()


# --- what looks at evaluations ----------------------------------------------------------------------------------------


def test_the_rate_is_lowered_on_a_plateau_and_stays_so(train, tmp_path):
    """S 0.5, 0.6, 0.7, 0.8, 0.9 with patience 2 and factor 0.25: a quarter from the fourth epoch on, resumed or not."""
    settings = {
        "evaluation": EIGHT[:3],
        "extra": '[metrics.script]\nvalues = ["0.5", "0.6", "0.7", "0.8", "0.9"]\n'
        "[callbacks.reduce_on_plateau]\nfactor = 0.25\npatience = 2\n",
        "sets": ["training.batch_size=8", "training.duration=5 epochs", "training.monitor=eval/script"],
    }
    assert train(EIGHT, **settings).watch.rates == [0.1, 0.1, 0.1, 0.025, 0.025]
    folder = tmp_path / "resumed"
    train(EIGHT, output=folder, steps=2, **settings)
    assert train(EIGHT, output=folder, resume=True, **settings).watch.rates == [0.1, 0.025, 0.025]


@pytest.mark.parametrize("name", ["early_stopping", "reduce_on_plateau"])
def test_what_needs_evaluations_is_refused_without(train, tmp_path, name):
    """By ``check``, and so before the run has a folder."""
    with pytest.raises(PipelineError, match=rf"callbacks\.{name}: goes by an evaluation, and there is neither"):
        train(EIGHT, extra=f"[callbacks.{name}]\n", output=tmp_path / "none")
    assert not (tmp_path / "none").exists()
