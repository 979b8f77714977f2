"""Tags that spell spans, against seqeval."""

import itertools

import pytest
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOB2, IOBES, Entities

from rtx_plugins.tasks.tags import PREFIXES, Tag, all_tags, lone_tags, spans_of, tags_of_span

SCHEMES = {"IOB2": IOB2, "IOBES": IOBES}


def every_sequence(scheme):
    """Every sequence of up to four tags of two labels."""
    names = all_tags(("A", "B"), scheme)
    lengths = range(5 if scheme == "IOB2" else 4)
    return [tags for length in lengths for tags in itertools.product(names, repeat=length)]


def parsed(names, scheme):
    return [Tag.parse(name, scheme) for name in names]


@pytest.mark.parametrize("scheme", PREFIXES)
def test_spans_are_those_of_seqeval(scheme):
    """On every sequence of up to four (IOBES: three) tags of two labels, by seqeval's default rules."""
    for names in every_sequence(scheme):
        ours = [(span.label, span.start, span.end - 1) for span in spans_of(parsed(names, scheme))]
        assert ours == get_entities(list(names)), names


@pytest.mark.parametrize("scheme", PREFIXES)
def test_strict_spans_are_those_of_seqeval(scheme):
    """On the same sequences, by its rules of mode strict."""
    for names in every_sequence(scheme):
        ours = [(span.label, span.start, span.end) for span in spans_of(parsed(names, scheme), strict=scheme)]
        (theirs,) = Entities([list(names)], SCHEMES[scheme]).entities
        assert ours == [(entity.tag, entity.start, entity.end) for entity in theirs], names


@pytest.mark.parametrize("scheme", PREFIXES)
@pytest.mark.parametrize("words", [1, 2, 3, 5])
def test_a_span_is_spelt_so_that_it_is_read(scheme, words):
    """Two spans of the same label side by side come back, also by strict rules, and no tag is out of place."""
    tags = tags_of_span(words, "X", scheme) * 2
    expected = [(0, words, "X"), (words, 2 * words, "X")]
    assert [(span.start, span.end, span.label) for span in spans_of(tags, strict=scheme)] == expected
    assert [(span.start, span.end, span.label) for span in spans_of(tags)] == expected
    assert lone_tags(tags) == 0
    assert {str(tag) for tag in tags} <= set(all_tags(["X"], scheme))


@pytest.mark.parametrize(
    ("names", "count"),
    [("O I-A I-A", 1), ("B-A I-A I-A", 0), ("B-A I-B O I-B", 2), ("I-A", 1), ("", 0)],
)
def test_tags_that_continue_nothing_are_counted(names, count):
    """An I- counts unless a B- or I- of its label stands before it."""
    assert lone_tags(parsed(names.split(), "IOB2")) == count


@pytest.mark.parametrize("text", ["", "B", "B-", "X-PER", "I", "b-PER", "BI-PER", "OTHER", "E-PER", "-PER"])
def test_what_is_no_tag_is_said(text):
    """Anything but O, B- or I- and a label is refused in IOB2."""
    with pytest.raises(ValueError, match=f'^"{text}" is no tag in IOB2; expected O, B-LABEL or I-LABEL$'):
        Tag.parse(text, "IOB2")


def test_a_label_may_have_a_hyphen():
    """Only the first one ends the prefix."""
    assert Tag.parse("E-a-b", "IOBES") == Tag("E", "a-b")
    assert str(Tag("E", "a-b")) == "E-a-b"
