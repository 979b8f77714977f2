"""What earlier starts made of the data, kept by what it was made from, so that a second start reads no text.

An entry is a file whose name has a sha256 over everything it depends on; whoever needs the same computes the same name.
It is written beside its place, synced and renamed, so it is whole or not there, and two processes that make the same
one at a time both end well. The folder is ``$RTX_CACHE``, else ``$XDG_CACHE_HOME/rtx``, else ``~/.cache/rtx``.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
import socket
import tempfile
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import psutil

from rtx_core.durable import sync_folder, write_file
from rtx_core.errors import DataError, RunError
from rtx_core.store import SampleStore, StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rtx_core.components import Data
    from rtx_core.samples import Sample

_FORMAT = 1
"""Of the entries, and of all that rtx itself does to a record on its way into one."""
_TEMPORARY = ".tmp-"
_RACY_NS = 2_000_000_000
"""A file may change once more within its time stamp's resolution and show the same stamp; git has the same rule."""
_ABANDONED_SECONDS = 7 * 24 * 3600
"""From another machine, whose processes can't be looked at, a temporary folder counts as left over after this long."""


class Encoding(Protocol):
    """Samples that can be made, and what is kept beside them."""

    def __iter__(self) -> Iterator[Sequence[Sample]]:
        """All samples in order, some at a time; begins anew each time."""
        ...

    def about(self) -> Mapping[str, Any]:
        """Plain data, complete once the samples were made."""
        ...


class _CantWriteError(Exception):
    """The place for entries is read-only, full, or fails."""


def default_folder() -> Path | None:
    """Where entries are kept unless a command says otherwise; None where there is no home to keep them in."""
    try:
        if given := os.environ.get("RTX_CACHE"):
            return Path(given).expanduser().absolute()
        if base := os.environ.get("XDG_CACHE_HOME"):
            return Path(base).expanduser().absolute() / "rtx"
        return Path.home() / ".cache" / "rtx"
    except RuntimeError:  # a user without an entry in passwd, as some containers have
        return None


