"""Scripts as modules, and what stands in for a registry."""

import dataclasses
import hashlib
import importlib.util
import io
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"


def digest(content):
    return hashlib.sha256(content).hexdigest()


def left(folder):
    """Every file and folder below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture(name="digest")
def digest_fixture():
    """The sha256 of bytes."""
    return digest


@pytest.fixture(name="left")
def left_fixture():
    """Every file and folder below a folder."""
    return left


@pytest.fixture
def load(monkeypatch):
    """A script as a module of its own, which finds what stands beside it."""
    monkeypatch.syspath_prepend(SCRIPTS)

    def module(name):
        spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
        loaded = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, loaded)
        spec.loader.exec_module(loaded)
        return loaded

    return module


@pytest.fixture
def fetching(load):
    """What the scripts that fetch share."""
    return load("fetching")


@pytest.fixture
def offers(fetching, monkeypatch):
    """A registry: what it gives by the name of the file, and the names that were asked for."""

    class Offers(dict):
        asked: list

    offered = Offers()
    offered.asked = []

    def download(package, folder):
        offered.asked.append(package.file)
        (folder / package.file).write_bytes(offered[package.file])
        return folder / package.file

    monkeypatch.setattr(fetching, "download", download)
    return offered


@pytest.fixture
def expecting():
    """A package with the sha256 of other bytes."""
    return lambda package, content: dataclasses.replace(package, sha256=digest(content))


@pytest.fixture
def tarred():
    """The bytes of a tar archive, by names and contents."""

    def archive(contents):
        written = io.BytesIO()
        with tarfile.open(fileobj=written, mode="w:gz") as opened:
            for name, content in contents.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                opened.addfile(member, io.BytesIO(content))
        return written.getvalue()

    return archive


@pytest.fixture
def zipped():
    """The bytes of a zip archive, by names and contents."""

    def archive(contents):
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as opened:
            for name, content in contents.items():
                opened.writestr(zipfile.ZipInfo(name), content)
        return written.getvalue()

    return archive


@pytest.fixture
def command(monkeypatch, capsys):
    """Call a script as from a shell; the status and both outputs."""

    def call(script, *words):
        monkeypatch.setattr(sys, "argv", [script.__name__, *map(str, words)])
        status = script.main()
        return status, *capsys.readouterr()

    return call
