"""Who may write into a run's folder, what a claim deletes, and files that are never half written."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import attrs
import pytest

from rtx_core.errors import InputError, RunError
from rtx_core.folder import RunFolder, replacing, strict_json, write_text_atomically
from rtx_core.lengths import Horizon, Length
from rtx_core.run import Run
from rtx_plugins.callbacks.metrics import Metrics

WAYS_ON = ("--resume", "--overwrite", "--new")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / "nouns"


@pytest.fixture
def begun(path):
    """A run that wrote something of everything, and a checkpoint; beside it a file of the user's."""
    with RunFolder.claim(path) as folder:
        for file in (folder.pipeline, folder.resolved, folder.metrics, folder.log, path / "report.html"):
            file.write_text("x\n")
        for inner in (folder.tokenizer, folder.plugins, folder.checkpoints / "step-00000004"):
            inner.mkdir(parents=True)
            (inner / "file").write_text("x")
        (path / "notes.txt").write_text("mine")
    return folder


def contents(path):
    """Every file below with its bytes; the lock, which any process may touch, left out."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and file.name != ".lock"
    }


# --- claims -----------------------------------------------------------------------------------------------------------


def test_a_claim_makes_the_folder_and_says_that_it_runs(path):
    """From the first moment on the folder can be told from anyone else's."""
    with RunFolder.claim(path) as folder:
        assert folder.read_record() == {"status": "running"}
    assert set(contents(path)) == {"run.json"}


def test_a_second_run_into_a_folder_with_a_checkpoint_is_refused(begun):
    """The message names the three ways on, and nothing changed."""
    before = contents(begun.path)
    with pytest.raises(InputError) as caught:
        RunFolder.claim(begun.path)
    assert all(way in str(caught.value) for way in (*WAYS_ON, "step-00000004", str(begun.path)))
    assert contents(begun.path) == before


@pytest.mark.parametrize("status", ["finished", "stopped_early"])
def test_a_finished_run_is_refused_even_without_checkpoints(path, status):
    """Its model would be lost; a resume has nothing to go on from and may not begin afresh over it either."""
    with RunFolder.claim(path) as folder:
        folder.write_record({"status": status})
    with pytest.raises(InputError, match="holds a finished run; go on with it"):
        RunFolder.claim(path)
    with pytest.raises(InputError, match="no checkpoint to resume from") as caught:
        RunFolder.claim(path, "resume")
    assert "--resume" not in str(caught.value)


def test_a_kept_model_is_never_overwritten_by_a_plain_start(path):
    """Whatever run.json says, a folder with a model is a finished run."""
    with RunFolder.claim(path) as folder:
        folder.model.mkdir()
    with pytest.raises(InputError, match="holds a finished run"):
        RunFolder.claim(path)


@pytest.mark.parametrize("way", ["start", "resume"])
@pytest.mark.parametrize("status", ["running", "failed", "interrupted"])
def test_a_start_that_failed_before_its_first_checkpoint_starts_again(path, way, status):
    """What it left is gone, what somebody else put there is not."""
    with RunFolder.claim(path) as folder:
        folder.write_record({"status": status, "why": "out of memory"})
        folder.metrics.write_text('{"step": 1}\n')
        folder.checkpoints.mkdir()
        (folder.checkpoints / ".tmp-step-00000001-0").mkdir()
        (path / "notes.txt").write_text("mine")
    with RunFolder.claim(path, way) as folder:
        assert folder.read_record() == {"status": "running"}
    assert set(contents(path)) == {"run.json", "notes.txt"}


def test_overwrite_deletes_what_rtx_wrote_and_nothing_else(begun):
    """A file of the user's stays, and so does what a link of that name points to."""
    elsewhere = begun.path.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "weights").write_text("mine")
    begun.model.symlink_to(elsewhere)
    with RunFolder.claim(begun.path, "overwrite"):
        pass
    assert set(contents(begun.path)) == {"run.json", "notes.txt"}
    assert (elsewhere / "weights").read_text() == "mine"


