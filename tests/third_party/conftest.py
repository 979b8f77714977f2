"""Packages from outside, installed by pip into a folder of their own, and commands that see them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import attrs
import pytest


@attrs.frozen
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str


SEVERAL_COMMANDS = """
import contextlib, io, json, sys
from rtx_core.cli import main
answers = []
for arguments in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(arguments)
    answers.append([status, out.getvalue(), err.getvalue()])
print(json.dumps(answers))
"""


@pytest.fixture(scope="session")
def pip_install(tmp_path_factory):
    """Install a package's folder without a network: ``pip_install(folder)`` is where it is, and nothing else."""

    def install(package):
        source = tmp_path_factory.mktemp("source") / package.name
        shutil.copytree(package, source)  # setuptools leaves files beside what it builds
        target = tmp_path_factory.mktemp("site")
        offline = ["--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check", "--quiet"]
        subprocess.run(
            [sys.executable, "-m", "pip", "install", *offline, "--target", str(target), str(source)],
            check=True,
            capture_output=True,
        )
        return target

    return install


@pytest.fixture(scope="session")
def environment():
    """The variables of a process for which a folder of installed packages is on the path, or none."""

    def make(path=None):
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return variables if path is None else variables | {"PYTHONPATH": str(path)}

    return make


@pytest.fixture(scope="session")
def in_one_process(environment):
    """The outcome of each command, by name; all in one fresh process, since each would import torch anew."""

    def run(commands, *, folder, path=None):
        done = subprocess.run(
            [sys.executable, "-c", SEVERAL_COMMANDS],
            input=json.dumps(list(commands.values())),
            cwd=folder,
            env=environment(path),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return {name: Done(*answer) for name, answer in zip(commands, json.loads(done.stdout), strict=True)}

    return run
