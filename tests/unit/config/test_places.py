"""Lines and columns of keys and values."""

from __future__ import annotations

import json
import re

import pytest
import tomli
from hypothesis import given, settings
from hypothesis import strategies as st

from rtx_core.config.places import Places


def place(text, keys, spot):
    span = Places(text).find(keys, spot)
    return span.line, span.column, span.width


@pytest.mark.parametrize(
    ("text", "keys", "spot", "expected"),
    [
        ("a = 1\n[t]\nb = 2\n", ("t", "b"), "key", (3, 1, 1)),
        ("a = 1\n[t]\nb = 2\n", ("t", "b"), "value", (3, 5, 1)),
        ("[t]\nb = 2\n", ("t",), "header", (1, 1, 3)),
        ("[t]\nb = 2\n", ("t",), "key", (1, 2, 1)),
        ("[ a . b ]\nc = 1\n", ("a", "b"), "key", (1, 7, 1)),
        ("[ a . b ]\nc = 1\n", ("a",), "key", (1, 3, 1)),
        ("x.y.z = 'v'\n", ("x", "y", "z"), "key", (1, 5, 1)),
        ("x.y.z = 'v'\n", ("x", "y", "z"), "value", (1, 9, 3)),
        ('"a b"."c.d" = 1\n', ("a b", "c.d"), "key", (1, 7, 5)),
        ('"a\\"\\u0041" = 1\n', ('a"A',), "key", (1, 1, 11)),
        ("t = { a = 1, b = { c = 22 } }\n", ("t", "b", "c"), "value", (1, 24, 2)),
        ("t = { a = 1 }\n", ("t",), "header", (1, 1, 1)),
        ("a = [1, [2, 33]] # c\n", ("a", 1, 1), "value", (1, 13, 2)),
        ("a = [\n  1, # one\n  # none\n  { b = 3 },\n]\n", ("a", 1, "b"), "value", (4, 9, 1)),
        ("a = [\n  1,\n  2,\n]\n", ("a",), "value", (1, 5, 1)),
        ("[[a]]\nx = 1\n[[a]]\nx = 2\n", ("a", 1, "x"), "value", (4, 5, 1)),
        ("[[a]]\nx = 1\n[[a]]\nx = 2\n", ("a", 0), "value", (1, 3, 1)),
        ("[[a]]\n[[a.b]]\n[[a.b]]\nx = 1\n[[a]]\n[a.c]\ny = 2\n", ("a", 0, "b", 1, "x"), "key", (4, 1, 1)),
        ("[[a]]\n[[a.b]]\n[[a.b]]\nx = 1\n[[a]]\n[a.c]\ny = 2\n", ("a", 1, "c", "y"), "key", (7, 1, 1)),
        ("[a.b]\n[a]\nx = 1\n", ("a",), "header", (2, 1, 3)),
        ("[a.b]\n[a]\nx = 1\n", ("a", "b"), "header", (1, 1, 5)),
    ],
)
def test_every_form_of_key_and_value_is_placed(text, keys, spot, expected):
    """Dotted and quoted keys, inline tables, lists and lists of tables have the place they stand at."""
    assert place(text, keys, spot) == expected


def test_columns_count_characters():
    """A column counts characters, not bytes: what stands before it may be wide, combining or outside the BMP."""
    text = 'é = 1\nt = { "ключ" = "ж😀", x = 2 }\n'.replace("é", '"é"')
    assert place(text, ("t", "x"), "value") == (2, text.split("\n")[1].index("2") + 1, 1)
    assert place(text, ("é",), "value") == (1, 7, 1)


def test_line_ends_do_not_count():
    """CRLF leaves no character behind, and the separators of Unicode are no line ends."""
    text = '[t]\r\na = "x\u2028y\u0085z"\r\nb = 1\r\n'
    span = Places(text).find(("t", "a"), "value")
    assert (span.line, span.column, span.width, span.source_line) == (2, 5, 7, 'a = "x\u2028y\u0085z"')
    assert place(text, ("t", "b"), "key") == (3, 1, 1)


def test_what_has_no_place_is_put_at_the_table_around_it():
    """A key that isn't there is placed at the nearest table that is, and else at the first line."""
    text = "[a]\n[a.b]\nx = 1\n"
    assert place(text, ("a", "b", "missing"), "value") == (2, 4, 1)
    assert place(text, ("c",), "value") == (1, 1, 1)


def test_newer_toml_is_placed_too():
    """An inline table over several lines with a comma at its end, which TOML 1.0 does not know, hides nothing."""
    text = "t = {\n  a = 1,\n  b = [\n    2,\n  ],\n}\n[u]\nc = 3\n"
    assert place(text, ("t", "b", 0), "value") == (4, 5, 1)
    assert place(text, ("u", "c"), "value") == (8, 5, 1)


def spelt(name, quote):
    """A key as TOML may write it."""
    if re.fullmatch(r"[A-Za-z0-9_-]+", name) and not quote:
        return name
    if quote == "'" and "'" not in name and name.isprintable():
        return f"'{name}'"
    return json.dumps(name, ensure_ascii=False)


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x7f"), max_size=8)
keys = st.tuples(names | st.from_regex(r"[A-Za-z0-9_-]+", fullmatch=True), st.sampled_from(["", "'", '"']))


@settings(deadline=None)
@given(
    st.lists(keys, min_size=1, max_size=3),
    st.lists(st.lists(keys, min_size=1, max_size=3), min_size=1, max_size=4),
    st.sampled_from(["\n", "\r\n"]),
)
def test_any_valid_key_is_found_where_it_was_written(header, assignments, newline):
    """Each part of random headers and dotted keys, bare or quoted, has the place and width it was written with."""
    rows = ["[" + ".".join(spelt(*part) for part in header) + "]"]
    expected = {}
    table = tuple(name for name, _ in header)
    for parts in assignments:
        column = 1
        for index, part in enumerate(parts):
            path = (*table, *(name for name, _ in parts[: index + 1]))
            expected.setdefault(path, (len(rows) + 1, column, len(spelt(*part))))
            column += len(spelt(*part)) + 1
        rows.append(".".join(spelt(*part) for part in parts) + ' = "é" # 😀')
    text = newline.join(rows) + newline
    try:
        tomli.loads(text)
    except tomli.TOMLDecodeError:  # a key occurs twice
        return
    places = Places(text)
    for path, where in expected.items():
        span = places.find(path, "key")
        assert (span.line, span.column, span.width) == where
