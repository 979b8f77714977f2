"""CSV: a header, text in every field, line numbers that hold over quoted line ends."""

import csv
import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


@pytest.mark.parametrize(
    "settings", [{"delimiter": ""}, {"delimiter": "||"}, {"delimiter": "\n"}, {"quotechar": '""'}, {"quotechar": "\r"}]
)
def test_delimiter_and_quote_are_single_characters(tmp_path, settings):
    """Anything else is refused by the field's validator."""
    with pytest.raises(ValueError, match="must be one character, and no line's end, got "):
        Csv(files=(tmp_path,), **settings)


def test_delimiter_and_quote_differ(tmp_path):
    """One character for both is reported with the field's name."""
    data = Csv(files=(tmp_path,), delimiter='"')
    assert list(data.check()) == [("quotechar", 'the delimiter is """ too')]
    assert list(Csv(files=(tmp_path,)).check()) == []
