"""The run's folder: the name of everything in it, who may write into it, and writing that is never half done."""

from __future__ import annotations

import errno
import fcntl
import glob
import json
import math
import os
import shutil
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Self

import attrs
import tomli

from rtx_core.checkpoint import clear_leftovers, delete, is_leftover, listing, remove
from rtx_core.durable import sync_folder
from rtx_core.errors import InputError, RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

Way = Literal["start", "resume", "overwrite", "new"]
"""How a run begins: the plain start, or what ``--resume``, ``--overwrite`` and ``--new`` ask for."""

_WRITTEN = (
    *("pipeline.toml", "resolved.toml", "metrics.jsonl", "log.txt", "report.html"),
    *("checkpoints", "tokenizer", "plugins", "model"),
)
"""What rtx writes besides run.json, and so all that it may delete."""

_LOCK = ".lock"

_FINISHED = ("finished", "stopped_early")

_LOCKED = (errno.EACCES, errno.EAGAIN)
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)


@attrs.define(eq=False)
class RunFolder:
    """One run's folder. :meth:`claim` gives one to write into; to read, ``RunFolder(path)`` is enough."""

    path: Path
    _lock: IO[bytes] | None = attrs.field(default=None, init=False, repr=False)

    @property
    def pipeline(self) -> Path:
        """The pipeline as it was given."""
        return self.path / "pipeline.toml"

    @property
    def resolved(self) -> Path:
        """Every value that is used."""
        return self.path / "resolved.toml"

    @property
    def record(self) -> Path:
        """What ran, on what, and how it ended."""
        return self.path / "run.json"

    @property
    def metrics(self) -> Path:
        """One JSON object a line: logged steps and evaluations."""
        return self.path / "metrics.jsonl"

    @property
    def log(self) -> Path:
        """What the console said."""
        return self.path / "log.txt"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def tokenizer(self) -> Path:
        """The folder of the run's tokenizer; a resume reads it instead of training again."""
        return self.path / "tokenizer"

    @property
    def plugins(self) -> Path:
        """The folder with copies of the ``--plugin`` files."""
        return self.path / "plugins"

    @property
    def model(self) -> Path:
        """The kept model in Hugging Face layout."""
        return self.path / "model"

    # --- who may write ------------------------------------------------------------------------------------------------

    @classmethod
    def claim(cls, path: Path, way: Way = "start") -> Self:
        """Take a folder for a run and hold it until :meth:`release`, or until the process ends, however it ends.

        Afterwards the folder is either that of a run with checkpoints to resume from, or holds a run.json with
        ``status: running`` and nothing else of rtx's: what a start that failed early left is deleted, and so is
        everything that rtx wrote for ``overwrite``. Files that rtx didn't write stay where they are. ``new`` takes
        ``path`` if it is free, else ``path-2``, ``path-3``, …

        :raises InputError: it holds a run that would be lost, or files of somebody else's, or another process trains
            into it; nothing was changed.
        """
        folder = cls(_next_free(path) if way == "new" else path)
        folder._refuse(way)
        with _explained(folder.path, InputError):
            folder.path.mkdir(parents=True, exist_ok=True)
            folder._take_lock()
        try:
            folder._refuse(way)  # again: another process may have come and gone before the lock
            with _explained(folder.path, RunError):
                folder._make_ready(afresh=way != "resume" or not listing(folder.checkpoints))
        except BaseException:
            folder.release()
            raise
        return folder

    @classmethod
    def refuse(cls, path: Path, way: Way) -> None:
        """Raise what :meth:`claim` would raise of a folder as it is now, without touching it.

        :raises InputError: it holds a run that would be lost, or files of somebody else's.
        """
        if way != "new":
            cls(path)._refuse(way)  # noqa: SLF001 - its own class

    def release(self) -> None:
        """Let other processes take the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def _refuse(self, way: Way) -> None:
        """Raise where beginning in this way would destroy something."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file, not a folder; choose another folder with --output")
        saved = listing(self.checkpoints)
        if self._has_content() and not self.record.is_file() and not (saved and way == "resume"):
            raise InputError(
                f"{self.path} is not empty and has no run.json, so it is no run's folder and rtx leaves it alone; "
                "choose another folder with --output"
            )
        if way == "overwrite" or (way == "resume" and saved):
            return
        finished = self.model.exists() or self.read_record().get("status") in _FINISHED
        if way == "resume" and finished:
            raise InputError(
                f"{self.path} holds a finished run and no checkpoint to resume from; replace it with --overwrite, "
                "or start beside it with --new"
            )
        if saved or finished:
            holds = f"a run with the checkpoint {saved[-1].folder.name}" if saved else "a finished run"
            raise InputError(
                f"{self.path} holds {holds}; go on with it (--resume), replace it (--overwrite), "
                "or start beside it (--new)"
            )

    def _has_content(self) -> bool:
        """Whether there is anything but what a claim that was cut off leaves behind."""
        if not self.path.is_dir():
            return False
        return any(path.name != _LOCK and not is_leftover(path) for path in self.path.iterdir())

    def _take_lock(self) -> None:
        # A POSIX lock: the system drops it with the process, also after kill -9, and forked workers don't inherit it.
        file = (self.path / _LOCK).open("a+b")
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _LOCKED:
                file.seek(0)
                holder = file.read().decode("ascii", "replace").strip()
                file.close()
                raise InputError(
                    f"process {holder or '(unknown)'} trains into {self.path} at this moment; wait for it, stop it, "
                    "or choose another folder with --output or --new"
                ) from error
            if error.errno not in _NO_LOCKS:  # some cluster file systems have none; a run there is still worth having
                file.close()
                raise
        file.truncate(0)
        file.write(str(os.getpid()).encode())
        file.flush()
        self._lock = file

    def _make_ready(self, *, afresh: bool) -> None:
        clear_leftovers(self.path)
        if not afresh:
            clear_leftovers(self.checkpoints)
            return
        for name in _WRITTEN:
            delete(self.path / name)
        # run.json goes last: without it a folder that was emptied by half would belong to nobody.
        write_text_atomically(self.record, strict_json({"status": "running"}, indent=2) + "\n")

    # --- what is in it ------------------------------------------------------------------------------------------------

    def read_record(self) -> dict[str, Any]:
        """The content of run.json; empty where there is none.

        :raises InputError: it is damaged.
        """
        try:
            record = json.loads(self.record.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError) as error:
            raise InputError(f"{self.record} can't be read: {error}; move it away and try again") from error
        if not isinstance(record, dict):
            raise InputError(f"{self.record} holds no JSON object; move it away and try again")
        return record

    def write_record(self, entries: Mapping[str, Any]) -> None:
        """Put entries into run.json; the others stay, an entry of the same name is replaced whole.

        :raises RunError: it can't be written; the former content is untouched.
        """
        record = {**self.read_record(), **entries}
        write_text_atomically(self.record, strict_json(record, indent=2) + "\n")

    def read_resolved(self) -> dict[str, Any]:
        """Every setting that the run used.

        :raises InputError: resolved.toml is missing or damaged.
        """
        try:
            return tomli.loads(self.resolved.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{self.resolved} can't be read: {error}") from error

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows of metrics.jsonl, but for a last one that is still being written; none without the file.

        :raises InputError: a line in the file is no row.
        """
        if not self.metrics.exists():
            return
        with self.metrics.open("rb") as rows:
            for number, line in enumerate(rows, start=1):
                if line.endswith(b"\n"):
                    yield self._row(line, number)

    def cut_metrics(self, step: int) -> None:
        """Cut metrics.jsonl back to a checkpoint: later rows go, and a last line that was torn by a kill.

        Rows of the test set go too: it is read at the end of the run, so a run that goes on reads it again.

        :raises InputError: a line in the file is no row.
        :raises RunError: the file can't be replaced; it is as it was.
        """
        if not self.metrics.exists():
            return
        with replacing(self.metrics) as kept, self.metrics.open("rb") as rows:
            for number, line in enumerate(rows, start=1):
                if not line.endswith(b"\n"):
                    continue
                row = self._row(line, number)
                if row["step"] <= step and not any(name.startswith("test/") for name in row):
                    kept.write(line)

    def _row(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            raise InputError(f"{self.metrics}:{number}: this line is no row of metrics; delete it")
        return row


# --- writing ----------------------------------------------------------------------------------------------------------


def commits_of(path: Path) -> dict[str, str]:
    """The commit of each ``hub:`` source, by source as it was written, from which a run or a series of runs started.

    :param path: the folder of the run; of a series what stands before ``-seed-17`` or ``-fold-1`` in those of its runs.
    :raises InputError: run.json is damaged.
    """
    series = (folder for over in ("seed", "fold") for folder in path.parent.glob(f"{glob.escape(path.name)}-{over}-*"))
    for folder in (path,) if path.exists() else sorted(series):
        run = RunFolder(folder)
        commits = run.read_record().get("commits", {})
        if not isinstance(commits, dict) or not all(isinstance(commit, str) for commit in commits.values()):
            raise InputError(f"{run.record}: commits: expected a text for each source, got {commits!r}")
        if commits:
            return commits
    return {}


def write_text_atomically(path: Path, text: str) -> None:
    """Replace a file as a whole, durably: a reader, or a machine that loses power, sees the old text or the new one.

    :raises RunError: the disk is full or fails; the file is as it was.
    """
    with replacing(path) as file:
        file.write(text.encode())


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of ``path`` when the block ends well, and is gone otherwise.

    :raises RunError: the disk is full or fails; the file is as it was.
    """
    temporary = path.with_name(f".tmp-{path.name}-{uuid.uuid4().hex[:8]}")
    with _explained(path, RunError):
        try:
            with temporary.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


@contextmanager
def new_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """A folder beside ``path`` that gets its name, durably, when the block ends well, and is gone otherwise.

    :param replace: take the place of a folder that is there; False: only of an empty one.
    :raises RunError: the disk is full or fails; what was there is as it was.
    """
    temporary = path.with_name(f".tmp-{path.name}-{uuid.uuid4().hex[:8]}")
    with _explained(path, RunError):
        temporary.mkdir(parents=True)
        try:
            yield temporary
            sync_folder(temporary)
            if replace:
                remove(path)
            temporary.rename(path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync_folder(path.parent)


_COMPACT = json.JSONEncoder(allow_nan=False, ensure_ascii=False)


def strict_json(value: Any, *, indent: int | None = None, other: Callable[[Any], Any] | None = None) -> str:
    """JSON that any reader accepts: NaN and infinities, which it has no word for, become null.

    :param other: what to write for a value that JSON lacks, as ``str`` for the dates of a table; None refuses it.
    """
    # json.dumps makes an encoder for each call; a row of metrics is written in every step.
    encoder = _COMPACT
    if indent is not None or other is not None:
        encoder = json.JSONEncoder(allow_nan=False, ensure_ascii=False, indent=indent, default=other)
    try:
        text = encoder.encode(value)
    except ValueError:
        text = encoder.encode(_finite(value))
    # Half a surrogate pair (a file name that is not UTF-8 holds such) is legal in JSON only as an escape.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


@contextmanager
def _explained(path: Path, kind: type[InputError | RunError]) -> Iterator[None]:
    """Turn a failure of the disk into one line of the given class."""
    try:
        yield
    except OSError as error:
        raise kind(f"{path} can't be written: {error.strerror or error}") from error


def _next_free(path: Path) -> Path:
    """Create and return the first of ``path``, ``path-2``, … that doesn't exist; two processes never get the same."""
    candidate, number = path, 1
    with _explained(path, InputError):
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                candidate.mkdir()
            except FileExistsError:
                number += 1
                candidate = path.with_name(f"{path.name}-{number}")
            else:
                return candidate
