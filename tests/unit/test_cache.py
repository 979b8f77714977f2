"""The cache: an entry is made once, is whole or not there, and costs a run nothing but time."""

import errno
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import attrs
import numpy as np
import pytest

from rtx_core import cache, identity
from rtx_core.cache import Cache, default_folder, size_of
from rtx_core.components import Data
from rtx_core.errors import DataError, RunError
from rtx_core.samples import Sample
from rtx_core.store import StoreWriter


def sample(number):
    none = np.zeros(0, np.int64)
    return Sample(np.arange(number, dtype=np.int32), np.zeros(number, np.uint8), none.astype(np.int32), none)


class Made:
    """An encoding that counts how often it was made."""

    def __init__(self, *numbers, fails=None):
        self.numbers, self.fails, self.times = numbers or (1, 2, 3), fails, 0

    def __iter__(self):
        self.times += 1
        for number in self.numbers:
            yield [sample(number)]
        if self.fails:
            raise self.fails

    def about(self):
        return {"records": len(self.numbers)}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def said():
    return []


@pytest.fixture
def kept(folder, said):
    return Cache(folder, said.append)


def entries(folder):
    return sorted(path.name.partition("-")[0] for path in folder.iterdir())


# --- samples ----------------------------------------------------------------------------------------------------------


def test_an_entry_is_made_once(kept, folder, said):
    """The second time it is taken, by another process's cache too."""
    encoding = Made()
    first = kept.samples({"task": "a"}, encoding)
    again = Cache(folder, said.append).samples({"task": "a"}, encoding)
    assert encoding.times == 1
    assert first.lengths.tolist() == again.lengths.tolist() == [1, 2, 3]
    assert first.about == again.about == {"records": 3}
    assert (entries(folder), said) == (["samples"], [])


def test_another_key_is_another_entry(kept, folder):
    """Also where only a number in it differs."""
    kept.samples({"max_length": 8}, Made(1))
    assert kept.samples({"max_length": 9}, Made(2)).lengths.tolist() == [2]
    assert size_of(folder)[0] == 2


def test_other_versions_make_other_entries(kept, monkeypatch):
    """Of rtx, of the library that encodes, and of the format itself."""
    kept.samples({}, Made(1))
    for name in ("rtx-transformers", "tokenizers", "format"):
        found = cache.versions()
        monkeypatch.setattr(cache, "versions", lambda changed={**found, name: "9"}: changed)
        encoding = Made(2)
        kept.samples({}, encoding)
        assert encoding.times == 1


@pytest.mark.parametrize("damage", [b"", b"ARROW1 and no more", None])
def test_a_damaged_entry_is_made_anew(damage, kept, folder, said):
    """With one line that names it."""
    kept.samples({}, Made())
    (entry,) = folder.iterdir()
    entry.write_bytes(entry.read_bytes()[:-20] if damage is None else damage)
    encoding = Made()
    assert kept.samples({}, encoding).lengths.tolist() == [1, 2, 3]
    assert encoding.times == 1
    assert len(said) == 1
    assert said[0].startswith(f"{entry}: damaged: ")
    again = Made()
    kept.samples({}, again)
    assert again.times == 0


def test_bad_data_leave_nothing(kept, folder):
    """The error goes on as it is, and neither an entry nor a temporary folder stays."""
    with pytest.raises(DataError, match="f:3: bad"):
        kept.samples({}, Made(fails=DataError("f", 3, "bad")))
    assert list(folder.iterdir()) == []


def test_an_error_of_the_system_in_the_data_is_not_the_caches(kept, said):
    """A source that can't be read is no reason to try again without a cache."""
    encoding = Made(fails=OSError(errno.EIO, "input/output error"))
    with pytest.raises(OSError, match="input/output error"):
        kept.samples({}, encoding)
    assert (encoding.times, said) == (1, [])


