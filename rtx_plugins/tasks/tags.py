"""Tags that spell spans, in the schemes IOB2 (Tjong Kim Sang & Veenstra 1999) and IOBES, read as seqeval reads them.

``B-PER`` begins a span of label ``PER``, ``I-PER`` continues it; IOBES also says where it ends (``E-PER``) and whether
it is a single word (``S-PER``). ``O`` is outside of all spans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Scheme = Literal["IOB2", "IOBES"]

PREFIXES: dict[Scheme, str] = {"IOB2": "BI", "IOBES": "BIES"}
"""What a tag inside a span begins with."""


@attrs.frozen
class Tag:
    """A tag in its two parts."""

    prefix: str
    """``B``, ``I``, ``E``, ``S``, or ``O``."""
    label: str = ""
    """The span's label; empty for ``O``."""

    @classmethod
    def parse(cls, text: str, scheme: Scheme) -> Tag:
        """Read a tag.

        :raises ValueError: it is none of this scheme.
        """
        prefix, hyphen, label = text.partition("-")
        if text == OUTSIDE.prefix or (hyphen and label and prefix in tuple(PREFIXES[scheme])):
            return cls(prefix, label)
        forms = [f"{prefix}-LABEL" for prefix in PREFIXES[scheme]]
        raise ValueError(f'"{text}" is no tag in {scheme}; expected O, {", ".join(forms[:-1])} or {forms[-1]}')

    def continues(self, before: Tag) -> bool:
        """Whether it goes on with the span that the tag before it is in."""
        return self.prefix in ("I", "E") and before.prefix in ("B", "I") and self.label == before.label

    @property
    def lone(self) -> bool:
        """Whether it is wrong where it continues nothing."""
        return self.prefix in ("I", "E")

    def __str__(self) -> str:
        return f"{self.prefix}-{self.label}" if self.label else self.prefix


OUTSIDE = Tag("O")
"""The tag of a word that is in no span."""


@attrs.frozen
class Span:
    """A run of words with one label."""

    start: int
    end: int
    """The first word after it."""
    label: str


def spans_of(tags: Iterable[Tag], *, strict: Scheme | None = None) -> Iterator[Span]:
    """The spans that tags spell, in order.

    By seqeval's default rules every tag but ``O`` is in a span: one that continues nothing begins its own.

    :param strict: leave out the spans that don't keep to this scheme: they begin with ``B`` (or ``S``), and in IOBES
        they end with ``E`` or are a single ``S``.
    """
    start, before = None, OUTSIDE
    for place, tag in enumerate((*tags, OUTSIDE)):
        if not tag.continues(before):
            if start is not None and (strict != "IOBES" or before.prefix in ("E", "S")):
                yield Span(start, place, before.label)
            begins = tag != OUTSIDE and not (strict and tag.lone)
            start = place if begins else None
        before = tag


def lone_tags(tags: Iterable[Tag]) -> int:
    """How many tags continue a span that has not begun."""
    count, before = 0, OUTSIDE
    for tag in tags:
        count += tag.lone and not tag.continues(before)
        before = tag
    return count


def tags_of_span(words: int, label: str, scheme: Scheme) -> list[Tag]:
    """The tags of a span of so many words, at least one."""
    prefixes = "B" + "I" * (words - 1)
    if scheme == "IOBES":
        prefixes = "S" if words == 1 else prefixes[:-1] + "E"
    return [Tag(prefix, label) for prefix in prefixes]


def all_tags(labels: Iterable[str], scheme: Scheme) -> tuple[str, ...]:
    """Every tag that spans of these labels may need, ``O`` first."""
    return (str(OUTSIDE), *(f"{prefix}-{label}" for label in labels for prefix in PREFIXES[scheme]))
