"""Parquet and Arrow: what pyarrow wrote is read back row by row, and damage is one error."""

import datetime as dt
import importlib.util
import io
import itertools
import tracemalloc
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rtx_core import DataError
from rtx_plugins.data.arrow import Arrow
from rtx_plugins.data.parquet import Parquet


def parquet(table, **options):
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


def arrow_file(table, **options):
    out = io.BytesIO()
    with pa.ipc.new_file(out, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return out.getvalue()


def arrow_stream(table, **options):
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return out.getvalue()


FORMATS = [(Parquet, parquet), (Arrow, arrow_file), (Arrow, arrow_stream)]
formats = pytest.mark.parametrize(("component", "written"), FORMATS, ids=["parquet", "file", "stream"])


def read(component, file, **settings):
    """Line and values of each record."""
    return [(record.line, record.values) for record in component(files=(file,), **settings).records()]


def column(*values, kind=None):
    """A table with one column."""
    return pa.table({"a": pa.array(values, kind)})


@formats
@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (column("x", None, "", "NA"), ["x", None, "", "NA"]),
        (column("a\u2028b\0c", "😀 שלום", kind=pa.large_string()), ["a\u2028b\0c", "😀 שלום"]),
        (column(["a", "b"], [], None), [["a", "b"], [], None]),
        (column([[1], [2, 3]], [[]]), [[[1], [2, 3]], [[]]]),
        (column([0.5, 1.5], kind=pa.list_(pa.float32(), 2)), [[0.5, 1.5]]),
        (column({"x": 1, "y": [{"z": None}]}), [{"x": 1, "y": [{"z": None}]}]),
        (column([("k", 1), ("l", None)], kind=pa.map_(pa.string(), pa.int64())), [{"k": 1, "l": None}]),
        (pa.table({"a": pa.array(["x", "y", "x"]).dictionary_encode()}), ["x", "y", "x"]),
        (column(*[True, False, None]), [True, False, None]),
        (column(-(2**63), 2**63 - 1), [-(2**63), 2**63 - 1]),
        (column(1.5, float("inf")), [1.5, float("inf")]),
        (column(b"\xff\0"), [b"\xff\0"]),
        (column(Decimal("1.50")), [Decimal("1.50")]),
        (column(dt.date(2020, 2, 29)), [dt.date(2020, 2, 29)]),
        (column(None, None), [None, None]),
    ],
)
def test_values_come_back_as_pythons_own(write, component, written, table, expected):
    """Text, numbers, lists in lists, structs and maps are what they were when written; rows count from 1."""
    file = write("a", written(table))
    assert read(component, file) == [(line, {"a": value}) for line, value in enumerate(expected, start=1)]


@formats
def test_rows_are_counted_over_batches(write, component, written):
    """A file of many batches or row groups is read in order, and a record's line is its row in the file."""
    chunks = [pa.record_batch({"a": list(range(start, min(start + 700, 3000)))}) for start in range(0, 3000, 700)]
    file = write("a", written(pa.Table.from_batches(chunks)))
    assert read(component, file) == [(i + 1, {"a": i}) for i in range(3000)]


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
def test_parquet_may_be_compressed_inside(write, compression):
    """Each codec that tools write, with small row groups and pages."""
    content = parquet(column(*map(str, range(300))), compression=compression, row_group_size=70, data_page_size=64)
    assert [values["a"] for _, values in read(Parquet, write("a.parquet", content))] == [str(i) for i in range(300)]


@pytest.mark.parametrize("written", [arrow_file, arrow_stream])
@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_arrow_may_be_compressed_inside(write, written, compression):
    """Both codecs of the format."""
    file = write("a.arrow", written(column(*map(str, range(300))), compression=compression))
    assert [values["a"] for _, values in read(Arrow, file)] == [str(i) for i in range(300)]


@formats
def test_columns_can_be_chosen_and_renamed(write, component, written):
    """Only ``columns`` are read, and ``rename`` and ``limit`` are those of every reader."""
    file = write("a", written(pa.table({"body": ["x", "y", "z"], "n": [1, 2, 3], "a.b": [4, 5, 6]})))
    settings = {"columns": ("a.b", "body"), "rename": {"body": "text"}, "limit": 2}
    assert read(component, file, **settings) == [(1, {"a.b": 4, "text": "x"}), (2, {"a.b": 5, "text": "y"})]


def test_what_is_renamed_is_read(tmp_path):
    """A column that ``columns`` leaves out can't be renamed; the field is named before any file is read."""
    data = Parquet(files=(tmp_path,), columns=("a",), rename={"a": "x", "b": "y"})
    assert list(data.check()) == [("rename", '"b" is not among columns')]
    assert list(Parquet(files=(tmp_path,), rename={"b": "y"}).check()) == []


# --- what is refused --------------------------------------------------------------------------------------------------


