"""What is wrong with a pipeline: first as a finding at a value, then as a problem with line and column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core.config.tree import COMMAND_LINE, Keys, Node, Origin, dotted
from rtx_core.errors import Place, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from rtx_core.config.places import Places, Spot


@attrs.frozen
class SourceFile:
    """A TOML file that was read."""

    shown: str
    """Its name as the user would write it."""
    path: Path
    """Absolute."""
    text: str
    """Without a byte order mark; the ends of lines as they are."""


@attrs.frozen(kw_only=True)
class Finding:
    """One mistake, at the value it is about."""

    origin: Origin
    keys: Keys
    """What the message is about, as the source names it."""
    message: str
    spot: Spot = "value"
    replacement: str | None = None
    """What should stand at the spot, where that is likely."""

    @classmethod
    def at(cls, node: Node, message: str, *, spot: Spot = "value", replacement: str | None = None) -> Finding:
        """A mistake in a value that was written."""
        return cls(origin=node.origin, keys=node.origin.keys, message=message, spot=spot, replacement=replacement)

    @classmethod
    def missing(cls, table: Node, key: str, message: str) -> Finding:
        """A key that a table should have; it is placed at the table's header."""
        return cls(origin=table.origin, keys=(*table.origin.keys, key), message=message, spot="header")


def problems_of(findings: Iterable[Finding], files: Mapping[Path, SourceFile]) -> list[Problem]:
    """Place every finding; in the order of the files, then of their lines. What stands in no file comes last.

    :param files: by absolute path, the pipeline itself first.
    """
    from rtx_core.config.places import Places

    places: dict[Path, Places] = {}
    order = {file.shown: index for index, file in enumerate(files.values())}
    problems = []
    for finding in findings:
        path = finding.origin.file
        if path is not None and path not in places:
            places[path] = Places(files[path].text)
        problems.append(_problem(finding, None if path is None else places[path], files))
    unique = {(str(problem.place), problem.path, problem.message): problem for problem in problems}
    return sorted(
        unique.values(),
        key=lambda problem: (
            order.get(problem.place.source, len(order)),
            problem.place.source,
            problem.place.line,
            problem.place.column,
        ),
    )


def _problem(finding: Finding, places: Places | None, files: Mapping[Path, SourceFile]) -> Problem:
    path, message = dotted(finding.keys), finding.message
    if places is None or not finding.origin.keys:
        # What is missing altogether has no line: it is the pipeline itself that lacks it.
        whole = finding.spot == "header" and finding.origin.source != COMMAND_LINE
        place = Place(next(iter(files.values())).shown, 1, 1) if whole else Place(finding.origin.source)
        return Problem(place=place, path=path, message=message)
    span = places.find(finding.origin.keys, finding.spot)
    mended = None
    if finding.replacement is not None:
        before, after = span.source_line[: span.column - 1], span.source_line[span.column - 1 + span.width :]
        mended = f"{before}{finding.replacement}{after}"
    return Problem(
        place=Place(finding.origin.source, span.line, span.column),
        path=path,
        message=message,
        mended=mended,
        source_line=span.source_line,
        width=span.width,
    )
