"""What the command line accepts, refuses, prints, imports, and how it ends."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest


def one_line(done):
    """The only line on stderr, but for what is told of the data."""
    (line,) = (line for line in done.err.splitlines() if not re.match("(warning|note): (training|eval|test): ", line))
    return line


# --- help -------------------------------------------------------------------------------------------------------------


def test_help_lists_every_installed_command_with_what_it_does(rtx):
    """``--help`` shows run, check and each command plugin, each with the first line of its module's docstring."""
    done = rtx("--help")
    assert done.status == 0
    installed = importlib.metadata.entry_points(group="rtx.v1")
    commands = [point.name.removeprefix("command.") for point in installed if point.name.startswith("command.")]
    listed = {line.split()[0] for line in done.out.splitlines() if line.startswith("    ")}
    assert {"run", "check", *commands} <= listed
    assert "Show what a run would do" in " ".join(done.out.split())


def test_help_of_a_command_explains_its_arguments(rtx):
    """``rtx run --help`` names the options and exits 0."""
    done = rtx("run", "--help")
    assert done.status == 0
    assert all(option in done.out for option in ("--resume", "--overwrite", "--new", "--steps", "--set", "--plugin"))


def test_version_is_that_of_the_distribution(rtx):
    """``--version`` prints the installed version."""
    assert rtx("--version").out == f"rtx-transformers {importlib.metadata.version('rtx-transformers')}\n"


def test_no_command_shows_the_help_and_is_an_error(rtx):
    """``rtx`` alone prints the help on stderr and exits 2."""
    done = rtx()
    assert (done.status, done.out) == (2, "")
    assert "usage: rtx" in done.err


# --- imports ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("check", "colours.toml"),
        ("init", "train.jsonl"),
        ("plugins", "list"),
        ("plugins", "show", "adamw"),
        ("predict", "--help"),
        ("run", "missing.toml"),
    ],
    ids=" ".join,
)
def test_commands_that_compute_nothing_import_no_torch(imported, folder, arguments):
    """Importing torch takes seconds, so only what needs it does."""
    _, modules = imported(*arguments, folder=folder)
    assert "rtx_core.cli" in modules
    assert "torch" not in modules


def test_only_the_command_that_was_asked_for_is_imported(imported, folder):
    """``check`` imports no command plugin, ``plugins`` only its own module and helpers."""
    status, modules = imported("check", "colours.toml", folder=folder)
    assert status == 0
    assert not [name for name in modules if name.startswith("rtx_plugins.commands.")]
    _, modules = imported("plugins", "list", folder=folder)
    assert "rtx_plugins.commands.plugins" in modules
    assert "rtx_plugins.commands.init" not in modules


# --- words that mean nothing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("rnu", "a.toml"), ('no command "rnu"', 'did you mean "rtx run"?')),
        (("a.toml",), ('no command "a.toml"', 'did you mean "rtx run a.toml"?')),
        (("zzzzzz",), ('no command "zzzzzz"', "there are: run, check")),
        (("run",), ("PIPELINE", "rtx run --help")),
        (("run", "a.toml", "--ouput", "b"), ("unknown option --ouput", "did you mean --output?")),
        (("run", "a.toml", "b.toml"), ('unexpected argument "b.toml"',)),
        (("run", "a.toml", "--steps", "0"), ('expected a whole number from 1, got "0"',)),
        (("run", "a.toml", "--resume", "--new"), ("--new", "not allowed with", "--resume")),
        (("--verison",), ("--verison",)),
        (("check", "--plugin"), ("--plugin", "expected one argument")),
        (("check", "--plugin", "none.py", "a.toml"), ("none.py", "no such Python file")),
    ],
    ids=" ".join,
)
def test_a_mistyped_command_line_is_one_line_that_helps(rtx, folder, arguments, parts):
    """Exit status 2, no usage text, no traceback."""
    done = rtx(*arguments)
    assert (done.status, done.out) == (2, "")
    line = one_line(done)
    assert all(part in line for part in parts), line


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["run", "check", "plan"])
@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("missing.toml", "no such file"),
        ("folder.toml", "is a folder"),
        ("broken.toml", "not TOML"),
        ("latin.toml", "not UTF-8"),
    ],
)
def test_a_file_that_is_no_pipeline_is_one_line(rtx, folder, command, name, part):
    """The line begins with the file's name; nothing is created."""
    (folder / "folder.toml").mkdir()
    (folder / "broken.toml").write_bytes(b"[task\n")
    (folder / "latin.toml").write_bytes(b"# caf\xe9\n")
    before = sorted(folder.rglob("*"))
    done = rtx(command, name)
    assert (done.status, done.out) == (2, "")
    line = one_line(done)
    assert line.startswith(name)
    assert part in line
    assert sorted(folder.rglob("*")) == before


