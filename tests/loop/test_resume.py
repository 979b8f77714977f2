"""A run that goes on is the run that was never interrupted, or it is refused in one line."""

import hashlib
import json
import os
import shutil
import signal
from contextlib import contextmanager
from itertools import count
from typing import ClassVar

import attrs
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rtx_core import Callback, Optimizer, RtxError, RunError, export, hookimpl
from rtx_plugins.optimizers.adamw import AdamW

SCRIPT = '[metrics.script]\nvalues = ["0.5", "0.6", "0.7", "0.8", "0.9", "0.4"]\n'
BY_SCRIPT = "training.monitor=eval/script"
STUMBLE = "[callbacks.stumble]\nsteps = [{}]\n"


def texts(*labels):
    """One short record for each label."""
    return [{"text": "abcdef"[i % 6], "label": str(label)} for i, label in enumerate(labels)]


TWO = texts(0, 1)
TWENTY = texts(*[0, 1, 1, 0] * 5)


# --- parts ------------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Stumble(Callback):
    """Fails in the middle of each of the given steps, the first time that a test gets there."""

    steps: tuple[int, ...]
    by_signal: bool = False

    fired: ClassVar[set[int]] = set()

    def on_step_end(self, run):
        if run.step in self.steps and run.step not in self.fired:
            self.fired.add(run.step)
            if not self.by_signal:
                raise RunError("the power failed")
            os.kill(os.getpid(), signal.SIGTERM)


@attrs.frozen(kw_only=True)
class Slower(Callback):
    """Lowers the rate by what the last row says, and asks for an evaluation or a row when it is too late in a step."""

    def on_step_end(self, run):
        if "train/loss" in run.last_values:
            run.lr_scale = 1 / (1 + run.last_values["train/loss"])

    def on_eval_end(self, run):
        if run.step == 4:
            run.request_eval()
            run.request_log()


@attrs.frozen(kw_only=True)
class StopsLate(Callback):
    """Stops the run when its second step is saved already."""

    def on_checkpoint(self, run):
        if run.step >= 2 and run.stop_reason is None:
            run.stop("late")


@attrs.frozen(kw_only=True)
class Says(Callback):
    """Logs a number in every odd step, and one when a row is written already."""

    def on_step_end(self, run):
        if run.step % 2:
            run.log({"odd": np.float64(run.step)})

    def on_log(self, run, values):
        run.log({"seen": torch.tensor(run.step)})


class ForgetfulPart:
    """Has a state that it can't take back."""

    def state_dict(self):
        return {}


@attrs.frozen(kw_only=True)
class Forgetful(Callback):
    """Builds the part above."""

    def build(self):
        return ForgetfulPart()


class OddPart(torch.optim.Optimizer):
    """Gradient descent whose rate comes from a state of every type but the parameter's: float64, int8, text, a number
    of no parameter, and a scalar product, whose order of summation depends on where its operands are in memory.
    """

    def __init__(self, groups, lr):
        super().__init__(groups, {"lr": lr, "seen": 0.0})

    @torch.no_grad()
    def step(self):
        shared = self.state.setdefault("shared", {"count": 0})
        shared["count"] += 1
        for group in self.param_groups:
            group["seen"] += 1 / 3
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    zeros = torch.zeros_like(parameter)
                    state.update(sum=zeros.double(), byte=zeros.to(torch.int8), kept=zeros.clone(), name="wide")
                state["sum"] += parameter.grad.double() / 3
                state["byte"] += parameter.grad.sign().to(torch.int8)
                state["kept"] += parameter.grad
                size = 1 + float(state["kept"].flatten() @ state["kept"].flatten())
                assert state["name"] == "wide"
                assert state["byte"].dtype == torch.int8
                scale = group["lr"] * 0.1 / size / (1 + group["seen"] + shared["count"])
                parameter.sub_(scale * (state["sum"] + 0.01 * state["byte"]).float())


@attrs.frozen(kw_only=True)
class Odd(Optimizer):
    """Builds the part above."""

    def build(self, groups):
        return OddPart([group.options() for group in groups], self.lr)


@attrs.frozen(kw_only=True)
class Foreign(AdamW):
    """Ours, from another distribution."""


