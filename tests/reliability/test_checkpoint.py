"""Whatever kills a process or damages a file, checkpoints are whole or not there, and the newest good one is found."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from types import SimpleNamespace

import attrs
import pytest
import torch
from safetensors import safe_open

from rtx_core.checkpoint import Checkpoint, clear_leftovers, commit, listing, newest, remove, set_aside
from rtx_core.errors import InputError, RunError
from rtx_core.lengths import Horizon, Interval, Length
from rtx_core.run import Run
from rtx_plugins.callbacks import checkpoint as callback


@pytest.fixture
def checkpoints(tmp_path):
    return tmp_path / "checkpoints"


def save(checkpoints, step):
    """A small checkpoint whose contents say which step it is of."""
    tensors = {"model": {"weight": torch.full((3,), float(step))}, "parts": {}}
    return commit(checkpoints, step, tensors, {"state": {"step": step}})


def names(folder):
    """What stands in a folder, hidden or not."""
    return sorted(path.name for path in folder.iterdir())


def nothing_to_report(message):
    pytest.fail(f"unexpected: {message}")


# --- what is written --------------------------------------------------------------------------------------------------


def test_a_checkpoint_comes_back_as_it_was(checkpoints):
    """Tensors keep name, shape, dtype and bits; documents are JSON."""
    tensors = {
        "model": {"a": torch.tensor([[1.5, -0.0]]), "b": torch.tensor(3, dtype=torch.bfloat16)},
        "parts": {},
    }
    folder = commit(checkpoints, 100, tensors, {"state": {"x": [1, None]}, "other": "text"})
    assert folder == checkpoints / "step-00000100"
    assert names(folder) == [
        *("manifest.json", "model.safetensors", "other.json", "parts.safetensors", "state.json"),
    ]
    found = newest(checkpoints, nothing_to_report)
    assert found == Checkpoint(folder, 100)
    assert (found.document("state"), found.document("other"), found.tensors("parts")) == ({"x": [1, None]}, "text", {})
    model = found.tensors("model")
    assert {name: (t.dtype, t.shape) for name, t in model.items()} == {
        "a": (torch.float32, (1, 2)),
        "b": (torch.bfloat16, ()),
    }
    assert model["a"].view(torch.int32).tolist() == tensors["model"]["a"].view(torch.int32).tolist()


def test_equal_tensors_give_equal_bytes(checkpoints):
    """The header has exactly one metadata key, so a hash of the file is a hash of its tensors."""
    tensors = {f"{i}": torch.full((2,), float(i)) for i in range(20)}
    first = commit(checkpoints, 1, {"model": tensors}, {})
    second = commit(checkpoints, 2, {"model": dict(reversed(tensors.items()))}, {})
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()
    with safe_open(first / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_tensors_may_share_memory_and_be_views(checkpoints):
    """Tied weights, overlapping slices, transposed, expanded and conjugated views are each written whole."""
    base = torch.arange(6.0)
    tensors = {
        "table": base,
        "decoder": base,
        "parameter": torch.nn.Parameter(base),
        "slice": base[1:4],
        "overlap": base[2:6],
        "transposed": base.view(2, 3).t(),
        "expanded": torch.tensor([7.0]).expand(4),
        "conjugated": torch.tensor([1 + 2j]).conj(),
        "empty": torch.zeros(0, 3),
        "also_empty": torch.zeros(0),
    }
    commit(checkpoints, 1, {"model": tensors}, {})
    back = newest(checkpoints, nothing_to_report).tensors("model")
    assert list(back) == sorted(tensors, key=list(back).index)
    for name, tensor in tensors.items():
        assert torch.equal(back[name], tensor.detach().resolve_conj()), name


def test_files_can_be_read_by_whom_the_umask_allows(checkpoints):
    """Safetensors makes private files; a colleague who may read the run may read its weights."""
    before = os.umask(0o027)
    try:
        folder = save(checkpoints, 1)
    finally:
        os.umask(before)
    assert {file.name: oct(file.stat().st_mode & 0o777) for file in folder.iterdir()} == dict.fromkeys(
        names(folder), "0o640"
    )


def test_a_step_is_saved_once(checkpoints):
    """A checkpoint is never replaced; its content stays what it was."""
    save(checkpoints, 4)
    with pytest.raises(RunError, match=r"checkpoint of step 4 could not be saved .*: step-00000004 exists$"):
        commit(checkpoints, 4, {}, {"state": {"step": 5}})
    assert newest(checkpoints, nothing_to_report).document("state") == {"step": 4}
    assert names(checkpoints) == ["step-00000004"]


def test_a_file_that_a_checkpoint_lacks_is_named(checkpoints):
    """A checkpoint of another version may lack a file; the message says which."""
    save(checkpoints, 1)
    found = newest(checkpoints, nothing_to_report)
    with pytest.raises(InputError, match=r"step-00000001 has no optimizer\.safetensors$"):
        found.tensors("optimizer")
    with pytest.raises(InputError, match=r"step-00000001 has no loop\.json$"):
        found.document("loop")


# --- damage -----------------------------------------------------------------------------------------------------------


def test_no_checkpoints_is_no_error(checkpoints):
    """A run that never saved has nothing to resume from, and nothing is reported."""
    assert newest(checkpoints, nothing_to_report) is None
    checkpoints.mkdir()
    (checkpoints / "step-5").mkdir()
    (checkpoints / ".tmp-step-00000004-0").mkdir()
    assert newest(checkpoints, nothing_to_report) is None


def test_case_18_the_newest_good_checkpoint_is_taken(checkpoints):
    """step-2 good, step-4 cut to 100 bytes, step-6 an empty folder, step-8 files of 0 bytes: 3 warnings, on from 2."""
    for step in (2, 4, 6, 8):
        save(checkpoints, step)
    for file in (checkpoints / "step-00000004").iterdir():
        os.truncate(file, min(100, file.stat().st_size))
    for file in (checkpoints / "step-00000006").iterdir():
        file.unlink()
    for file in (checkpoints / "step-00000008").iterdir():
        os.truncate(file, 0)
    warnings = []
    found = newest(checkpoints, warnings.append)
    assert found.step == 2
    assert found.document("state") == {"step": 2}
    assert [warning.split()[1] for warning in warnings] == ["step-00000008", "step-00000006", "step-00000004"]
    assert all("\n" not in warning for warning in warnings)


def test_when_none_is_good_the_run_stops(checkpoints):
    """It doesn't begin again in silence; the message names the damaged ones."""
    for step in (2, 4):
        (save(checkpoints, step) / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"every checkpoint .* \(step-00000002, step-00000004\)"):
        newest(checkpoints, lambda _: None)