def test_without_a_folder_nothing_stays(tmp_path, monkeypatch):
    """The samples are in a file that has no name any more."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = Cache(None, pytest.fail).samples({}, Made())
    assert list(tmp_path.iterdir()) == []
    assert store[2].input_ids.tolist() == [0, 1, 2]


def test_a_folder_that_cannot_be_made_is_one_warning(tmp_path, said):
    """The run goes on without a cache, whatever it asks for."""
    (tmp_path / "file").write_text("")
    kept = Cache(tmp_path / "file" / "cache", said.append)
    assert kept.samples({}, Made()).lengths.tolist() == [1, 2, 3]
    kept.keep("outputs", {}, "text")
    assert kept.text("outputs", {}) is None
    assert said == [f"the cache {tmp_path}/file/cache can't be written (Not a directory); going on without"]


def test_a_read_only_folder_still_gives_what_it_has(kept, folder, said, monkeypatch):
    """What is not there is made without it."""
    kept.samples({"n": 1}, Made(1))

    def refuse(*_arguments, **_settings):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    encoding = Made(1)
    kept.samples({"n": 1}, encoding)
    assert (encoding.times, said) == (0, [])
    assert kept.samples({"n": 2}, Made(2)).lengths.tolist() == [2]
    assert said == [f"the cache {folder} can't be written (Read-only file system); going on without"]


@pytest.mark.parametrize("method", ["add", "finish"])
def test_a_full_disk_is_one_warning(method, kept, folder, said, monkeypatch):
    """Wherever it shows; nothing stays that would keep it full, and the samples are made elsewhere."""
    original = getattr(StoreWriter, method)

    def full(writer, *arguments):
        if folder in writer._folder.parents:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(writer, *arguments)

    monkeypatch.setattr(StoreWriter, method, full)
    assert kept.samples({}, Made()).lengths.tolist() == [1, 2, 3]
    assert said == [f"the cache {folder} can't be written (No space left on device); going on without"]
    assert list(folder.iterdir()) == []


def test_no_place_at_all_is_one_line(said, monkeypatch):
    """It names the folder and what names another."""
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with pytest.raises(
        RunError, match="^/nowhere: no place for the encoded data: No such file.*; TMPDIR names another"
    ):
        Cache(None, said.append).samples({}, Made())


# --- several processes ------------------------------------------------------------------------------------------------


def test_two_that_make_the_same_entry_both_have_it(folder, said):
    """Each writes beside its place; the last to rename wins, and the other's samples stay as they are."""
    stores, together = [], threading.Barrier(4)

    class Slow(Made):
        def __iter__(self):
            for samples in super().__iter__():
                together.wait(10)
                yield samples

    def make():
        stores.append(Cache(folder, said.append).samples({}, Slow()))

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [store.lengths.tolist() for store in stores] == [[1, 2, 3]] * 4
    assert [store[2].input_ids.tolist() for store in stores] == [[0, 1, 2]] * 4
    assert (entries(folder), said) == (["samples"], [])


def leftover(folder, host, pid):
    path = folder / f".tmp-{host}-{pid}-0123abcd"
    path.mkdir(parents=True)
    (path / "input_ids").write_bytes(b"x")
    return path


def dead_process():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_a_killed_process_left_is_removed(kept, folder):
    """What one that lives is writing, or one of another machine, stays; after a week the latter goes too."""
    host = cache._host()
    gone = leftover(folder, host, dead_process())
    lives = leftover(folder, host, os.getppid())
    elsewhere = leftover(folder, "00000000", 1)
    old = leftover(folder, "00000001", 1)
    os.utime(old, (time.time() - 8 * 24 * 3600,) * 2)
    kept.samples({}, Made())
    assert [path.exists() for path in (gone, lives, elsewhere, old)] == [False, True, True, False]


def test_the_host_is_no_name_in_the_folder():
    """Only a hash of it."""
    assert socket.gethostname() not in cache._host()


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "one\ntwo\n", "ünïcode \N{LINE SEPARATOR}\r\n", "x" * 10**6])
def test_a_text_comes_back_as_it_was(text, kept):
    """Line ends and all."""
    assert kept.text("tokenizer", {}) is None
    kept.keep("tokenizer", {}, text)
    assert kept.text("tokenizer", {}) == text
    assert kept.text("outputs", {}) is None
    assert kept.text("tokenizer", {"n": 1}) is None


def test_a_damaged_text_is_none(kept, folder, said):
    """One line names it."""
    kept.keep("tokenizer", {}, "abc")
    (entry,) = folder.iterdir()
    entry.write_text(entry.read_text()[:-1])
    assert kept.text("tokenizer", {}) is None
    assert said == [f"{entry}: damaged; making it anew"]


# --- fingerprints -----------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Files(Data):
    """A source whose fingerprint is its files' content; it counts how often that was asked for."""

    names: tuple
    asked: list = attrs.field(factory=list)
    meanwhile: object = None

    def paths(self):
        return self.names

    def fingerprint(self):
        self.asked.append(1)
        text = "".join(path.read_text() for path in self.names)
        if self.meanwhile is not None:
            self.meanwhile()
        return text


@pytest.fixture
def files(tmp_path):
    """Two files of an hour ago."""
    names = (tmp_path / "a", tmp_path / "b")
    for name in names:
        name.write_text(name.name)
        age(name)
    return Files(names=names)