def test_an_empty_file_lacks_tables_one_line_each(rtx, folder):
    """Every missing table is a line of its own, with the file's name."""
    (folder / "empty.toml").touch()
    done = rtx("run", "empty.toml")
    lines = done.err.splitlines()
    assert (done.status, done.out) == (2, "")
    assert all(line.startswith("empty.toml") for line in lines)
    assert {"task", "data", "architecture", "training"} <= {line.split(": ")[1] for line in lines}


def test_check_says_ok_on_stdout(rtx, folder):
    """One line, exit status 0, nothing created."""
    before = sorted(folder.rglob("*"))
    done = rtx("check", "colours.toml")
    assert (done.status, done.out, done.err) == (0, "colours.toml: ok\n", "")
    assert sorted(folder.rglob("*")) == before


def test_check_reports_every_problem_with_its_place(rtx, folder):
    """Two mistakes are two lines, each with file, line, column and key; no traceback."""
    path = folder / "colours.toml"
    path.write_text(path.read_text().replace("lr = 1e-2", "learning_rate = 1e-2").replace("batch_size", "batchsize"))
    done = rtx("check", path.name)
    assert (done.status, done.out) == (2, "")
    text = path.read_text().splitlines()
    line = text.index("learning_rate = 1e-2") + 1
    assert f"colours.toml:{line}:1: optimizer.learning_rate: unknown key" in done.err
    assert 'did you mean "lr"' in done.err
    assert "training.batchsize" in done.err
    assert "Traceback" not in done.err


def test_check_for_a_program_is_json(rtx, folder):
    """``--json`` prints problems as data on stdout, with the same exit status."""
    good = rtx("check", "colours.toml", "--json")
    assert (good.status, json.loads(good.out)) == (0, {"ok": True, "problems": [], "notes": []})
    bad = rtx("check", "colours.toml", "--json", "--set", "optimizer.lr=-1")
    report = json.loads(bad.out)
    assert (bad.status, bad.err, report["ok"]) == (2, "", False)
    (problem,) = report["problems"]
    assert (problem["file"], problem["key"]) == ("--set", "optimizer.lr")


def test_check_says_which_part_replaces_ours(rtx, folder, mine):
    """A file's part wins over ours, and the note says so on stderr."""
    done = rtx("check", "colours.toml", "--plugin", mine)
    assert done.status == 0
    assert "optimizer.adamw is supplied by extra.py" in one_line(done)
    assert one_line(done).endswith("instead of rtx-transformers")


def test_a_clone_that_is_not_installed_says_so(rtx, folder, monkeypatch):
    """Without entry points there are no parts: the line says how to install, and ``--help`` still works."""
    monkeypatch.setattr(importlib.metadata, "entry_points", importlib.metadata.EntryPoints)
    done = rtx("check", "colours.toml")
    assert (done.status, done.out) == (2, "")
    assert "pip install -e ." in one_line(done)
    done = rtx("--help")
    assert done.status == 0
    assert "run" in done.out
    assert "pip install -e ." in one_line(done)


# --- how things end ---------------------------------------------------------------------------------------------------


def test_a_command_may_come_from_a_plugin_file(rtx, bad_command):
    """``--plugin`` before or after the command brings it; its exit status is the program's."""
    path = bad_command("return 7")
    assert rtx("--plugin", path, "bad").status == 7
    assert rtx("bad", f"--plugin={path}").status == 7


def test_ctrl_c_is_one_word_and_130(rtx, bad_command):
    """A KeyboardInterrupt has no traceback."""
    done = rtx("bad", "--plugin", bad_command("raise KeyboardInterrupt"))
    assert (done.status, done.err) == (130, "interrupted\n")


def test_the_systems_refusal_is_one_line(rtx, bad_command):
    """A full disk or a missing permission is no bug: one line with the file's name, exit status 1."""
    done = rtx("bad", "--plugin", bad_command("raise OSError(errno.ENOSPC, 'No space left on device', 'a/b')"))
    assert (done.status, done.err) == (1, "a/b: No space left on device\n")