@pytest.mark.parametrize("mask", [0x01, 0x20])
def test_any_changed_byte_is_noticed(checkpoints, mask):
    """Each byte of each file in turn, also the blanks of the manifest: the checkpoint before is taken."""
    save(checkpoints, 1)
    folder = save(checkpoints, 2)
    for file in folder.iterdir():
        good = file.read_bytes()
        for place in range(len(good)):
            file.write_bytes(good[:place] + bytes([good[place] ^ mask]) + good[place + 1 :])
            assert Checkpoint(folder, 2).problem() is not None, (file.name, place)
        file.write_bytes(good)
    assert newest(checkpoints, nothing_to_report).step == 2


@pytest.mark.parametrize("name", ["manifest.json", "model.safetensors", "parts.safetensors", "state.json"])
def test_a_longer_shorter_or_missing_file_is_noticed(checkpoints, name):
    """The report names the checkpoint's folder and the file."""
    save(checkpoints, 1)
    file = save(checkpoints, 2) / name
    good = file.read_bytes()
    for content in (good + b" ", good[:-1], b"", None):
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        warnings = []
        assert newest(checkpoints, warnings.append).step == 1
        assert len(warnings) == 1
        assert warnings[0].startswith(f"checkpoint step-00000002 is damaged and not used: {name}")
        file.write_bytes(good)


