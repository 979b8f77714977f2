"""CSV: a header, text in every field, line numbers that hold over quoted line ends."""

import csv
import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rtx_core import DataError
from rtx_plugins.data.csv import Csv

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=8)


def read(file, **settings):
    """Line and values of each record."""
    return [(record.line, record.values) for record in Csv(files=(file,), **settings).records()]


@given(rows=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("dialect", ["excel", "unix", "excel-tab"])
def test_what_the_csv_module_writes_is_read_back(write, rows, dialect):
    """Any text comes back equal, whatever needs quotes, and each row has the line on which it begins."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, dialect)
    writer.writerow(["a", "b"])
    expected, line = [], 2
    for row in rows:
        writer.writerow(row)
        expected.append((line, dict(zip("ab", row, strict=True))))
        line += 1 + "".join(row).count("\n")
    file = write("a.tsv" if dialect == "excel-tab" else "a.csv", out.getvalue())
    assert read(file) == expected


def test_everything_stays_text(write):
    """``null``, ``NA``, ``None``, ``nan``, an empty field and ``007`` are not turned into something else (case 24)."""
    values = ["null", "NA", "None", "nan", "", "007"]
    file = write("a.csv", "text,label\n" + "".join(f"{value},pos\n" for value in values))
    assert [values["text"] for _, values in read(file)] == values


@pytest.mark.parametrize(
    ("name", "content", "settings", "expected"),
    [
        ("a.csv", "\ufefftext\r\nx\r\n", {}, [(2, {"text": "x"})]),
        ("a.csv", "a,b\n1,2", {}, [(2, {"a": "1", "b": "2"})]),
        ("a.csv", '\n"a",b\n\n\n1,2\n', {}, [(5, {"a": "1", "b": "2"})]),
        ("a.csv", 'a,b\n"x\n\ny",1\nz,2\n', {}, [(2, {"a": "x\n\ny", "b": "1"}), (5, {"a": "z", "b": "2"})]),
        ("a.csv", 'a,b\r\n"x\r\ny",1\r\n', {}, [(2, {"a": "x\ny", "b": "1"})]),
        ("a.csv", 'a\n""\n', {}, [(2, {"a": ""})]),
        ("a.csv", 'a,b\n"say ""hi""",5" pipe\n', {}, [(2, {"a": 'say "hi"', "b": '5" pipe'})]),
        ("a.csv", "a,b\n x , y \n", {}, [(2, {"a": " x ", "b": " y "})]),
        ("a.csv", "a,b\nx\u2028y,\u0085\n", {}, [(2, {"a": "x\u2028y", "b": "\u0085"})]),
        ("a.csv", "a,b\nx\fy,\x0b\n", {}, [(2, {"a": "x\fy", "b": "\x0b"})]),
        ("a.csv", ",b\n0,x\n", {}, [(2, {"": "0", "b": "x"})]),
        ("a.csv", "a;b\nx,y;2\n", {"delimiter": ";"}, [(2, {"a": "x,y", "b": "2"})]),
        ("a.csv", "a,b\n'x,y',2\n", {"quotechar": "'"}, [(2, {"a": "x,y", "b": "2"})]),
        ("a.csv", 'a,b\n"x,2\n', {"quotechar": ""}, [(2, {"a": '"x', "b": "2"})]),
        ("a.tsv", "a\tb\nx,y\t2\n", {}, [(2, {"a": "x,y", "b": "2"})]),
        ("A.TSV", "a\tb\nx,y\t2\n", {}, [(2, {"a": "x,y", "b": "2"})]),
        ("a.tsv", "a,b\nx,2\n", {"delimiter": ","}, [(2, {"a": "x", "b": "2"})]),
        ("a.csv", "a,b\n" + "x" * 200_000 + ",2\n", {}, [(2, {"a": "x" * 200_000, "b": "2"})]),
    ],
)
def test_awkward_files_are_read(write, name, content, settings, expected):
    """Line ends, quotes, blank lines, long fields and odd characters come through as they are meant."""
    assert read(write(name, content), **settings) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "a.csv: no records in this file"),
        ("text,label\n", "a.csv: no records in this file"),
        ("text,label\n\n\n", "a.csv: no records in this file"),
        ("a,b\n1\n", "a.csv:2: 1 field, the header has 2; quote what holds the delimiter"),
        ('a,b\n"x\ny",1\nx,y,2\n', "a.csv:4: 3 fields, the header has 2; quote what holds the delimiter"),
        ("a,b\n  \n", "a.csv:2: 1 field, the header has 2; quote what holds the delimiter"),
        ("\na,b,a\n1,2,3\n", 'a.csv:2: the header has "a" more than once'),
        ('a,b\nx,1\n"y,2\nz,3\n', "a.csv:3: not CSV: a quote opens in this row and never closes; "),
        ('a,b\n"x"y,1\n', "a.csv:2: not CSV: ',' expected after '\"'; write a quote in a quoted field twice, "),
        ("a,b\r1,2\r3,4\r", "a.csv:1: not CSV: a carriage return in the middle of a line; "),
    ],
)
def test_awkward_files_are_refused(write, complaint, content, message):
    """What can't be meant is one error with the file and the line on which the row begins (case 25)."""
    assert complaint(Csv(files=(write("a.csv", content),))).startswith(message)


@pytest.mark.parametrize(
    "settings", [{"delimiter": ""}, {"delimiter": "||"}, {"delimiter": "\n"}, {"quotechar": '""'}, {"quotechar": "\r"}]
)
def test_delimiter_and_quote_are_single_characters(tmp_path, settings):
    """Anything else is refused by the field's validator."""
    with pytest.raises(ValueError, match=next(iter(settings))):
        Csv(files=(tmp_path,), **settings)


def test_delimiter_and_quote_differ(tmp_path):
    """One character for both is reported with the field's name."""
    data = Csv(files=(tmp_path,), delimiter='"')
    assert list(data.check()) == [("quotechar", 'the delimiter is """ too')]
    assert list(Csv(files=(tmp_path,)).check()) == []


@pytest.mark.parametrize(("mark", "written"), [(";", '";"'), ("\t", r'"\t"'), ("|", '"|"')])
def test_a_header_cut_at_the_wrong_character_names_the_key(write, mark, written):
    """One column whose name holds another usual delimiter: ``delimiter`` is what the error is about."""
    file = write("a.csv", f"text{mark}label\nred, or so{mark}warm\n")
    with pytest.raises(DataError) as caught:
        read(file)
    assert str(caught.value) == (
        f"{file}:2: 2 fields, the header has 1; if the header names several columns, write delimiter = {written}"
    )