@pytest.fixture
def parts(plugins):
    """Offer more parts: ``parts(optimizer={"adamw": Foreign})``."""
    Stumble.fired.clear()

    def offer(**kinds):
        for kind, components in kinds.items():
            setattr(plugins, kind, hookimpl(lambda components=components: components))
            getattr(plugins, kind).__name__ = kind

    before = plugins.callback()
    extra = {"stumble": Stumble, "slower": Slower, "stops_late": StopsLate, "says": Says, "forgetful": Forgetful}
    offer(callback={**before, **extra}, optimizer={"odd": Odd})
    return offer


@pytest.fixture
def stumbling(train, tmp_path, parts):
    """Train until a failure in the given step, then go on: the second process's outcome."""
    numbers = count(1)

    def run(records, step, *, extra="", by_signal=False, **settings):
        folder = tmp_path / f"stumbling-{next(numbers)}"
        table = STUMBLE.format(step) + ("by_signal = true\n" if by_signal else "")
        settings |= {"extra": extra + table, "output": folder}
        with pytest.raises(RtxError, match="interrupted after step" if by_signal else "the power failed"):
            train(records, **settings)
        return train(records, resume=True, **settings)

    return run


# --- what a run leaves ------------------------------------------------------------------------------------------------


def files(folder):
    """The hash of every file but the log."""
    found = {p.relative_to(folder): p for p in folder.rglob("*") if p.is_file() and p.name not in ("log.txt", ".lock")}
    return {str(name): hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()}


def rows(outcome):
    """The rows of metrics.jsonl without what the clock says."""
    return [{key: value for key, value in row.items() if key != "tokens_per_second"} for row in outcome.rows]