def test_a_checkpoint_under_another_steps_name_is_noticed(checkpoints):
    """A folder that was renamed by hand would continue from the wrong step."""
    save(checkpoints, 2).rename(checkpoints / "step-00000003")
    assert listing(checkpoints)[0].problem() == "manifest.json is of step 2"


def test_another_format_is_told_from_damage(checkpoints):
    """A later version's checkpoint is not called damaged by chance: its format is named."""
    manifest = save(checkpoints, 2) / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 2}))
    assert Checkpoint(manifest.parent, 2).problem() == "manifest.json has format 2, this version of rtx reads 1"


@pytest.mark.parametrize("text", ["[]", "null", '"x"', "{", "\xff"])
def test_a_manifest_of_another_shape_is_noticed(checkpoints, text):
    """Anything that parses, and anything that doesn't."""
    manifest = save(checkpoints, 2) / "manifest.json"
    manifest.write_text(text, encoding="latin-1")
    assert Checkpoint(manifest.parent, 2).problem() in ("manifest.json is not JSON", "manifest.json is not a manifest")


# --- putting away -----------------------------------------------------------------------------------------------------


def test_setting_aside_never_deletes_or_replaces(checkpoints):
    """Newer and damaged ones get a free ``.aside-`` name, also where one of that name stands from the last time."""
    for step in (1, 2, 3, 4):
        save(checkpoints, step)
    os.truncate(checkpoints / "step-00000001" / "state.json", 0)
    (checkpoints / ".aside-step-00000003").mkdir()
    (checkpoints / ".aside-step-00000003-2").mkdir()
    moved = set_aside(checkpoints, 2)
    assert [path.name for path in moved] == [
        *(".aside-step-00000001", ".aside-step-00000003-3", ".aside-step-00000004"),
    ]
    assert names(checkpoints) == [
        ".aside-step-00000001",
        *(".aside-step-00000003", ".aside-step-00000003-2", ".aside-step-00000003-3"),
        ".aside-step-00000004",
        "step-00000002",
    ]
    assert json.loads((moved[1] / "state.json").read_text()) == {"step": 3}
    assert set_aside(checkpoints, 2) == []


def test_a_file_with_a_checkpoints_name_is_set_aside(checkpoints):
    """It is no checkpoint, but would be in the way of one."""
    checkpoints.mkdir()
    (checkpoints / "step-00000003").write_text("x")
    assert listing(checkpoints)[0].problem() is not None
    set_aside(checkpoints, 2)
    assert names(checkpoints) == [".aside-step-00000003"]


def test_a_checkpoint_loses_its_name_before_it_is_deleted(checkpoints, monkeypatch):
    """A process that is killed while it deletes leaves no half checkpoint, and the next start cleans up."""
    save(checkpoints, 1)
    save(checkpoints, 2)
    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", lambda *_, **__: None)
        remove(checkpoints / "step-00000001")
    assert names(checkpoints) == [".trash-step-00000001", "step-00000002"]
    (checkpoints / ".tmp-step-00000003-0").mkdir()
    (checkpoints / ".aside-step-00000004").mkdir()
    clear_leftovers(checkpoints)
    assert names(checkpoints) == [".aside-step-00000004", "step-00000002"]


def test_a_checkpoint_that_is_gone_already_can_be_removed(checkpoints):
    """Somebody who frees disk space by hand doesn't end the run."""
    remove(checkpoints / "step-00000001")
    assert not checkpoints.exists()


# --- failures of the disk ---------------------------------------------------------------------------------------------

CALLS = ("os.mkdir", "os.open", "os.fsync", "os.rename", "os.chmod", "io.open", "safetensors.torch.save_file")