def test_an_unexpected_error_is_called_a_bug_of_rtx(rtx, bad_command):
    """The traceback is kept, and the last line says what to do."""
    done = rtx("bad", "--plugin", bad_command("registry.find('loss', 3)"))
    assert done.status == 1
    assert "Traceback" in done.err
    assert "AttributeError: 'int' object" in done.err
    assert done.err.splitlines()[-1].startswith("This is a bug in rtx ")


def test_an_error_in_a_plugins_code_is_called_a_bug_of_the_plugin(rtx, bad_command):
    """The file, or the package, whose function raised it."""
    done = rtx("bad", "--plugin", bad_command("raise ValueError('hm')"))
    assert done.status == 1
    assert "ValueError: hm" in done.err
    assert done.err.splitlines()[-1].startswith("This is a bug in extra.py (main). Please")


def test_an_error_in_what_the_strategy_calls_is_not_called_its_own(rtx, folder, plugin):
    """The loss of a plugin file is called by the strategy of rtx, which is not to blame."""
    path = plugin(
        "import attrs\n"
        "from rtx_core import Loss, hookimpl\n"
        "@attrs.frozen(kw_only=True)\n"
        "class Bad(Loss):\n"
        "    def build(self, outputs):\n"
        "        return self\n"
        "    def weight(self, targets):\n"
        "        return 1.0\n"
        "    def of_logits(self, logits, targets):\n"
        "        raise KeyError('size')\n"
        "@hookimpl\n"
        "def loss():\n"
        "    return {'bad': Bad}\n"
    )
    done = rtx("run", "colours.toml", "--set", "loss.type=bad", "--plugin", path, "--quiet")
    assert done.status == 1
    assert done.err.splitlines()[-1].startswith("This is a bug in extra.py (of_logits). ")


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("callback.early_stopping", "callback.early_stopping (on_step_end), supplied by rtx-transformers"),
        ("callback.of_somebody", "callback.of_somebody (on_step_end). Please"),
        ("optimizer", "optimizer (on_step_end). Please"),
    ],
)
def test_an_error_in_a_parts_hook_is_called_a_bug_of_the_part(rtx, bad_command, part, said):
    """The note that the hooks add to an error names the part, and where it comes from if that is certain."""
    body = f"e = ValueError('hm'); e.add_note('in on_step_end of {part}'); raise e"
    done = rtx("bad", "--plugin", bad_command(body))
    assert done.status == 1
    assert f"This is a bug in {said}" in done.err.splitlines()[-1]


def test_an_error_in_build_names_the_part_and_its_file(rtx, folder, plugin):
    """The part's table, its method, and the plugin file that supplies it."""
    path = plugin(
        "import attrs\n"
        "from rtx_core import Callback, hookimpl\n"
        "@attrs.frozen(kw_only=True)\n"
        "class Bad(Callback):\n"
        "    def build(self):\n"
        "        raise KeyError('size')\n"
        "@hookimpl\n"
        "def callback():\n"
        "    return {'bad': Bad}\n"
    )
    version = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    done = rtx("run", "colours.toml", "--set", "callbacks.bad={}", "--plugin", path, "--quiet")
    assert done.status == 1
    assert "KeyError: 'size'" in done.err
    bug = f"This is a bug in callback.bad (build), supplied by extra.py {version}. "
    assert done.err.splitlines()[-1].startswith(bug)


