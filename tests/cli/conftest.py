"""The command line in this process and in a fresh one, and a small run that is trained once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from rtx_core.cli import main

PIPELINE = """\
[run]
name = "colours"
[task]
type = "sequence_classification"
text = "text"
label = "label"
max_length = 16
[data]
type = "jsonl"
[data.train]
files = ["train.jsonl"]
[data.eval]
files = ["eval.jsonl"]
[data.test]
files = ["eval.jsonl"]
[tokenizer]
type = "wordpiece"
vocab_size = 100
[architecture]
type = "bert"
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 16
max_position_embeddings = 16
[optimizer]
lr = 1e-2
[training]
duration = "10 epochs"
batch_size = 10
threads = 1
monitor = "eval/accuracy"
"""


@attrs.frozen
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str


@pytest.fixture
def rtx(capfd):
    """Call the command line in this process."""

    def call(*arguments):
        capfd.readouterr()
        status = main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Done(status, out, err)

    return call


@pytest.fixture
def shell():
    """Call the command line in a fresh process."""

    def call(*arguments, python=(), folder=None):
        command = [sys.executable, *python, "-m", "rtx_core", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def imported():
    """The exit status of a command in a fresh process, and every module that it has loaded at its end."""
    # Not -X importtime: it leaves out what importlib.import_module loads, which is how plugins are loaded.
    script = (
        "import json, sys\n"
        "from rtx_core.cli import main\n"
        "status = main(sys.argv[1:])\n"
        "print(json.dumps([status, list(sys.modules)]), file=sys.stderr)\n"
    )

    def modules(*arguments, folder):
        command = [sys.executable, "-c", script, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=True)
        status, names = json.loads(done.stderr.splitlines()[-1])
        return status, set(names)

    return modules


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a pipeline and its data."""
    monkeypatch.chdir(tmp_path)
    write_job(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The working directory of a small run that is done: ``runs/colours``. Read it, don't change it."""
    folder = tmp_path_factory.mktemp("trained")
    write_job(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["run", "colours.toml", "--quiet"]) == 0
    return folder


@pytest.fixture
def plugin(tmp_path_factory):
    """Write a plugin file and return its path."""

    def write(text):
        path = tmp_path_factory.mktemp("plugin") / "extra.py"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def mine(plugin):
    """A plugin file with an ``adamw`` that has one more field than ours."""
    return plugin(
        "import attrs\n"
        "from rtx_core import hookimpl\n"
        "from rtx_plugins.optimizers.adamw import AdamW\n"
        "@attrs.frozen(kw_only=True)\n"
        "class Mine(AdamW):\n"
        '    """My own optimizer."""\n'
        "    nesterov: bool = False\n"
        '    """Look ahead."""\n'
        "@hookimpl\n"
        "def optimizer():\n"
        "    return {'adamw': Mine}\n"
    )


@pytest.fixture
def installed(tmp_path_factory, monkeypatch):
    """Install a distribution of which every entry point leads to a module that isn't there."""

    def install(*names, group="rtx.v1", distribution="acme-rtx"):
        site = tmp_path_factory.mktemp("site")
        folder = site / f"{distribution.replace('-', '_')}-1.2.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
        points = "".join(f"{name} = acme_rtx_missing\n" for name in names)
        (folder / "entry_points.txt").write_text(f"[{group}]\n{points}")
        monkeypatch.syspath_prepend(site)

    return install


@pytest.fixture
def bad_command(plugin):
    """A plugin file with a command ``bad`` whose ``main`` has the given body."""

    def write(body):
        return plugin(
            "import attrs, errno, sys\n"
            "from rtx_core import Command, hookimpl\n"
            "@attrs.frozen(kw_only=True)\n"
            "class Bad(Command):\n"
            '    """Go wrong."""\n'
            "    @classmethod\n"
            "    def main(cls, arguments, registry):\n"
            f"        {body}\n"
            "@hookimpl\n"
            "def command():\n"
            "    return {'bad': Bad}\n"
        )

    return write


def write_job(folder: Path) -> None:
    """A pipeline whose labels the first word tells."""
    (folder / "colours.toml").write_text(PIPELINE)
    rows = [{"text": f"{word} thing number {i}", "label": label} for i in range(25) for word, label in _WORDS.items()]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "eval.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:20]))


_WORDS = {"red": "warm", "blue": "cold"}
