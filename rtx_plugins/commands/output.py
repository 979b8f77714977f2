"""Answered rows in a file: JSON lines, CSV and TSV, packed or not, and Parquet."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import os
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rtx_core import InputError
from rtx_core.errors import RunError
from rtx_core.folder import replacing, strict_json
from rtx_plugins.data.common import PACKED, unpacked_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from rtx_plugins.commands.answered import Answered

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_LINES = (".jsonl", ".ndjson")
_PARQUET = ".parquet"
_ENDINGS = (*_DELIMITERS, *_LINES, _PARQUET)
_ROW_GROUP = 8192
"""Rows of a Parquet file that are in memory together."""


def refuse_output(path: Path, source: Path | None) -> None:
    """Say before the work why a file can't be written.

    :param source: the file that is read.
    :raises InputError: its format isn't known, it is a folder, in none, or the input.
    """
    ending = Path(unpacked_name(path)).suffix
    packed = path.suffix.lower() in PACKED
    if ending not in _ENDINGS or (packed and ending == _PARQUET):
        text = ", ".join(ending for ending in _ENDINGS if ending != _PARQUET)
        raise InputError(
            f"{path}: the name must end in one of {text} (also with .gz or .zst) or {_PARQUET}, so that its format is "
            "known"
        )
    if path.is_dir():
        raise InputError(f"{path}: is a folder, not a file")
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}")
    if source is not None and path.exists() and source.exists() and path.samefile(source):
        raise InputError(f"{path}: is the input too; write the answers to another file")


def write_file(answered: Answered, path: Path) -> None:
    """Write all rows, or leave what was there.

    :raises RunError: the file can't be written, or a row has no place in it.
    """
    ending = Path(unpacked_name(path)).suffix
    with replacing(path) as file:
        if ending == _PARQUET:
            _write_parquet(answered, file)
            return
        with _packed(file, path.suffix.lower()) as stream:
            if ending in _DELIMITERS:
                _write_table(answered, stream, _DELIMITERS[ending])
            else:
                for row in answered.rows():
                    stream.write(f"{line(row)}\n".encode())


def line(row: Mapping[str, Any]) -> str:
    """Strict JSON: a table has values that JSON lacks; a date or a decimal becomes its text, NaN and infinity null."""
    return strict_json(row, other=str)


@contextmanager
def _packed(file: IO[bytes], suffix: str) -> Iterator[IO[bytes]]:
    """What packs bytes on their way into a file, by the ending of its name."""
    if suffix == ".gz":
        # Without a name and a time in it the same rows are the same bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packing:
            yield packing  # type: ignore[misc]
    elif suffix == ".zst":
        import pyarrow as pa

        # Arrow closes what it wrote to, and the file is still to be synced.
        with os.fdopen(os.dup(file.fileno()), "wb") as own, pa.CompressedOutputStream(own, "zstd") as packing:
            yield packing
    else:
        yield file


# --- tables -----------------------------------------------------------------------------------------------------------


def _write_table(answered: Answered, stream: IO[bytes], delimiter: str) -> None:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    header = answered.header()
    rows = ([_cell(row.get(name)) for name in header] for row in answered.table_rows())
    for fields in itertools.chain([header], rows):
        writer.writerow(fields)
        stream.write(text.getvalue().encode())
        text.seek(0)
        text.truncate()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else strict_json(value, other=str)


def _write_parquet(answered: Answered, file: IO[bytes]) -> None:
    """Row groups of one schema: that of the records that are known beforehand, and of the first answers.

    :raises InputError: these have no schema.
    :raises RunError: a later row doesn't fit it.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    types, rows = _input_types(answered), answered.table_rows()
    chunk = list(itertools.islice(rows, _ROW_GROUP))
    for name, value in answered.added().items():
        # The example alone may be an answer like null or an empty list, which has no type.
        types[name] = _type_of([value, *(row.get(name) for row in chunk)], name)
    schema = pa.schema([(name, _without_null(kind)) for name, kind in types.items()])
    try:
        with pq.ParquetWriter(file, schema) as writer:
            while chunk:
                columns = [_column([row.get(field.name) for row in chunk], field) for field in schema]
                writer.write_table(pa.table(columns, schema=schema))
                chunk = list(itertools.islice(rows, _ROW_GROUP))
    except pa.ArrowNotImplementedError as error:
        raise RunError(f"Parquet can't hold this: {_on_one_line(error)}; write JSON lines") from error


def _input_types(answered: Answered) -> dict[str, pa.DataType]:
    """The type of each column of the known records.

    :raises InputError: a column has values of several types.
    """
    import pyarrow as pa

    types: dict[str, pa.DataType] = {name: pa.null() for name in answered.columns}
    known = iter(answered.known())
    while chunk := list(itertools.islice(known, _ROW_GROUP)):
        for name, before in types.items():
            here = _type_of([record.values.get(name) for record in chunk], name)
            types[name] = before if here == before else _common(before, here, name)
    return types


def _type_of(values: list[Any], name: str) -> pa.DataType:
    import pyarrow as pa

    try:
        return pa.array(values).type  # unlike infer_type it looks whether all values fit
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise InputError(_mixed(name, error)) from error


def _common(one: pa.DataType, other: pa.DataType, name: str) -> pa.DataType:
    import pyarrow as pa

    schemas = [pa.schema([(name, one)]), pa.schema([(name, other)])]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException as error:
        raise InputError(_mixed(name, error)) from error


def _column(values: list[Any], field: pa.Field) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise RunError(_mixed(field.name, error)) from error


def _mixed(name: str, error: BaseException) -> str:
    return f'the column "{name}" has no one type, as Parquet needs it ({_on_one_line(error)}); write JSON lines'


def _on_one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _without_null(kind: pa.DataType) -> pa.DataType:
    """Text in place of the type of which nothing is known but that there are no values, also inside lists."""
    import pyarrow as pa

    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_without_null(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _without_null(field.type)) for field in kind])
    return kind