def state(outcome, step=None):
    """A checkpoint's tensors and numbers, the last one's unless a step is given; without the settings."""
    step = step or outcome.checkpoints[-1]
    folder = outcome.folder / "checkpoints" / f"step-{step:08d}"
    document = json.loads((folder / "state.json").read_text())
    del document["plan"]
    return document, {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def assert_same_run(ours, theirs):
    """Rows, last checkpoint and kept model are equal to the bit."""
    assert rows(ours) == rows(theirs)
    assert state(ours) == state(theirs)
    kept = [(run.folder / "model" / "model.safetensors").read_bytes() for run in (ours, theirs)]
    assert kept[0] == kept[1]


# --- the same run -----------------------------------------------------------------------------------------------------

LONG = ["training.batch_size=4", "training.micro_batch_size=2", "training.duration=9 steps", "optimizer.lr=0.01"]
SAVING = ["callbacks.checkpoint.every=2 steps", "training.eval_every=3 steps"]


# A signal in the last step lets the run finish: there is nothing left to interrupt.
@pytest.mark.parametrize(("step", "by_signal"), [(1, False), (4, False), (9, False), (1, True), (4, True)])
def test_a_run_that_failed_goes_on_to_the_same_bits(train, stumbling, step, by_signal):
    """Whatever step it was, before the first checkpoint, between two, in the last: rows, state and model are equal."""
    sets = [*LONG, *SAVING]
    ours = stumbling(TWENTY, step, by_signal=by_signal, sets=sets, evaluation=TWO)
    assert_same_run(ours, train(TWENTY, sets=sets, evaluation=TWO))


def test_a_skipped_step_before_a_resume_stays_skipped(train, stumbling):
    """Steps 1 and 5 are refused: step counts 9, updates 7, the rows say so, and the resumed run agrees."""
    extra = "[callbacks.refuse]\nsteps = [1, 5]\n"
    sets = [*LONG, *SAVING, "scheduler.type=linear"]
    ours, straight = stumbling(TWENTY, 3, extra=extra, sets=sets), train(TWENTY, extra=extra, sets=sets)
    assert_same_run(ours, straight)
    assert (ours.watch.run.step, ours.watch.run.updates) == (9, 7)
    assert [row["step"] for row in ours.rows if row.get("skipped") == "overflow"] == [2, 6]
    assert all(row["train/loss"] is None for row in ours.rows if "skipped" in row)


def test_the_order_of_two_tables_changes_neither_run_nor_resume(train, stumbling):
    """Early stopping before checkpoint, or after it: the same stop, the same states."""
    stop, save = "[callbacks.early_stopping]\npatience = 3\n", '[callbacks.checkpoint]\nevery = "1 step"\n'
    settings = {"evaluation": TWO, "sets": ["training.duration=9 epochs", BY_SCRIPT]}
    runs = []
    for tables in (stop + save, save + stop):
        runs.append(train(TWO, extra=SCRIPT + tables, **settings))
        Stumble.fired.clear()
        runs.append(stumbling(TWO, 3, extra=SCRIPT + tables, **settings))
    assert [run.watch.run.step for run in runs] == [4] * 4
    for other in runs[1:]:
        assert_same_run(other, runs[0])


def test_what_hooks_were_told_and_asked_for_survives(train, stumbling):
    """``run.last_values``, and requests that came too late in their step, are those of the straight run."""
    sets = [*LONG, *SAVING, "callbacks.checkpoint.every=1 step", "training.eval_every=4 steps"]
    settings = {"extra": "[callbacks.slower]\n", "sets": sets, "evaluation": TWO}
    straight = train(TWENTY, **settings)
    assert [row["step"] for row in straight.rows if "eval/loss" in row] == [4, 5, 8, 9]
    assert straight.watch.run.lr_scale != 1.0
    for step in (5, 6):
        Stumble.fired.clear()
        assert_same_run(stumbling(TWENTY, step, **settings), straight)


def test_an_optimizer_gets_back_every_type_of_state(train, stumbling):
    """float64, int8, text, numbers of groups and of no parameter: not cast, and where the same kernels run."""
    sets = [*LONG, *SAVING, "optimizer.type=odd"]
    ours, straight = stumbling(TWENTY, 5, sets=sets), train(TWENTY, sets=sets)
    assert_same_run(ours, straight)
    saved = load_file(straight.folder / "checkpoints" / "step-00000009" / "optimizer.safetensors")
    assert {tensor.dtype for tensor in saved.values()} == {torch.float64, torch.int8, torch.float32}
    state_of = ours.watch.run.optimizer.state
    assert state_of["shared"] == {"count": 9}
    restored = [tensor for owner in state_of if isinstance(owner, torch.Tensor) for tensor in state_of[owner].values()]
    # torch's allocator aligns to 64 bytes; a tensor in a mapped file stands anywhere.
    assert all(tensor.data_ptr() % 64 == 0 for tensor in restored if isinstance(tensor, torch.Tensor))


def test_the_evaluation_at_the_start_happens_once(train, stumbling):
    """A resume from step 0's checkpoint, the best so far, doesn't evaluate there again."""
    settings = {"evaluation": TWO, "sets": [*LONG, BY_SCRIPT, "training.eval_at_start=true"], "extra": SCRIPT}
    ours, straight = stumbling(TWENTY, 2, **settings), train(TWENTY, **settings)
    assert "resumed from step-00000000" in ours.said
    assert_same_run(ours, straight)
    assert [row["step"] for row in ours.rows if "eval/script" in row] == [0, 5, 9]


def test_a_stop_that_comes_too_late_is_answered_after_the_next_step(train, parts):
    """A part that stops the run in ``on_checkpoint`` ends it a step later, evaluated and saved, and so for good."""
    settings = {"evaluation": TWO, "sets": [*LONG, *SAVING], "extra": "[callbacks.stops_late]\n"}
    outcome = train(TWENTY, **settings)
    assert (outcome.record["status"], outcome.record["why"]) == ("stopped_early", "late")
    assert outcome.checkpoints[-1] == 3
    assert outcome.rows[-1]["step"] == 3
    assert "eval/loss" in outcome.rows[-1]
    before = files(outcome.folder)
    again = train(TWENTY, **settings, output=outcome.folder, resume=True)
    assert "is finished (late); nothing to do" in again.said
    assert files(outcome.folder) == before


def test_what_is_logged_waits_for_the_next_row(train, stumbling):
    """Also across a resume, and where a row was just written; a norm of the gradient goes with its step."""
    sets = [*LONG, "callbacks.metrics.every=2 steps", "callbacks.checkpoint.every=1 step"]
    norm = ["callbacks.clip_grad_norm.enabled=true", "callbacks.clip_grad_norm.max_norm=1.0"]
    settings = {"sets": [*sets, *norm], "extra": "[callbacks.says]\n[callbacks.refuse]\nsteps = [3]\n"}
    straight = train(TWENTY, **settings)
    said = {row["step"]: (row.get("says/odd"), row.get("says/seen")) for row in straight.rows}
    assert said == {2: (1.0, None), 4: (3.0, 2.0), 6: (5.0, 4.0), 8: (7.0, 6.0)}
    assert [row["step"] for row in straight.rows if "grad_norm" in row] == [2, 6, 8]  # step 4 was skipped
    for step in (3, 4, 5):
        Stumble.fired.clear()
        assert_same_run(stumbling(TWENTY, step, **settings), straight)


# --- cases ------------------------------------------------------------------------------------------------------------


def test_case_15_early_stopping_counts_across_a_resume(stumbling):
    """S 0.5, 0.6, 0.7 | resume | 0.8, patience 3: stops right after the 4th; best stays 0.5, and its file too."""
    extra = SCRIPT + '[callbacks.early_stopping]\npatience = 3\n[callbacks.checkpoint]\nevery = "1 step"\n'
    ours = stumbling(TWO, 4, extra=extra, evaluation=TWO, sets=["training.duration=9 epochs", BY_SCRIPT])
    assert "resumed from step-00000003" in ours.said
    assert [row["eval/script"] for row in ours.rows if "eval/script" in row] == [0.5, 0.6, 0.7, 0.8]
    assert ours.watch.run.step == 4
    assert ours.record["status"] == "stopped_early"
    assert ours.record["best"] == {"monitor": "eval/script", "value": 0.5, "step": 1}
    kept, best = (
        load_file(ours.folder / place / "model.safetensors") for place in ("model", "checkpoints/step-00000001")
    )
    assert kept.keys() == best.keys()
    assert all(torch.equal(kept[name], best[name]) for name in kept)


def test_case_18_damaged_checkpoints_are_passed_over(train, parts, tmp_path):
    """step-4 cut to 100 bytes, step-6 empty, step-8 of 0 bytes: three warnings, on from 2, and the end is the same."""
    sets = [*LONG, "callbacks.checkpoint.every=2 steps", "callbacks.checkpoint.keep_last=9"]
    settings = {"extra": STUMBLE.format(9), "sets": sets, "output": tmp_path / "damaged"}
    with pytest.raises(RunError):
        train(TWENTY, **settings)
    checkpoints = tmp_path / "damaged" / "checkpoints"
    for file in (checkpoints / "step-00000004").iterdir():
        os.truncate(file, min(100, file.stat().st_size))
    for file in (checkpoints / "step-00000006").iterdir():
        file.unlink()
    for file in (checkpoints / "step-00000008").iterdir():
        os.truncate(file, 0)
    ours = train(TWENTY, **settings, resume=True)
    warned = [line for line in ours.said.splitlines() if line.startswith("warning: ")]
    passed_over = [line.split()[2] for line in warned if "step-" in line]
    assert passed_over == ["step-00000008", "step-00000006", "step-00000004"]
    assert "resumed from step-00000002" in ours.said
    assert_same_run(ours, train(TWENTY, sets=sets))
    aside = sorted(path.name for path in checkpoints.glob(".aside-*"))
    assert aside == [".aside-step-00000004", ".aside-step-00000006", ".aside-step-00000008"]


def test_case_19_a_trial_goes_on_with_the_same_schedule(train, parts, tmp_path):
    """10 steps of linear, stopped after 4, resumed: the next factors are .6, .5, .4, .3, .2, .1."""
    settings = {"sets": ["training.duration=10 steps", "scheduler.type=linear"], "output": tmp_path / "trial"}
    trial = train(TWO, **settings, steps=4)
    assert trial.watch.rates == pytest.approx([0.1, 0.09, 0.08, 0.07], abs=1e-12)
    assert (trial.folder / "model").is_dir()
    early = files(trial.folder / "model")
    ours = train(TWO, **settings, resume=True)
    assert ours.watch.rates == pytest.approx([0.06, 0.05, 0.04, 0.03, 0.02, 0.01], abs=1e-12)
    assert files(ours.folder / "model") != early
    assert_same_run(ours, train(TWO, sets=settings["sets"]))


# --- the end of a run -------------------------------------------------------------------------------------------------


@contextmanager
def no_model_is_written():
    """Ctrl-C comes when the kept model is to be written."""

    def interrupt(*_arguments, **_settings):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "write_folder", interrupt)
        yield


