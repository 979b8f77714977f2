"""A problem as one line in a pipe, and with its source line on a terminal."""

from __future__ import annotations

from rtx_core.config import render
from rtx_core.errors import Place, Problem


def problem(**changes):
    values = {
        "place": Place("p.toml", 31, 1),
        "path": "optimizer.learning_rate",
        "message": 'unknown key; did you mean "lr"?',
        "source_line": "learning_rate = 5e-4",
        "mended": "lr = 5e-4",
        "width": 13,
    }
    return Problem(**values | changes)


def test_a_pipe_gets_one_line():
    """Where no person looks on, a problem is one line."""
    expected = 'p.toml:31:1: optimizer.learning_rate: unknown key; did you mean "lr"?'
    assert render(problem(), terminal=False) == expected


def test_a_terminal_gets_the_line_and_the_mended_one():
    """A person sees the source line, what is meant underlined, and how it should read."""
    assert render(problem(), terminal=True).split("\n")[1:] == [
        "  31 | learning_rate = 5e-4",
        "     | ^^^^^^^^^^^^^",
        "     | lr = 5e-4",
    ]


def test_the_caret_stands_below_its_word():
    """Characters that are two cells wide and tabs before the place move the caret with them."""
    line = '\tx = "字", é = 字'
    found = render(problem(place=Place("p.toml", 9, 15), source_line=line, width=1, mended=None), terminal=True)
    assert found.split("\n")[1:] == [f"  9 | {line}", f"    | \t{14 * ' '}^^"]


def test_a_terminal_gets_no_control_characters():
    """What would steer the terminal is shown as a question mark."""
    found = render(problem(source_line="a = \x1b[31m", mended=None, width=1), terminal=True)
    assert "\x1b" not in found
    assert "a = ?[31m" in found


def test_a_problem_without_a_line_stays_one_line():
    """What stands in no file has nothing to show."""
    found = render(problem(place=Place("--set"), source_line=None, mended=None), terminal=True)
    assert found == '--set: optimizer.learning_rate: unknown key; did you mean "lr"?'