def count_calls(patched, act):
    """Replace each call to the system by one that first calls ``act(number, name)``."""
    seen = []
    for name in CALLS:
        module, _, attribute = name.rpartition(".")
        original = getattr(sys.modules[module], attribute)

        def counted(*arguments, _name=name, _original=original, **keywords):
            seen.append(_name)
            act(len(seen), _name)
            return _original(*arguments, **keywords)

        patched.setattr(name, counted)
    return seen


@pytest.fixture
def calls_of_a_commit(checkpoints, monkeypatch):
    """How many calls to the system a commit makes, after the first checkpoint."""
    save(checkpoints, 1)
    with monkeypatch.context() as patched:
        seen = count_calls(patched, lambda *_: None)
        folder = save(checkpoints, 2)
    shutil.rmtree(folder)
    assert set(seen) == set(CALLS)
    return len(seen)


def test_a_fault_in_any_call_leaves_the_former_checkpoint(checkpoints, monkeypatch, calls_of_a_commit):
    """One line, nothing half committed, nothing left over; the next commit works as if nothing had happened."""
    # The first call asks for the folder of checkpoints, which is there, so that its failure is none.
    for number in range(2, calls_of_a_commit + 1):

        def act(count, _name, number=number):
            if count == number:
                raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            seen = count_calls(patched, act)
            with pytest.raises(RunError) as caught:
                save(checkpoints, 2)
        assert str(caught.value).endswith("(earlier ones are untouched): No space left on device"), seen[-1]
        left = names(checkpoints)
        # After the rename there is nothing to undo: the new checkpoint is whole, only its name may not last yet.
        renamed = "os.rename" in seen[: number - 1]
        assert left == ["step-00000001", "step-00000002"][: 1 + renamed], seen[:number]
        assert newest(checkpoints, nothing_to_report).step == len(left)
        if len(left) > 1:
            remove(checkpoints / "step-00000002")
    assert save(checkpoints, 2).name == "step-00000002"


@pytest.fixture
def files_stay_small():
    """The system refuses to let a file of this process grow beyond 20 kB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("files_stay_small")
@pytest.mark.parametrize(("size", "text"), [(100_000, ""), (1, "x" * 50_000)])
def test_a_write_that_the_system_refuses_is_one_line(checkpoints, size, text):
    """Real failed writes, of safetensors' own code and of ours."""
    save(checkpoints, 1)
    with pytest.raises(RunError, match=r"^the checkpoint of step 2 could not be saved .*File too large.*$"):
        commit(checkpoints, 2, {"model": {"a": torch.zeros(size)}}, {"state": text})
    assert names(checkpoints) == ["step-00000001"]
    assert newest(checkpoints, nothing_to_report).step == 1


def test_a_second_signal_inside_a_save_leaves_nothing(checkpoints, monkeypatch):
    """Ctrl-C twice stops at once; the half written checkpoint is gone, the former one is there."""
    save(checkpoints, 1)

    def interrupt(_number, name):
        if name == "os.rename":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        count_calls(patched, interrupt)
        with pytest.raises(KeyboardInterrupt):
            save(checkpoints, 2)
    assert names(checkpoints) == ["step-00000001"]


# --- kills ------------------------------------------------------------------------------------------------------------

