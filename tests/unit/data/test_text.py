"""Plain text: where a record begins and ends."""

import pytest

from rtx_plugins.data.text import Text


@pytest.mark.parametrize("unit", ["line", "paragraph", "document"])
def test_windows_files_leave_no_trace(write, unit):
    """Neither the byte order mark nor a carriage return becomes part of a text (case 26)."""
    file = write("a.txt", b"\xef\xbb\xbfone\r\n\r\ntwo\r\n")
    texts = [record.values["text"] for record in Text(files=(file,), unit=unit).records()]
    assert texts == (["one\n\ntwo"] if unit == "document" else ["one", "two"])


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("line", [(2, "  a"), (3, "b"), (6, "c")]),
        ("paragraph", [(2, "  a\nb"), (6, "c")]),
        ("document", [(1, "\n  a\nb\n\t\n\nc")]),
    ],
)
def test_a_unit_says_what_a_record_is(write, unit, expected):
    """A line, the lines between blank ones, or the file; each with the line on which it begins."""
    file = write("a.txt", "\n  a\nb\n\t\n\nc\n")
    assert [(r.line, r.values["text"]) for r in Text(files=(file,), unit=unit).records()] == expected


def test_a_document_is_one_file(write):
    """As many records as files."""
    files = (write("a.txt", "a\n\nb"), write("b.txt", "c\n"))
    assert [r.values["text"] for r in Text(files=files, unit="document").records()] == ["a\n\nb", "c"]


@pytest.mark.parametrize("unit", ["line", "paragraph", "document"])
@pytest.mark.parametrize("content", ["", "\n", " \n\t\n\n", "\ufeff", "\ufeff\r\n\r\n"])
def test_a_file_without_text_is_refused(write, complaint, unit, content):
    """An empty file, or one of blank lines, is named (case 25)."""
    file = write("empty.txt", content)
    assert complaint(Text(files=(file,), unit=unit)) == "empty.txt: no records in this file"


def test_the_text_column_can_be_renamed(write):
    """``rename`` works on the one column that there is."""
    file = write("a.txt", "a\n")
    assert [dict(r.values) for r in Text(files=(file,), rename={"text": "body"}).records()] == [{"body": "a"}]
