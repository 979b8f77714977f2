"""A problem as text: one line in a pipe; on a terminal also the source line with a caret and the mended line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len

if TYPE_CHECKING:
    from rtx_core.errors import Problem


def render(problem: Problem, *, terminal: bool) -> str:
    """One line, or up to four for a person."""
    if not terminal or problem.source_line is None:
        return str(problem)
    before = problem.source_line[: problem.place.column - 1]
    marked = problem.source_line[problem.place.column - 1 :][: problem.width]
    # Tabs stay tabs, so that the caret stands below its word whatever a tab's width is.
    indent = "".join("\t" if character == "\t" else " " * cell_len(character) for character in before)
    number = str(problem.place.line)
    margin = " " * len(number)
    lines = [
        str(problem),
        f"  {number} | {_printable(problem.source_line)}",
        f"  {margin} | {indent}{'^' * max(cell_len(marked), 1)}",
    ]
    if problem.mended is not None:
        lines.append(f"  {margin} | {_printable(problem.mended)}")
    return "\n".join(lines)


def _printable(line: str) -> str:
    """Control characters can't reach the terminal: a file that is not TOML may hold any."""
    return "".join(character if character.isprintable() or character == "\t" else "?" for character in line)
