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