@pytest.mark.parametrize("way", ["start", "overwrite", "resume"])
def test_a_folder_that_is_no_runs_is_left_alone(path, way):
    """Without run.json nothing in it is rtx's to delete or to mix with."""
    path.mkdir(parents=True)
    (path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"has no run\.json"):
        RunFolder.claim(path, way)
    assert [file.name for file in path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("way", ["start", "overwrite", "resume", "new"])
def test_an_empty_folder_can_be_taken_by_any_way(path, way):
    """Also one in which a claim was cut off before it wrote run.json."""
    path.mkdir(parents=True)
    (path / ".lock").write_text("123")
    (path / ".tmp-run.json-0").write_text("{")
    with RunFolder.claim(path, way) as folder:
        assert folder.read_record() == {"status": "running"}
    assert set(contents(folder.path)) == {"run.json"}


def test_a_resume_keeps_everything_but_what_a_kill_left(begun):
    """Half written and half deleted checkpoints go; run.json is the loop's to change."""
    before = contents(begun.path)
    (begun.path / ".trash-model").mkdir()
    for name in (".tmp-step-00000006-0", ".trash-step-00000002"):
        (begun.checkpoints / name).mkdir()
        (begun.checkpoints / name / "model.safetensors").write_text("x")
    with RunFolder.claim(begun.path, "resume"):
        pass
    assert contents(begun.path) == before
    assert [folder.name for folder in begun.checkpoints.iterdir()] == ["step-00000004"]


def test_a_resume_needs_no_run_json(begun):
    """The checkpoints decide; a lost run.json doesn't lose the run."""
    begun.record.unlink()
    with RunFolder.claim(begun.path, "resume") as folder:
        assert folder.read_record() == {}


def test_new_takes_the_first_free_name(begun):
    """``nouns`` is taken, so ``nouns-2``, then ``nouns-3``; a name that is free is taken itself."""
    names = []
    for _ in range(2):
        with RunFolder.claim(begun.path, "new") as folder:
            names.append(folder.path.name)
    with RunFolder.claim(begun.path.with_name("verbs"), "new") as folder:
        names.append(folder.path.name)
    assert names == ["nouns-2", "nouns-3", "verbs"]


@pytest.mark.parametrize("inner", ["", "inner"])
def test_a_file_in_the_way_is_one_line(tmp_path, inner):
    """``--output`` may name a file by mistake, or a folder inside one."""
    file = tmp_path / "model.bin"
    file.write_text("x")
    with pytest.raises(InputError) as caught:
        RunFolder.claim(file / inner)
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_claim_that_fails_half_way_can_be_repeated(begun, monkeypatch):
    """run.json goes last, so a folder that was emptied by half is still known as a run's."""

    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", fail)
        with pytest.raises(RunError, match=r"run\.json can't be written: Input/output error$"):
            RunFolder.claim(begun.path, "overwrite")
    assert set(contents(begun.path)) == {"run.json", "notes.txt"}
    with RunFolder.claim(begun.path, "overwrite") as folder:
        assert folder.read_record() == {"status": "running"}


# --- the lock ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def holder(path):
    """Another process that holds the folder."""
    code = (
        "import sys, pathlib; from rtx_core.folder import RunFolder\n"
        "folder = RunFolder.claim(pathlib.Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.mark.parametrize("way", ["start", "resume", "overwrite"])
def test_two_processes_never_train_into_one_folder(path, holder, way):
    """The second is told which process holds it, and deletes nothing."""
    (path / "metrics.jsonl").write_text("x")
    before = contents(path)
    with pytest.raises(InputError, match=rf"process {holder.pid} trains into"):
        RunFolder.claim(path, way)
    assert contents(path) == before


def test_the_lock_goes_with_its_process(path, holder):
    """After kill -9 nothing has to be cleaned by hand."""
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with RunFolder.claim(path) as folder:
        assert (path / ".lock").read_text() == str(os.getpid())
        assert folder.read_record() == {"status": "running"}


def test_a_file_system_without_locks_can_be_trained_into(path, monkeypatch):
    """Some cluster file systems know no locks; that is no reason to refuse a run."""

    def lockf(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.lockf", lockf)
    with RunFolder.claim(path) as folder:
        assert folder.read_record() == {"status": "running"}


# --- writing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["io.open", "os.fsync", "os.replace", "os.open"])
def test_a_write_that_fails_leaves_the_old_text(tmp_path, monkeypatch, call):
    """Whichever call fails, the file has its old text (or, at the very last one, the new) and nothing lies around."""
    file = tmp_path / "run.json"
    write_text_atomically(file, "old")

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(call, fail)
        with pytest.raises(RunError, match=r"run.json can't be written: No space left on device$"):
            write_text_atomically(file, "new")
    assert file.read_text() == ("new" if call == "os.open" else "old")
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.json"]


def test_a_block_that_fails_leaves_the_old_file(tmp_path):
    """Nothing is replaced by half of what was to be written."""
    file = tmp_path / "a"
    file.write_text("old")
    with pytest.raises(TypeError), replacing(file) as new:
        new.writelines([b"ne", None])
    assert {entry.name: entry.read_text() for entry in tmp_path.iterdir()} == {"a": "old"}


def test_the_record_merges_entries(path):
    """An entry replaces that of its name; NaN, which JSON lacks, is null."""
    with RunFolder.claim(path) as folder:
        folder.write_record({"best": {"eval/loss": 0.5}, "device": "cpu"})
        folder.write_record({"best": {"eval/f1": math.nan}, "status": "finished", "labels": ["Käfer", "\udcff"]})
        assert folder.read_record() == {
            "status": "finished",
            "best": {"eval/f1": None},
            "device": "cpu",
            "labels": ["Käfer", "\udcff"],
        }
        assert "Käfer" in folder.record.read_text()


@pytest.mark.parametrize("text", ['{"status": "run', "[]", ""])
def test_a_damaged_record_is_named(path, text):
    """One line with the file, and what to do."""
    RunFolder.claim(path).release()
    (path / "run.json").write_text(text)
    with pytest.raises(InputError, match=r"run\.json .*move it away and try again$") as caught:
        RunFolder.claim(path)
    assert "\n" not in str(caught.value)


def test_json_is_strict(tmp_path):
    """NaN and infinities are null at any depth; tuples are lists."""
    value = {"a": math.nan, "b": [[1.5, math.inf]], "c": (-math.inf, None, "NaN", True)}
    text = strict_json(value)
    assert json.loads(text, parse_constant=pytest.fail) == {
        "a": None,
        "b": [[1.5, None]],
        "c": [None, None, "NaN", True],
    }


# --- metrics.jsonl ----------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path)


def test_metrics_are_cut_back_to_the_checkpoint(folder):
    """Later rows and a torn last line go; the step's own row and evaluation stay, byte for byte."""
    kept = b'{"step": 1, "lr": 0.10}\n{"step": 2, "lr": 0.1}\n{"step": 2, "eval/loss": 0.5}\n'
    folder.metrics.write_bytes(kept + b'{"step": 3, "lr": 0.1}\n{"step": 3, "eval/loss": 0.5}\n{"step": 4, "l')
    folder.cut_metrics(2)
    assert folder.metrics.read_bytes() == kept
    folder.cut_metrics(2)
    assert folder.metrics.read_bytes() == kept


def test_the_test_sets_row_goes_when_a_run_goes_on(folder):
    """A run that was killed before its model was kept reads the test set again, and its row stands there once."""
    folder.metrics.write_text('{"step": 9, "eval/loss": 0.5}\n{"step": 9, "test/loss": 0.5}\n')
    folder.cut_metrics(9)
    assert folder.metrics.read_text() == '{"step": 9, "eval/loss": 0.5}\n'


def test_a_run_without_metrics_has_nothing_to_cut(folder):
    """The callback may be off."""
    folder.cut_metrics(3)
    assert not folder.metrics.exists()


@pytest.mark.parametrize("line", ["", "x", "[1]", '{"loss": 1}', '{"step": null}'])
def test_a_line_that_is_no_row_is_named(folder, line):
    """The file is not changed where it isn't understood."""
    text = f'{{"step": 1}}\n{line}\n{{"step": 2}}\n'
    folder.metrics.write_text(text)
    with pytest.raises(InputError, match=r"metrics\.jsonl:2: "):
        folder.cut_metrics(1)
    assert folder.metrics.read_text() == text


def test_cutting_metrics_is_atomic(folder, monkeypatch):
    """A disk that fails leaves the file as it was."""
    folder.metrics.write_text('{"step": 1}\n{"step": 2}\n')

    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(RunError, match="Input/output error"):
        folder.cut_metrics(1)
    assert folder.metrics.read_text() == '{"step": 1}\n{"step": 2}\n'


# --- the callback that writes it --------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    """A run of which only what a callback reads is there: 10 steps of 4 samples, two epochs."""
    required = {field.alias: None for field in attrs.fields(Run) if field.default is attrs.NOTHING}
    horizon = Horizon(total=10, run_total=10, steps_per_epoch=5, samples_per_epoch=20, tokens_per_epoch=100)
    strategy = SimpleNamespace(rank=0, world_size=1, sum=lambda *values: values)
    return Run(**{**required, "folder": tmp_path, "strategy": strategy, "horizon": horizon})


def rows(run):
    """The rows of metrics.jsonl, read strictly."""
    text = (run.folder / "metrics.jsonl").read_text()
    return [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]


def train(run, part, steps):
    """What the loop does, as far as the callback can see."""
    part.on_run_start(run)
    while run.step < steps:
        run.step += 1
        part.on_step_end(run)
        if run.log_requested:
            run.log_requested = False
            part.on_log({"step": run.step, "train/loss": math.nan if run.step == 2 else 0.5})
        if run.step % 5 == 0:
            part.on_eval_end(run, {"eval/loss": 0.25, "eval/confusion": [[1.0, math.nan]]})
    part.on_run_end()


def test_every_step_and_every_evaluation_is_a_row(run):
    """The rows are strict JSON: NaN is null, at any depth."""
    train(run, Metrics().build(), 5)
    assert rows(run) == [
        {"step": 1, "train/loss": 0.5},
        {"step": 2, "train/loss": None},
        *({"step": step, "train/loss": 0.5} for step in (3, 4, 5)),
        {"step": 5, "eval/loss": 0.25, "eval/confusion": [[1.0, None]]},
    ]


def test_every_is_a_length(run):
    """``"0.4 epochs"`` of 5 steps is every second step."""
    train(run, Metrics(every=Length.parse("0.4 epochs")).build(), 10)
    assert [row["step"] for row in rows(run) if "train/loss" in row] == [2, 4, 6, 8, 10]


def test_a_resumed_run_appends(run):
    """Stopped after 7 steps and resumed from 5, each step stands there once."""
    train(run, Metrics().build(), 7)
    RunFolder(run.folder).cut_metrics(5)
    run.step = 5
    train(run, Metrics().build(), 10)
    assert [row["step"] for row in rows(run) if "train/loss" in row] == list(range(1, 11))
    assert [row["step"] for row in rows(run) if "eval/loss" in row] == [5, 10]


def test_a_row_is_there_as_soon_as_it_was_logged(run):
    """A process that is killed has lost no row: nothing waits in a buffer."""
    part = Metrics().build()
    part.on_run_start(run)
    part.on_log({"step": 1})
    assert rows(run) == [{"step": 1}]
    part.on_checkpoint()
    part.on_run_end()


def test_only_the_first_process_writes(run):
    """With four processes each row stands there once."""
    run.strategy.rank = 1
    train(run, Metrics().build(), 5)
    assert not (run.folder / "metrics.jsonl").exists()


def test_an_interval_of_nothing_is_refused():
    """``"0 steps"`` would mean never or always."""
    with pytest.raises(ValueError, match='longer than nothing, got "0 steps"'):
        Metrics(every=Length.parse("0 steps"))


def test_a_full_disk_ends_the_run_in_one_line(run, monkeypatch):
    """Whether the system refuses the row or takes a part of it; the run ends, and the message names the file."""
    part = Metrics().build()
    part.on_run_start(run)
    part.on_run_end()
    for write in (lambda _: 3, lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device"))):
        part._file = SimpleNamespace(write=write, name=run.folder / "metrics.jsonl")
        with pytest.raises(RunError, match=r"metrics\.jsonl can't be written: No space left on device$"):
            part.on_log({"step": 1})