# Commits in a loop and keeps two, as a run does. One process imports torch and forks the ones that are killed: at each
# system call of a commit and a removal in turn, and at moments that the clock picks.
_KILLED = """
import io, os, pathlib, shutil, signal, sys, time
import safetensors.torch, torch
from rtx_core.checkpoint import commit, listing, remove

def step(folder, number):
    commit(folder, number, {"model": {"weight": torch.full((1000,), float(number))}}, {"state": {"step": number}})
    for old in listing(folder)[:-2]:
        remove(old.folder)

def train(folder, kill_at):
    count = 0
    def counted(original):
        def call(*arguments, **keywords):
            nonlocal count
            count += 1
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **keywords)
        return call
    for module, name in ((os, "mkdir"), (os, "open"), (os, "fsync"), (os, "rename"), (os, "chmod"), (os, "unlink"),
                         (os, "rmdir"), (io, "open"), (safetensors.torch, "save_file")):
        setattr(module, name, counted(getattr(module, name)))
    for number in range(3, 1_000_000):
        step(folder, number)

def start(folder, kill_at):
    shutil.copytree(begun, folder)
    child = os.fork()
    if not child:
        train(folder, kill_at)
    return child

root = pathlib.Path(sys.argv[1])
begun = root / "begun"
step(begun, 1)
step(begun, 2)
for number in range(1, int(sys.argv[2]) + 1):
    os.waitpid(start(root / f"call-{number:03d}", number), 0)
for number in range(int(sys.argv[3])):
    child = start(root / f"time-{number:03d}", 0)
    time.sleep(0.03 + 0.0137 * number)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


def test_a_kill_at_any_moment_leaves_a_whole_newest_checkpoint(tmp_path):
    """SIGKILL before each system call of commit and rotation, and at random: what has a checkpoint's name is whole."""
    kills = (32, 4)
    subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path), *map(str, kills)], check=True, timeout=120)
    shutil.rmtree(tmp_path / "begun")
    inside_commit = inside_removal = 0
    for folder in sorted(tmp_path.iterdir()):
        inside_commit += any(name.startswith(".tmp-") for name in names(folder))
        inside_removal += any(name.startswith(".trash-") for name in names(folder))
        found = newest(folder, nothing_to_report)
        assert found.step >= 2
        assert found.document("state") == {"step": found.step}
        assert torch.equal(found.tensors("model")["weight"], torch.full((1000,), float(found.step)))
        assert [checkpoint.problem() for checkpoint in listing(folder)] == [None] * len(listing(folder))
        clear_leftovers(folder)
        assert all(name.startswith("step-") for name in names(folder))
        assert save(folder, found.step + 1).is_dir()
    assert len(list(tmp_path.iterdir())) == sum(kills)
    assert inside_commit >= 15
    assert inside_removal >= 5


# --- rotation ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    """A run of which only what a callback reads is there; the monitor is better when it is larger."""
    required = {field.alias: None for field in attrs.fields(Run) if field.default is attrs.NOTHING}
    horizon = Horizon(total=7, run_total=7, steps_per_epoch=4, samples_per_epoch=16, tokens_per_epoch=64)
    strategy = SimpleNamespace(rank=0, world_size=1, sum=lambda *values: values)
    given = {"strategy": strategy, "horizon": horizon, "monitor": "eval/accuracy", "monitor_direction": "max"}
    return Run(**{**required, **given, "folder": tmp_path})


def train(run, part, values=(), until=7):
    """What the loop does, as far as rotation goes; ``values`` are the monitor's after each step."""
    part.on_run_start(run)
    while run.step < until:
        run.step += 1
        part.on_step_end(run)
        if values:
            value = values[run.step - 1]
            part.on_eval_end(run, {"eval/loss": 1.0, "eval/accuracy": value})
            if run.improves(value):
                run.best_value, run.best_step = value, run.step
                run.request_checkpoint()
        if run.checkpoint_requested or run.step == run.horizon.total:
            run.checkpoint_requested = False
            part.on_checkpoint(run, save(run.folder / "checkpoints", run.step))


def kept(run):
    """The steps that are on the disk."""
    return [checkpoint.step for checkpoint in listing(run.folder / "checkpoints")]


def component(every="1 step", **settings):
    return callback.Checkpoint(every=Interval.parse(every), **settings)


def test_case_17_a_checkpoint_every_three_of_seven_steps(run):
    """Checkpoints at 3, 6 and, because the run ends there, 7."""
    train(run, component("3 steps", keep_last=3).build())
    assert kept(run) == [3, 6, 7]