def digest(value: object) -> str:
    """Sha256 of plain data; what JSON doesn't have counts as its text."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def versions() -> dict[str, str]:
    """What any entry depends on beside its own input."""
    packages = ("rtx-transformers", "tokenizers")
    return {"format": str(_FORMAT), **{name: importlib.metadata.version(name) for name in packages}}


@attrs.define(eq=False)
class Cache:
    """Entries in a folder. Without a folder nothing is kept: samples go to a temporary file that nobody else sees."""

    folder: Path | None
    _tell: Callable[[str], None]
    """Where a problem is told that costs time but no result."""
    _told: bool = attrs.field(default=False, init=False)
    _cleared: bool = attrs.field(default=False, init=False)

    # --- samples ------------------------------------------------------------------------------------------------------

    def samples(self, key: Mapping[str, Any], encoding: Encoding) -> SampleStore:
        """The store of this key: an earlier one, or one that is made now.

        :raises RunError: the disk has no room for them.
        """
        if self.folder is not None:
            entry = self._entry("samples", key, "arrow")
            if (found := self._opened(entry)) is not None:
                return found
            try:
                return self._made(entry, encoding)
            except _CantWriteError as error:
                self._complain(error)
        return _unkept(encoding)

    def _opened(self, entry: Path) -> SampleStore | None:
        try:
            there = entry.is_file()
        except OSError:  # a folder that may not be looked into; writing will say so
            return None
        try:
            return SampleStore.open(entry) if there else None
        except DataError as error:
            self._tell(f"{error}; encoding anew")
            return None

    def _made(self, entry: Path, encoding: Encoding) -> SampleStore:
        with self._staging() as folder:
            file = _written(folder, encoding)
            with _writing():
                file.replace(entry)
                sync_folder(entry.parent)
        return SampleStore.open(entry)

    # --- texts --------------------------------------------------------------------------------------------------------

    def text(self, kind: str, key: Mapping[str, Any]) -> str | None:
        """A short entry; None where there is none, or a damaged one."""
        if self.folder is None:
            return None
        entry = self._entry(kind, key, "txt")
        try:
            sha256, _, content = entry.read_bytes().partition(b"\n")
        except OSError:
            return None
        if hashlib.sha256(content).hexdigest().encode() != sha256:
            self._tell(f"{entry}: damaged; making it anew")
            return None
        return content.decode()

    def keep(self, kind: str, key: Mapping[str, Any], text: str) -> None:
        """Keep a short entry, if there is a place for it."""
        if self.folder is None:
            return
        entry = self._entry(kind, key, "txt")
        try:
            with self._staging() as folder, _writing():
                file = folder / entry.name
                content = text.encode()
                write_file(file, hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
                file.replace(entry)
                sync_folder(entry.parent)
        except _CantWriteError as error:
            self._complain(error)

    # --- fingerprints -------------------------------------------------------------------------------------------------

    def fingerprint(self, source: Data, identity: Mapping[str, Any]) -> str:
        """The fingerprint of a source, without reading its files where they are known and have not changed.

        :param identity: of the source: its component and settings.
        :raises DataError: a file is missing or can't be read.
        """
        before = stamps(source)
        if before is None:
            return source.fingerprint()
        key = {"source": identity, "files": before}
        known = self.text("fingerprint", key)
        if known is not None:
            return known
        started = time.time_ns()
        fingerprint = source.fingerprint()
        youngest = max((modified for _, _, modified, _ in before), default=0)
        if stamps(source) == before and youngest + _RACY_NS <= started:
            self.keep("fingerprint", key, fingerprint)
        return fingerprint

    # --- the folder ---------------------------------------------------------------------------------------------------

    def _entry(self, kind: str, key: Mapping[str, Any], suffix: str) -> Path:
        if self.folder is None:
            raise ValueError("a cache without a folder has no entries")
        return self.folder / f"{kind}-{digest({**versions(), **key})}.{suffix}"

    @contextmanager
    def _staging(self) -> Iterator[Path]:
        """A folder beside the entries, gone at the end."""
        if self.folder is None:
            raise ValueError("a cache without a folder has no entries")
        with _writing():
            self.folder.mkdir(parents=True, exist_ok=True)
            if not self._cleared:
                _clear_leftovers(self.folder)
                self._cleared = True
            staging = self.folder / f"{_TEMPORARY}{_host()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
            staging.mkdir()
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)  # what stays is removed by a later start

    def _complain(self, error: _CantWriteError) -> None:
        if not self._told:
            self._tell(f"the cache {self.folder} can't be written ({error}); going on without")
            self._told = True


def _written(folder: Path, encoding: Encoding) -> Path:
    """The file with all samples.

    :raises _CantWriteError: the disk is full or fails.
    """
    with _writing():
        writer = StoreWriter(folder)
    try:
        for samples in encoding:
            with _writing():
                writer.add(samples)
        with _writing():
            return writer.finish(encoding.about())
    finally:
        with _writing():
            writer.close()


def _unkept(encoding: Encoding) -> SampleStore:
    """Samples in a temporary file, which is gone with the process: its name already when this returns.

    :raises RunError: the disk is full or fails.
    """
    try:
        with _writing():
            temporary = tempfile.TemporaryDirectory(prefix="rtx-")
        with temporary as folder:
            return SampleStore.open(_written(Path(folder), encoding))
    except _CantWriteError as error:
        place = tempfile.gettempdir()
        raise RunError(f"{place}: no place for the encoded data: {error}; TMPDIR names another folder") from error


@contextmanager
def _writing() -> Iterator[None]:
    """Tell failures of the place that is written to from those of the data."""
    try:
        yield
    except OSError as error:
        raise _CantWriteError(error.strerror or str(error)) from error


def stamps(source: Data) -> list[tuple[str, int, int, int]] | None:
    """Path, size, time of change in ns and inode of each file of a source; None where they can't be told."""
    paths: Sequence[Path] | None = source.paths()
    if paths is None:
        return None
    try:
        stats = [(str(path.absolute()), path.stat()) for path in paths]
    except OSError:
        return None  # reading it will say what is wrong
    return [(path, stat.st_size, stat.st_mtime_ns, stat.st_ino) for path, stat in stats]


def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _clear_leftovers(folder: Path) -> None:
    """Remove temporary folders of processes that are gone."""
    for path in folder.glob(f"{_TEMPORARY}*"):
        host, _, rest = path.name.removeprefix(_TEMPORARY).partition("-")
        number = rest.partition("-")[0]
        if host == _host() and number.isdigit():
            abandoned = not psutil.pid_exists(int(number))
        else:
            try:
                abandoned = time.time() - path.stat().st_mtime > _ABANDONED_SECONDS
            except OSError:  # its process was quicker
                continue
        if abandoned:
            shutil.rmtree(path, ignore_errors=True)


def size_of(folder: Path) -> tuple[int, int]:
    """How many entries a folder has, and their bytes."""
    sizes = [path.stat().st_size for path in folder.glob("*-*.*") if path.is_file()] if folder.is_dir() else []
    return len(sizes), sum(sizes)