def age(path, seconds=3600.0):
    os.utime(path, (time.time() - seconds,) * 2)


def test_a_fingerprint_is_taken_once(files, kept):
    """While no file's size, time or inode changes."""
    assert [kept.fingerprint(files, {}) for _ in range(3)] == ["ab"] * 3
    assert len(files.asked) == 1


@pytest.mark.parametrize("change", ["size", "time", "inode", "settings"])
def test_a_changed_file_is_read_again(change, files, kept):
    """Whichever of them tells; and so are the same files with other settings."""
    kept.fingerprint(files, {})
    file, identity = files.names[0], {}
    before = file.stat()
    if change == "size":
        file.write_text("aa")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif change == "time":
        file.write_text("c")
        age(file, 1800)
    elif change == "inode":
        other = file.with_name("other")
        other.write_text("c")
        os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
        other.replace(file)
    else:
        identity = {"settings": 1}
    kept.fingerprint(files, identity)
    assert len(files.asked) == 2


@pytest.mark.parametrize("seconds", [0.0, 1.0, -60.0])
def test_a_file_that_may_still_change_is_not_trusted(seconds, files, kept, folder):
    """Within two seconds of its last change, or stamped in the future: a second change could have the same stamp."""
    age(files.names[1], seconds)
    kept.fingerprint(files, {})
    kept.fingerprint(files, {})
    assert len(files.asked) == 2
    assert not folder.exists()


def test_a_file_that_changes_while_it_is_read_is_not_trusted(files, kept):
    """Which content the fingerprint is of can't be told."""

    def change():
        files.names[0].write_text("changed")
        age(files.names[0], 1000)

    kept.fingerprint(attrs.evolve(files, meanwhile=change), {})
    age(files.names[0])
    kept.fingerprint(files, {})
    assert len(files.asked) == 2


def test_a_source_that_names_no_files_is_asked_each_time(kept, folder):
    """There is nothing to tell by whether it changed."""

    class Unknown(Files):
        def paths(self):
            return None

    source = Unknown(names=())
    kept.fingerprint(source, {})
    kept.fingerprint(source, {})
    assert len(source.asked) == 2
    assert not folder.exists()


def test_a_missing_file_is_the_sources_to_report(kept, tmp_path):
    """It has the words for it."""
    with pytest.raises(FileNotFoundError):
        kept.fingerprint(Files(names=(tmp_path / "missing",)), {})


# --- where, and whose code --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"RTX_CACHE": "/a/b", "XDG_CACHE_HOME": "/x"}, "/a/b"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/rtx"),
        ({}, "/home/someone/.cache/rtx"),
        ({"RTX_CACHE": "~/c"}, "/home/someone/c"),
    ],
)
def test_the_folder_is_where_the_environment_says(environment, folder, monkeypatch):
    """``RTX_CACHE``, else that of the system."""
    monkeypatch.setenv("HOME", "/home/someone")
    for name in ("RTX_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert default_folder() == Path(folder)


def test_without_a_home_there_is_no_folder(monkeypatch):
    """A container's user may have none; then nothing is kept."""

    def nobody():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    for name in ("RTX_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert default_folder() is None


def test_a_folder_that_may_not_be_looked_into_is_one_warning(kept, said, monkeypatch):
    """As one that can't be written."""

    def refuse(*_arguments, **_settings):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refuse)
    monkeypatch.setattr(Path, "mkdir", refuse)
    assert kept.samples({}, Made()).lengths.tolist() == [1, 2, 3]
    assert len(said) == 1


def test_the_size_is_that_of_the_entries(kept, folder):
    """Nothing where there is no folder."""
    assert size_of(folder) == (0, 0)
    kept.keep("outputs", {}, "text")
    assert size_of(folder) == (1, 64 + 1 + 4)
    shutil.rmtree(folder)
    assert size_of(folder) == (0, 0)


def test_an_edited_plugin_makes_other_entries(tmp_path, monkeypatch):
    """Its version stays the same while its author tries things: the code of its package and of its bases counts."""
    package = tmp_path / "acme_task"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helpers.py").write_text("SIZE = 1\n")
    (package / "task.py").write_text("class Mine:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    from acme_task.task import Mine

    class Theirs(Mine):
        pass

    before, of_subclass = identity.code_of(Mine), identity.code_of(Theirs)
    assert identity.code_of(Mine) == before
    (package / "helpers.py").write_text("SIZE = 2\n")
    assert identity.code_of(Mine) != before
    assert identity.code_of(Theirs) != of_subclass