def test_case_17_rotation_keeps_the_best_and_the_last(run):
    """keep_last 1 with 0.9, 0.5, 0.6, 0.4, larger is better: 1 and 4 stay."""
    train(run, component(keep_last=1).build(), [0.9, 0.5, 0.6, 0.4], until=4)
    assert kept(run) == [1, 4]


def test_by_default_the_last_two_and_the_best_stay(run):
    """The default keeps two, so that one may be damaged."""
    train(run, component().build(), [0.1, 0.9, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert kept(run) == [2, 6, 7]


def test_keep_best_keeps_the_best_by_the_monitor(run):
    """Of equal values the earlier; NaN is never among the best; which way is better is the monitor's."""
    values = [0.5, 0.7, float("nan"), 0.7, 0.6, 0.2, 0.1]
    train(run, component(keep_last=1, keep_best=2).build(), values)
    assert kept(run) == [2, 4, 7]


def test_keep_best_of_a_monitor_that_falls(run):
    """With a loss the smallest are the best."""
    run.monitor_direction = "min"
    train(run, component(keep_last=1, keep_best=3).build(), [0.5, 0.4, 0.3, 0.2, 0.6, 0.7, 0.8])
    assert kept(run) == [2, 3, 4, 7]


def test_keep_every_keeps_multiples_for_good(run):
    """``keep_every`` is a length: half an epoch of four steps."""
    train(run, component(keep_last=1, keep_every=Length.parse("0.5 epochs")).build())
    assert kept(run) == [2, 4, 6, 7]


def test_rotation_goes_on_after_a_resume_as_if_nothing_had_happened(run):
    """The values that it knows are in its state, which depends on the run alone and not on what was on the disk."""
    values = [0.5, 0.7, 0.6, 0.65, 0.1, 0.2, 0.3]
    settings = component(keep_last=1, keep_best=2)
    first = settings.build()
    train(run, first, values, until=4)
    second = settings.build()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    train(run, second, values)
    assert kept(run) == [2, 4, 7]
    assert second.state_dict() == {"values": [[step, value] for step, value in enumerate(values, start=1)]}


def test_a_run_without_evaluations_keeps_the_last(run):
    """No monitor, no best."""
    run.monitor = None
    part = component(keep_last=1, keep_best=3).build()
    part.on_run_start(run)
    part.on_eval_end(run, {"test/loss": 1.0})
    train(run, part)
    assert kept(run) == [7]


def test_only_the_first_process_deletes(run):
    """The others see the same folder; two that delete would meet."""
    run.strategy.rank = 1
    train(run, component(keep_last=1).build())
    assert kept(run) == [1, 2, 3, 4, 5, 6, 7]


def test_an_interval_may_be_time(run, monkeypatch):
    """Every 20 minutes with steps of 9 minutes: after 27, and 27 after that; it counts from the last checkpoint."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    part = component("20 minutes", keep_last=9).build()
    part.on_run_start(run)
    for step in range(1, 8):
        run.step, now[0] = step, now[0] + 9 * 60
        part.on_step_end(run)
        if run.checkpoint_requested:
            run.checkpoint_requested = False
            part.on_checkpoint(run, save(run.folder / "checkpoints", step))
    assert kept(run) == [3, 6]


def test_the_first_process_clock_decides_for_all(run):
    """Clocks differ, but a checkpoint takes all processes: each asks when the first does."""
    run.strategy.rank = 1
    run.strategy.sum = lambda value: (value + 1.0,)
    part = component("1 hour").build()
    part.on_run_start(run)
    part.on_step_end(run)
    assert run.checkpoint_requested


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"every": Interval.parse("0 steps")}, "longer than nothing"),
        ({"keep_every": Length.parse("0 epochs")}, "longer than nothing"),
        ({"keep_last": 0}, "'keep_last' must be >= 1"),
        ({"keep_best": -1}, "'keep_best' must be >= 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    """The last checkpoint always stays, and an interval of nothing is no interval."""
    with pytest.raises(ValueError, match=message):
        callback.Checkpoint(**settings)