def test_an_error_in_a_metric_names_it(rtx, folder, plugin):
    """What goes wrong in an evaluation is the metric's, not rtx's."""
    path = plugin(
        "import attrs\n"
        "from rtx_core import Metric, MetricPart, hookimpl\n"
        "class Part(MetricPart):\n"
        "    def update(self, predictions, targets, weights):\n"
        "        raise KeyError('size')\n"
        "@attrs.frozen(kw_only=True)\n"
        "class Bad(Metric):\n"
        "    def names(self):\n"
        "        return {'bad': 'max'}\n"
        "    def build(self, outputs):\n"
        "        return Part()\n"
        "@hookimpl\n"
        "def metric():\n"
        "    return {'bad': Bad}\n"
    )
    done = rtx("run", "colours.toml", "--set", "metrics.bad={}", "--plugin", path, "--quiet")
    assert done.status == 1
    assert done.err.splitlines()[-1].startswith("This is a bug in metric.bad (update). ")


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [("sys.exit()", 0, ""), ("sys.exit(4)", 4, ""), ("sys.exit('no licence')", 1, "no licence\n")],
)
def test_a_command_may_exit_as_any_program(rtx, bad_command, body, status, said):
    """As Python takes it: a number is the status, nothing is success, a text is a complaint."""
    done = rtx("bad", "--plugin", bad_command(body))
    assert (done.status, done.err) == (status, said)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_results_that_cannot_be_written_are_a_failure(folder):
    """Not a bug, and not success: one line, exit status 1."""
    done = _in_shell("check colours.toml >/dev/full")
    assert (done.returncode, done.stderr) == (1, "stdout can't be written: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full", "2>&1 >/dev/null | head -n 1"])
def test_a_run_that_nobody_can_hear_is_finished(folder, stderr):
    """Closed, full, or with a reader that goes away: the training goes on, and the log has what was said."""
    done = _in_shell(f"run colours.toml --steps 3 {stderr}")
    assert done.returncode == 0, done
    run = folder / "runs" / "colours-smoke"
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
    assert "try    rtx predict runs/colours-smoke" in (run / "log.txt").read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full"])
def test_a_mistake_that_nobody_can_hear_has_its_status(folder, stderr):
    """And what would have been said doesn't end up among the results."""
    done = _in_shell(f"check none.toml {stderr}")
    assert (done.returncode, done.stdout) == (2, "")


def _in_shell(command):
    """A command of a fresh process with the shell's redirections."""
    line = f"set -o pipefail; {shlex.quote(sys.executable)} -m rtx_core {command}"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, env=environment)


def test_a_reader_that_goes_away_is_no_error_message(bad_command):
    """``rtx … | head -1`` prints nothing on stderr."""
    path = bad_command("[print('line', i) for i in range(100_000)]")
    command = [sys.executable, "-m", "rtx_core", "bad", "--plugin", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"line 0\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


# --- run --------------------------------------------------------------------------------------------------------------


def test_a_run_leaves_its_folder_and_says_what_it_did(rtx, folder):
    """Messages on stderr: what runs, a row for each evaluation, the best, the test set, the model, what to try."""
    done = rtx("run", "colours.toml")
    assert (done.status, done.out) == (0, "")
    for part in (
        "2 labels: cold, warm",
        "50 training, 20 eval, 20 test",
        "10 epochs = 50 steps of 10 sequences",
        "eval/accuracy",
        "test/accuracy 1.0000",
        "runs/colours/model (the best)",
        'rtx predict runs/colours --text "…"',
    ):
        assert part in done.err, part
    assert (folder / "runs/colours/model/model.safetensors").is_file()
    logged = (folder / "runs/colours/log.txt").read_text()
    assert "test/accuracy 1.0000" in logged


def test_a_finished_run_is_not_run_over(rtx, trained, monkeypatch):
    """A second run is refused with exit status 2 and the ways on."""
    monkeypatch.chdir(trained)
    done = rtx("run", "colours.toml")
    assert done.status == 2
    assert all(way in one_line(done) for way in ("--resume", "--overwrite", "--new"))


def test_a_trial_of_a_few_steps_keeps_to_the_plan(rtx, folder):
    """``--steps 2`` runs 2 of the 50 planned steps in a folder of its own, again and again."""
    for _ in range(2):
        done = rtx("run", "colours.toml", "--steps", "2")
        assert done.status == 0
        assert "2 of 50 steps" in done.err
    assert sorted(path.name for path in (folder / "runs").iterdir()) == ["colours-smoke"]


def test_quiet_says_nothing_and_logs_everything(trained):
    """The fixture ran with ``--quiet``: the log has the header and the summary all the same."""
    logged = (trained / "runs/colours/log.txt").read_text()
    assert "10 epochs = 50 steps" in logged
    assert "best" in logged


def test_a_folder_that_cannot_be_made_is_one_line(rtx, folder):
    """The output folder lies below a file: refused before anything else, with its name."""
    done = rtx("run", "colours.toml", "--output", "train.jsonl/run")
    assert (done.status, done.out) == (2, "")
    assert "train.jsonl/run" in one_line(done)