def test_a_trial_that_goes_on_is_not_finished_by_the_model_of_the_trial(train, parts, tmp_path):
    """Resumed and killed after its last step, it still has to write its own model, and does so when resumed again."""
    settings = {"sets": LONG, "output": tmp_path / "trial", "extra": ""}
    train(TWENTY, **settings, steps=4)
    with no_model_is_written(), pytest.raises(KeyboardInterrupt):
        train(TWENTY, **settings, resume=True)
    ours = train(TWENTY, **settings, resume=True)
    assert_same_run(ours, train(TWENTY, sets=LONG))


def test_what_was_missing_at_the_end_is_done_on_resume(train, parts, tmp_path):
    """Interrupted after the last checkpoint, before model/: a resume reads the test set, once, and writes the model."""
    settings = {"sets": LONG, "evaluation": TWO, "extra": '[data.test]\nfiles = ["train.jsonl"]\n'}
    folder = tmp_path / "unfinished"
    with no_model_is_written(), pytest.raises(KeyboardInterrupt):
        train(TWENTY, **settings, output=folder)
    assert json.loads((folder / "run.json").read_text())["status"] == "interrupted"
    assert not (folder / "model").exists()
    ours = train(TWENTY, **settings, output=folder, resume=True)
    straight = train(TWENTY, **settings)
    assert_same_run(ours, straight)
    assert sum("test/loss" in row for row in ours.rows) == 1
    assert ours.record["status"] == "finished"
    assert ours.record["test"] == straight.record["test"]


