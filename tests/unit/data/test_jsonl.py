"""JSON lines: strict JSON, one object a line."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rtx_plugins.data.jsonl import Jsonl

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(rows=st.lists(st.dictionaries(st.text(max_size=5), VALUES, max_size=4), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_what_json_writes_is_read_back(write, rows, ascii_only):
    """Any objects, with every character as itself or as an escape, come back equal, with their lines."""
    file = write("a.jsonl", "".join(json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows))
    assert [(r.line, r.values) for r in Jsonl(files=(file,)).records()] == list(enumerate(rows, start=1))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"a": 1}', [(1, {"a": 1})]),
        ('{"a": 1}\r\n\r\n \t\n{"b": 2}\r\n', [(1, {"a": 1}), (4, {"b": 2})]),
        ('\ufeff{"a": 1}\n', [(1, {"a": 1})]),
        ('{"a": "x\u2028y\u0085z"}\n', [(1, {"a": "x\u2028y\u0085z"})]),
        ('{"a": [1, {"b": null}], "c": true}\n', [(1, {"a": [1, {"b": None}], "c": True})]),
        (r'{"a": "\ud83d\ude00"}' + "\n", [(1, {"a": "😀"})]),
        (r'{"a": "\\ud83d"}' + "\n", [(1, {"a": r"\ud83d"})]),
        ('{"a": "NaN"}\n', [(1, {"a": "NaN"})]),
        ("{}\n", [(1, {})]),
    ],
)
def test_awkward_lines_are_read(write, content, expected):
    """What is valid JSON, one object a line, is taken as it stands."""
    file = write("a.jsonl", content)
    assert [(r.line, r.values) for r in Jsonl(files=(file,)).records()] == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "a.jsonl: no records in this file"),
        ("\n\n", "a.jsonl: no records in this file"),
        ('\n{"a": 1, b: 2}\n', "a.jsonl:2: column 10: not JSON: Expecting property name enclosed in double quotes; "),
        ('\ufeff{"a" 1}\n', "a.jsonl:1: column 6: not JSON: Expecting ':' delimiter; "),
        ("{\n", "a.jsonl:1: column 2: not JSON: "),
        ('{"a": 1} {"a": 2}\n', "a.jsonl:1: column 10: not JSON: Extra data; "),
        ('{"a": "x\n', "a.jsonl:1: column 7: not JSON: Unterminated string starting at; "),
        ("[\n", "a.jsonl:1: column 2: not JSON: Expecting value; each line must be one whole object"),
        ('["a"]\n', 'a.jsonl:1: expected an object in braces, got ["a"]'),
        ("null\n", "a.jsonl:1: expected an object in braces, got null"),
        ('{"a": NaN}\n', "a.jsonl:1: NaN is not JSON; write null, or leave the row out"),
        ('{"a": -Infinity}\n', "a.jsonl:1: -Infinity is not JSON; write null, or leave the row out"),
        ('{"a": 1e999}\n', "a.jsonl:1: 1e999 is too large for a float"),
        ('{"a": 1, "b": 2, "a": 3}\n', 'a.jsonl:1: the key "a" stands in one object more than once'),
        ('{"x": {"a": 1, "a": 3}}\n', 'a.jsonl:1: the key "a" stands in one object more than once'),
        (r'{"a": "\ud83d!"}', r"a.jsonl:1: \ud83d is half of a surrogate pair; the other half is missing"),
        (r'{"\uDC00": 1}', r"a.jsonl:1: \udc00 is half of a surrogate pair; the other half is missing"),
        ("[" * 100_000, "a.jsonl:1: nested too deeply to be read"),
        ('{"a": ' + "1" * 5000 + "}", "a.jsonl:1: Exceeds the limit (4300 digits) for integer string conversion"),
    ],
)
def test_awkward_lines_are_refused(write, complaint, content, message):
    """What is not valid is one error with file, line and, where JSON says it, the column."""
    assert complaint(Jsonl(files=(write("a.jsonl", content),))).startswith(message)
