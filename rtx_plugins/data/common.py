r"""What the readers of files share: which files are meant, their lines, their columns, their fingerprint.

A line ends at ``\n`` and nowhere else: U+2028, U+0085 and form feeds are content, which ``str.splitlines`` would lose.
"""

from __future__ import annotations

import codecs
import glob
import gzip
import hashlib
import io
import itertools
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from rtx_core import Data, DataError, InputPath, Record

Row = tuple[int, Mapping[str, Any]]
"""The line on which a record begins, and its columns as the file names them."""


@attrs.frozen(kw_only=True)
class FileData(Data):
    """Records out of files. Text is UTF-8, with or without a byte order mark, packed where the name ends in ``.gz`` or
    ``.zst``.
    """

    files: tuple[InputPath, ...] = attrs.field(validator=attrs.validators.min_len(1))
    """Files, or patterns like ``"corpus/**/*.txt"``, read in this order; the files that a pattern matches are read in
    the order of their names. One that is named twice is read once."""
    limit: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(1)))
    """Read no more than this many records; None reads all."""
    rename: Mapping[str, str] = attrs.field(factory=dict)
    """Columns under other names: ``{ review = "text" }`` gives the column ``review`` as ``text``."""

    def check(self) -> Iterable[tuple[str, str]]:
        """Two columns can't get one name."""
        for name, count in Counter(self.rename.values()).items():
            if count > 1:
                yield "rename", f'{count} columns are renamed to "{name}"'

    def rows(self, file: Path) -> Iterator[Row]:
        """Read one file.

        :raises DataError: it can't be read or is malformed.
        """
        raise NotImplementedError

    def records(self) -> Iterator[Record]:
        """The rows of all files; a file without any is an error, since nobody means to train on nothing."""
        rows = (record for file in self.paths() for record in self._records_of(file))
        return itertools.islice(rows, self.limit)

    def fingerprint(self) -> str:
        """Sha256 of the sha256 of each file's content: the same wherever the files lie, packed or not."""
        return fingerprint_of(self.paths())

    def paths(self) -> tuple[Path, ...]:
        """The files that ``files`` means.

        :raises DataError: a pattern matches nothing, or a folder is named.
        """
        return tuple(dict.fromkeys(path for pattern in self.files for path in matches(pattern)))

    def shards(self) -> tuple[Data, ...]:
        """Each file by itself."""
        return tuple(attrs.evolve(self, files=(InputPath(file),)) for file in self.paths())

    def _records_of(self, file: Path) -> Iterator[Record]:
        columns: dict[str, None] = {}
        found = False
        for line, values in self.rows(file):
            found = True
            columns.update(dict.fromkeys(values))
            yield Record(self._renamed(values, file, line), str(file), line)
        if not found:
            raise DataError(file, None, "no records in this file")
        for name in self.rename:
            if name not in columns:
                raise DataError(file, None, f'no column "{name}" to rename; there are {quoted(columns)}')

    def _renamed(self, values: Mapping[str, Any], file: Path, line: int) -> Mapping[str, Any]:
        if not self.rename:
            return values
        renamed = {self.rename.get(name, name): value for name, value in values.items()}
        if len(renamed) < len(values):
            taken = [new for old, new in self.rename.items() if old in values and new in values]
            raise DataError(file, line, f"rename: the record has {quoted(taken)} already")
        return renamed


def matches(pattern: Path) -> list[Path]:
    """The file of this name, or else the files that match it as a pattern, sorted.

    :raises DataError: nothing matches, or a folder has this name.
    """
    if pattern.is_dir():
        raise DataError(pattern, None, f'this is a folder; name the files in it, as "{pattern.name}/*"')
    if pattern.exists() or glob.escape(str(pattern)) == str(pattern):
        return [pattern]
    # Only what is not there by name is a pattern: the folder of the pipeline may itself be called "[old]".
    base = next(parent for parent in pattern.parents if parent.is_dir())
    names = glob.glob(str(pattern.relative_to(base)), root_dir=base, recursive=True)  # noqa: PTH207 - Path.glob takes hidden files
    found = sorted(path for name in names if (path := base / name).is_file())
    if not found:
        raise DataError(pattern, None, "no file matches this pattern")
    return found


def fingerprint_of(files: Iterable[Path]) -> str:
    """Sha256 of the sha256 of each file's unpacked content.

    :raises DataError: one can't be read.
    """
    total = hashlib.sha256()
    for file in files:
        with opened(file) as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()


PACKED = (".gz", ".zst")
"""Endings of names of files that are unpacked as they are read."""


@contextmanager
def opened(file: Path) -> Iterator[io.BufferedIOBase]:
    """The file's bytes, unpacked where its name ends in ``.gz`` or ``.zst``.

    :raises DataError: it can't be opened, read or unpacked.
    """
    try:
        with file.open("rb") as stream, _unpacked(stream, file.suffix.lower()) as content:
            yield content
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(file, None, f"can't be read: {getattr(error, 'strerror', None) or error}") from error


def _unpacked(stream: io.BufferedReader, suffix: str) -> io.BufferedIOBase:
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=stream)
    if suffix == ".zst":
        import pyarrow as pa

        return io.BufferedReader(pa.CompressedInputStream(stream, "zstd"))
    return stream


def unpacked_name(file: Path) -> str:
    """The file's name in lower case, without the ending of a packed one."""
    name = file.name.lower()
    return next((name.removesuffix(ending) for ending in PACKED if name.endswith(ending)), name)


def lines(file: Path) -> Iterator[tuple[int, str]]:
    r"""Each line with its number from 1, without its ``\n`` or ``\r\n``; a byte order mark is dropped.

    :raises DataError: the file can't be read, or is not UTF-8 text.
    """
    offset = 0
    with opened(file) as stream:
        for number, raw in enumerate(stream, start=1):
            if number == 1:
                _refuse_utf_16(raw, file)
                _refuse_lone_returns(raw, file)
            yield number, _decoded(raw, offset, file, number)
            offset += len(raw)


def one_character(_part: object, _field: attrs.Attribute[str], value: str) -> None:
    """A validator: one character that is neither a line's end nor NUL.

    :raises ValueError: it is something else.
    """
    if len(value) != 1 or value in "\0\r\n":
        raise ValueError(f"must be one character, and no line's end, got {json.dumps(value, ensure_ascii=False)}")


def quoted(names: Iterable[str]) -> str:
    """Names for an error's text: ``"a", "b"``."""
    return ", ".join(f'"{name}"' for name in names) or "none"


def _refuse_utf_16(start: bytes, file: Path) -> None:
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(file, None, "the file is UTF-16 or UTF-32; save it as UTF-8")


def _refuse_lone_returns(start: bytes, file: Path) -> None:
    r"""A file without a line feed but with carriage returns within is many lines to its author, and one to us."""
    if not start.endswith(b"\n") and b"\r" in start.rstrip(b"\r"):
        raise DataError(file, None, r"lines end in \r alone, as on old Macs; end them with \n or \r\n")


def _decoded(raw: bytes, offset: int, file: Path, line: int) -> str:
    """One line's text; ``offset`` is where it begins in the file, in bytes."""
    if (nul := raw.find(b"\0")) >= 0:
        raise DataError(file, line, f"a NUL byte at byte {offset + nul}: this is not UTF-8 text")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        place = f"byte 0x{raw[error.start]:02x} at byte {offset + error.start}"
        raise DataError(file, line, f"{place} is not UTF-8; save the file as UTF-8") from error
    if line == 1:
        text = text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")
    return text.removesuffix("\n").removesuffix("\r")