def test_a_finished_run_says_so_and_changes_nothing(train, parts):
    """``--resume`` of a finished run is no failure, and no file of it changes."""
    outcome = train(TWENTY, sets=LONG)
    before = files(outcome.folder)
    again = train(TWENTY, sets=LONG, output=outcome.folder, resume=True)
    assert f"{outcome.folder} is finished (9 steps); nothing to do" in again.said
    assert files(outcome.folder) == before


def test_a_run_killed_right_after_its_model_is_recorded_as_finished(train, parts):
    """All is there but the last line of run.json: a resume writes that."""
    outcome = train(TWENTY, sets=LONG)
    record = json.loads((outcome.folder / "run.json").read_text())
    (outcome.folder / "run.json").write_text(json.dumps({**record, "status": "running", "why": None, "ended": None}))
    again = train(TWENTY, sets=LONG, output=outcome.folder, resume=True)
    assert "nothing to do" in again.said
    assert {key: again.record[key] for key in ("status", "why")} == {"status": "finished", "why": "9 steps"}


def test_a_best_checkpoint_that_was_damaged_is_not_kept(train, parts, tmp_path):
    """A warning names it, and the last step's model is kept instead of none or a broken one."""
    settings = {
        "extra": SCRIPT + STUMBLE.format(4),
        "evaluation": TWO,
        "sets": ["training.duration=5 epochs", BY_SCRIPT],
        "output": tmp_path / "damaged",
    }
    with pytest.raises(RunError):
        train(TWO, **settings)
    best = tmp_path / "damaged" / "checkpoints" / "step-00000001" / "model.safetensors"
    best.write_bytes(best.read_bytes()[:-4] + b"\xff\xff\xff\x7f")
    ours = train(TWO, **settings, resume=True)
    assert "the best checkpoint, step 1, can't be used: model.safetensors has another content" in ours.said
    assert ours.record["kept"] == {"step": 5, "is": "last"}
    kept, last = (
        load_file(ours.folder / place / "model.safetensors") for place in ("model", "checkpoints/step-00000005")
    )
    assert all(torch.equal(kept[name], last[name]) for name in last)


# --- refused, or not --------------------------------------------------------------------------------------------------


@pytest.fixture
def interrupted(train, parts, tmp_path):
    """A run that stopped at step 4 of 9, and a function that goes on with it in another way."""
    settings = {"sets": LONG, "extra": STUMBLE.format(4) + '[callbacks.checkpoint]\nevery = "1 step"\n'}
    folder = tmp_path / "interrupted"

    def begin(**first):
        with pytest.raises(RunError, match="the power failed"):
            train(TWENTY, **{**settings, "output": folder, **first})

        def go_on(records=TWENTY, *, sets=(), **changed):
            again = {**settings, "output": folder, **first, **changed}
            return train(records, **{**again, "sets": [*again["sets"], *sets]}, resume=True)

        return go_on, folder

    yield begin
    torch.set_num_threads(1)


def refused(go_on, folder, **changed):
    """The one line that refuses to go on; nothing of the run is touched."""
    before = files(folder)
    with pytest.raises(RtxError) as caught:
        go_on(**changed)
    assert caught.value.exit_status == 2
    assert files(folder) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_part_of_another_distribution_is_refused(interrupted, parts):
    """Something that was installed since must not take over in the middle of a run."""
    go_on, folder = interrupted()
    parts(optimizer={"adamw": Foreign})
    assert refused(go_on, folder) == (
        "can't resume: optimizer was optimizer.adamw of rtx-transformers, "
        "now it is optimizer.adamw of conftest.py; use the same parts, or --new"
    )


