"""``scripts/fetching.py``: what pip and npm say becomes one line, and what they run is known beforehand."""

import os

import pytest

INFO = "tiny_rtx_data-1.0.dist-info"
WHEEL = {
    f"{INFO}/METADATA": b"Metadata-Version: 2.1\nName: tiny-rtx-data\nVersion: 1.0\n",
    f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{INFO}/RECORD": b"",
}
"""A package for pip, without code."""
SETUP = """\
open({trace!r}, "w").write("run")
from setuptools import setup
setup(name="tiny-rtx-data", version="1.0")
"""


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """A folder from which pip takes packages, instead of from a registry."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def package(fetching, file, content):
    """What is expected of a package for pip."""
    return fetching.Package(requirement="tiny-rtx-data==1.0", file=file, sha256=content, size="1 kB")


def test_pip_gives_the_file(fetching, offline, zipped, digest, tmp_path):
    """Under its name, into the cache, with its content, and nothing else is left there."""
    file = offline / "tiny_rtx_data-1.0-py3-none-any.whl"
    file.write_bytes(zipped(WHEEL))
    wanted = package(fetching, file.name, digest(file.read_bytes()))
    assert fetching.archive_in(tmp_path / "cache", wanted).read_bytes() == file.read_bytes()
    assert list((tmp_path / "cache").iterdir()) == [tmp_path / "cache" / file.name]


def test_pip_without_a_registry_is_one_line(fetching, offline, tmp_path):
    """What pip says at the end, and the question that helps."""
    with pytest.raises(fetching.FetchError, match=r"pip can't download .*==.*No matching distribution.*registry\?$"):
        fetching.download(package(fetching, "tiny_rtx_data-1.0-py3-none-any.whl", "0" * 64), tmp_path)


def test_a_source_distribution_with_another_hash_is_not_run(fetching, offline, tarred, tmp_path):
    """Pip runs the setup.py of such a package, so it has to compare the hash before."""
    trace = tmp_path / "trace"
    contents = {"setup.py": SETUP.format(trace=str(trace)).encode(), "PKG-INFO": WHEEL[f"{INFO}/METADATA"]}
    archive = tarred({f"tiny-rtx-data-1.0/{name}": content for name, content in contents.items()})
    (offline / "tiny-rtx-data-1.0.tar.gz").write_bytes(archive)
    with pytest.raises(fetching.FetchError, match="the registry gave another file than tiny-rtx-data-1.0.tar.gz"):
        fetching.download(package(fetching, "tiny-rtx-data-1.0.tar.gz", "0" * 64), tmp_path)
    assert not trace.exists()


def test_npm_that_is_not_there_is_one_line(fetching, tmp_path, monkeypatch):
    """The program's name, since people with Python need not have it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    wanted = fetching.Package(requirement="tiny@1.0.0", file="tiny-1.0.0.tgz", sha256="0" * 64, size="1 kB")
    with pytest.raises(fetching.FetchError, match=r"^tiny@1\.0\.0 is fetched with npm, which is not installed$"):
        fetching.download(wanted, tmp_path)


def test_what_npm_says_is_one_line(fetching, tmp_path, monkeypatch):
    """The last line of what it wrote on stderr."""
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho 'npm error code E404' >&2\necho 'npm error 404 tiny is not here' >&2\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    wanted = fetching.Package(requirement="tiny@1.0.0", file="tiny-1.0.0.tgz", sha256="0" * 64, size="1 kB")
    with pytest.raises(
        fetching.FetchError, match=r"^npm can't download tiny@1\.0\.0: 404 tiny is not here; can it reach"
    ):
        fetching.download(wanted, tmp_path)


@pytest.mark.parametrize("name", ["default", "set"])
def test_the_cache_is_where_programs_keep_theirs(fetching, monkeypatch, tmp_path, name):
    """XDG_CACHE_HOME where it is set, else .cache in the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    expected = tmp_path / ".cache" / "rtx"
    if name == "set":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
        expected = tmp_path / "other" / "rtx"
    assert fetching.default_cache() == expected