NOT_UTF_8 = pa.StringArray.from_buffers(
    3, pa.array([0, 1, 2, 3], pa.int32()).buffers()[1], pa.py_buffer(b"a\xffc")
)  # Arrow doesn't look at what it is given


@formats
@pytest.mark.parametrize(
    ("table", "settings", "message"),
    [
        (column(kind=pa.string()), {}, "a: no records in this file"),
        (pa.table({}), {}, "a: no records in this file"),
        (column(1), {"columns": ("b", "c")}, 'a: no column "b", "c"; there are "a"'),
        (pa.table([[1], [2]], names=["a", "a"]), {}, 'a: the table has the column "a" more than once'),
        (pa.table({"a": NOT_UTF_8}), {}, "a:2: can't be read: "),
        (
            column([("k", 1)], [("k", 1), ("k", 2)], kind=pa.map_(pa.string(), pa.int64())),
            {},
            "a:2: can't be read: ",
        ),
        (pa.table({"a": pa.array([0, 1001], pa.timestamp("ns"))}), {}, "a:2: can't be read: Nanosecond resolution "),
    ],
)
def test_awkward_tables_are_refused(write, complaint, component, written, table, settings, message):
    """What has no rows, no such column or no meaning is one error with the file and, where it is one row's, the row."""
    file = write("a", written(table))
    if "Nanosecond" in message and importlib.util.find_spec("pandas"):
        pytest.skip("pandas is installed, and reads nanoseconds as its own type")
    assert complaint(component(files=(file,), **settings)).startswith(message)


@pytest.mark.parametrize(
    ("component", "name", "content", "message"),
    [
        (Parquet, "a", b"", "a: can't be read: Parquet file size is 0 bytes"),
        (Parquet, "a", b"text,label\nx,y\n", "a: can't be read: Parquet magic bytes not found in footer. "),
        (Parquet, "a", arrow_file(column(1)), 'a: this is Arrow, not Parquet; write type = "arrow"'),
        (Parquet, "a.gz", b"x", "a.gz: Parquet is read in place and can't be packed as a whole; unpack it"),
        (Parquet, "a", b"PAR1\xff\xff\xff\x7fPAR1", "a: can't be read: "),
        (Arrow, "a", b"", "a: no records in this file"),
        (Arrow, "a", b"text,label\nx,y\n", "a: can't be read: "),
        (Arrow, "a", b"FEA1" + bytes(20), "a: this is Feather version 1; write it again as version 2"),
        (Arrow, "a", parquet(column(1)), 'a: this is Parquet, not Arrow; write type = "parquet"'),
        (Arrow, "a", b"ARROW1\0\0", "a: can't be read: "),
        (Arrow, "a.zst", b"x", "a.zst: Arrow is read in place and can't be packed as a whole; unpack it"),
    ],
)
def test_what_is_not_such_a_file_is_refused(write, complaint, component, name, content, message):
    """Another format, an empty file, and a packed one are one error each, on one line."""
    assert complaint(component(files=(write(name, content),))).startswith(message)


@pytest.mark.parametrize("component", [Parquet, Arrow])
def test_a_missing_file_is_named(tmp_path, component):
    """The system's own words, as for text files."""
    with pytest.raises(DataError) as caught:
        list(component(files=(tmp_path / "gone",)).records())
    assert str(caught.value) == f"{tmp_path}/gone: can't be read: No such file or directory"


@formats
def test_a_truncated_file_is_refused(write, complaint, component, written):
    """Wherever a file is cut, the error names it: no rows are lost in silence."""
    content = written(pa.table({"a": ["x", "y"], "b": [[1], [2, 3]]}))
    end = len(content) - 8 * (written is arrow_stream)  # a stream may end without its mark of the end
    for size in range(1, end, 5):
        assert complaint(component(files=(write("a", content[:size]),))).startswith("a: ")


@formats
def test_damage_is_an_error_or_other_values(write, component, written):
    """Any byte of a file may be wrong: nothing is raised but an error with the file's name, on one line."""
    content = bytearray(written(pa.table({"a": ["x", "é"], "b": [[1], [2, 3]]})))
    errors = []
    for place in range(0, len(content), 7):
        damaged = content.copy()
        damaged[place] ^= 0xFF
        file = write("a", bytes(damaged))
        try:
            read(component, file)
        except DataError as error:
            errors.append(str(error))
    assert len(errors) > len(content) / 7 / 4
    assert [error for error in errors if not error.startswith(f"{file}:") or "\n" in error] == []


@formats
def test_the_first_rows_are_read_alone(write, component, written):
    """Reading a thousand of 200,000 rows makes Python objects of few more: under a tenth of what all would take."""
    table = pa.table({"a": [f"text number {i}" for i in range(200_000)]})
    data = component(files=(write("a", written(table)),))
    next(data.records())
    tracemalloc.start()
    try:
        first = list(itertools.islice(data.records(), 1000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(first) == 1000
    assert peak < 200_000 * 50 / 10  # a short text alone is over 50 bytes