def test_a_part_whose_package_is_gone_is_refused(interrupted, parts):
    """Also where ours would step in under the same name, and where no part has the name any more."""
    parts(optimizer={"adamw": Foreign})
    go_on, folder = interrupted()
    parts(optimizer={"odd": Odd})
    assert refused(go_on, folder).startswith("can't resume: optimizer was optimizer.adamw of conftest.py, now it is")


def test_a_part_that_is_gone_without_another_is_refused(interrupted, parts):
    """The pipeline names what nobody offers any more."""
    go_on, folder = interrupted(sets=[*LONG, "optimizer.type=odd"])
    parts(optimizer={"adamw": Foreign})
    assert 'optimizer.type: no optimizer "odd"' in refused(go_on, folder)


def test_another_optimizer_is_refused(interrupted):
    """By name, before its state could be mistaken for another's."""
    go_on, folder = interrupted()
    assert refused(go_on, folder, sets=["optimizer.type=odd"]) == (
        "can't resume: optimizer was optimizer.adamw of rtx-transformers, "
        "now it is optimizer.odd of conftest.py; use the same parts, or --new"
    )


def test_a_callback_more_or_less_is_refused(interrupted):
    """With or without state: it acts on the run."""
    go_on, folder = interrupted()
    for name, enabled in {"clip_grad_norm": "true", "amp": "false"}.items():
        line = refused(go_on, folder, sets=[f"callbacks.{name}.enabled={enabled}"])
        assert line.startswith(f"can't resume: callbacks.{name}")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("optimizer.lr=0.02", "optimizer.lr was 0.01, now it is 0.02"),
        ("training.duration=10 steps", 'training.duration was "9 steps", now it is "10 steps"'),
        ("training.micro_batch_size=4", "training.micro_batch_size was 2, now it is 4"),
        ("run.seed=1", "run.seed was 0, now it is 1"),
        ("task.max_length=8", "task.max_length was left out, now it is 8"),
        ("callbacks.amp.enabled=false", "callbacks.amp.enabled was true, now it is false"),
    ],
)
def test_a_changed_setting_is_refused(interrupted, change, line):
    """With both values."""
    go_on, folder = interrupted()
    assert refused(go_on, folder, sets=[change]) == f"can't resume: {line}; set it back (also by --set), or --new"


def test_changed_data_are_refused(interrupted):
    """The same file's name and number of rows, but one other label."""
    go_on, folder = interrupted()
    changed = [*TWENTY[:-1], {**TWENTY[-1], "label": "1"}]
    line = refused(go_on, folder, records=changed)
    assert line == "can't resume: the contents of data.train changed since the checkpoint"


def test_another_number_of_threads_is_refused(interrupted):
    """It would change bits; the line says what to write, and that works."""
    go_on, folder = interrupted(sets=[*LONG, "training.threads=1"])
    line = refused(go_on, folder, sets=["training.threads=2"])
    assert line == ("can't resume: the run had 1 threads, now 2, which would change bits; write [training] threads = 1")
    go_on(sets=["training.threads=1"])


def test_threads_may_be_written_down_later(interrupted, monkeypatch):
    """A run that took its threads from the environment goes on where the same number stands in the file."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    go_on, _ = interrupted()
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert go_on(sets=["training.threads=1"]).record["status"] == "finished"


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_what_changes_no_bit_may_change(train, interrupted, tmp_path):
    """Moved data of the same content, another name and folder, other workers and batches of evaluation."""
    go_on, folder = interrupted()  # each call of ``train`` writes the data to a new place
    moved = tmp_path / "elsewhere"
    shutil.move(folder, moved)
    changed = ["run.name=renamed", "training.workers=2", "training.eval_batch_size=3"]
    ours = go_on(sets=changed, output=moved)
    assert_same_run(ours, train(TWENTY, sets=[*LONG, "callbacks.checkpoint.every=1 step"]))


def test_a_state_that_nobody_can_take_back_is_refused(train, parts):
    """A part with ``state_dict`` alone would lose its state in silence; said before step 1."""
    with pytest.raises(RtxError) as caught:
        train(TWENTY, extra="[callbacks.forgetful]\n", sets=LONG)
    line = "callback.forgetful: it has state_dict() but no load_state_dict(), so a resumed run would lose its state"
    assert str(caught.value) == line
