"""Texts with spans, in the forms of Label Studio, Doccano, Prodigy and spaCy."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtx_plugins.data.spans import Spans, _checked

TEXT = "Anna lives in Bern"
PLAIN = [{"start": 0, "end": 4, "label": "PER"}, {"start": 14, "end": 18, "label": "LOC"}]


def read(file, **settings):
    """Line and values of each record."""
    return [(record.line, record.values) for record in Spans(files=(file,), **settings).records()]


def label_studio(*annotations, text=TEXT):
    """A task as Label Studio exports it."""
    return {"id": 7, "data": {"text": text, "source": "x"}, "annotations": list(annotations), "predictions": []}


def annotation(*values, kind="labels", **more):
    """What one annotator marked."""
    result = [{"id": "r", "from_name": "label", "to_name": "text", "type": kind, "value": value} for value in values]
    return {"id": 1, "completed_by": 1, "result": result} | more


ANNA = {"start": 0, "end": 4, "text": "Anna", "labels": ["PER"]}
BERN = {"start": 14, "end": 18, "text": "Bern", "labels": ["LOC"]}


@pytest.mark.parametrize(
    ("record", "others"),
    [
        ({"text": TEXT, "spans": PLAIN}, {}),
        (  # Prodigy
            {
                "text": TEXT,
                "tokens": [{"text": "Anna", "start": 0, "end": 4, "id": 0}],
                "spans": [{**PLAIN[1], "token_start": 3, "token_end": 3}, {**PLAIN[0], "text": "Anna"}],
                "answer": "accept",
            },
            {"tokens": [{"text": "Anna", "start": 0, "end": 4, "id": 0}], "answer": "accept"},
        ),
        ([TEXT, {"entities": [[14, 18, "LOC"], [0, 4, "PER"]]}], {}),  # spaCy's training data
        ({"text": TEXT, "ents": PLAIN, "sents": [{"start": 0, "end": 18}]}, {"sents": [{"start": 0, "end": 18}]}),
        (
            {"text": TEXT, "ents": PLAIN, "spans": {"sc": []}},
            {},
        ),  # spaCy's Doc.to_json: groups of spans beside entities
        ({"id": 3, "text": TEXT, "label": [[0, 4, "PER"], [14, 18, "LOC"]]}, {"id": 3}),  # Doccano
        ({"text": TEXT, "labels": [[0, 4, "PER"], [14, 18, "LOC"]]}, {}),  # Doccano before 1.5
        (  # Doccano with relations
            {
                "id": 3,
                "text": TEXT,
                "entities": [
                    {"id": 0, "label": "PER", "start_offset": 0, "end_offset": 4},
                    {"id": 1, "label": "LOC", "start_offset": 14, "end_offset": 18},
                ],
                "relations": [],
            },
            {"id": 3, "relations": []},
        ),
        (label_studio(annotation(BERN, ANNA)), {"id": 7, "source": "x"}),
        ({"text": TEXT, "id": 7, "label": [ANNA, BERN], "annotator": 1}, {"id": 7, "annotator": 1}),  # its JSON-MIN
    ],
)
def test_each_tools_form_is_read(write, record, others):
    """One text with the same two spans, as each tool writes it, gives one record; the tool's other columns stay."""
    file = write("a.jsonl", json.dumps(record) + "\n")
    assert read(file) == [(1, {**others, "text": TEXT, "spans": PLAIN})]


def test_a_text_may_have_no_spans(write):
    """An empty list says so, in every form."""
    records = [
        {"text": TEXT, "spans": []},
        [TEXT, {"entities": []}],
        {"text": TEXT, "label": []},
        label_studio(annotation()),
        label_studio(annotation(ANNA, was_cancelled=True), annotation()),
        label_studio(annotation({"choices": ["x"]}, kind="choices")),
    ]
    file = write("a.jsonl", "\n".join(map(json.dumps, records)))
    assert [values["spans"] for _, values in read(file)] == [[]] * 6


@pytest.mark.parametrize("indent", [None, 2])
def test_a_file_may_be_one_array(write, indent):
    """What Label Studio exports, on one line or over several: a record's line is the one on which it begins."""
    file = write("a.json", "\n" + json.dumps([label_studio(annotation(ANNA, BERN))] * 2, indent=indent) + "\n")
    expected = {"id": 7, "source": "x", "text": TEXT, "spans": PLAIN}
    second = 2 if indent is None else 3 + json.dumps(label_studio(annotation(ANNA, BERN)), indent=2).count("\n") + 1
    assert read(file) == [(2 if indent is None else 3, expected), (second, expected)]


def test_text_and_spans_under_other_keys(write):
    """Both can be named; in the record they have their usual names, and what was there under these is gone."""
    file = write("a.jsonl", json.dumps({"body": TEXT, "marks": PLAIN, "spans": [[0, 1, "X"]], "n": 1}))
    assert read(file, text="body", spans="marks") == [(1, {"text": TEXT, "spans": PLAIN, "n": 1})]


@pytest.mark.parametrize(
    ("text", "span", "words"),
    [
        ("😀 Anna", [2, 6, "P"], "Anna"),
        ("e\u0301 שלום", [3, 7, "P"], "שלום"),
        ("a\nb", [0, 3, "P"], "a\nb"),
        ("x", [0, 1, "P"], "x"),
    ],
)
def test_offsets_count_characters(write, text, span, words):
    """Code points as Python counts them: an emoji is one, a combining accent one of its own."""
    file = write("a.jsonl", json.dumps({"text": text, "spans": [span]}))
    ((_, values),) = read(file)
    (found,) = values["spans"]
    assert text[found["start"] : found["end"]] == words


def test_a_quoted_line_feed_may_be_written_out(write):
    """Label Studio quotes a line feed as a backslash and an n; that is no contradiction."""
    value = {"start": 0, "end": 3, "text": "a\\nb", "labels": ["P"]}
    file = write("a.jsonl", json.dumps(label_studio(annotation(value), text="a\nb")))
    assert read(file)[0][1]["spans"] == [{"start": 0, "end": 3, "label": "P"}]


@given(st.lists(st.integers(0, 30), min_size=2, max_size=12, unique=True))
def test_spans_side_by_side_are_in_order(bounds):
    """Any spans that don't overlap, in any order and also without a gap, come back sorted."""
    bounds = sorted(bounds)
    spans = [{"start": a, "end": b, "label": "X"} for a, b in itertools.pairwise(bounds)]
    assert _checked(spans[::-1], "x" * 30) == spans


def one(*spans):
    """A record of a text with 18 characters."""
    return {"text": TEXT, "spans": list(spans)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "a: no records in this file"),
        ("[]\n", "a: no records in this file"),
        ("{\n", "a:1: column 2: not JSON: "),
        ("[\n{},\n{,}\n]\n", "a:3: column 2: not JSON: "),
        ('[{"text": NaN}]', "a: NaN is not JSON; "),
        ("1\n", "a:1: expected an object in braces, got 1"),
        ("[1, 2]\n", "a:1: expected an object in braces, got 1"),
        ('["x", []]\n', 'a:1: expected an object in braces, got ["x", []]'),
        ({"spans": []}, 'a:1: "text": expected the text, got null'),
        ({"text": 5, "spans": []}, 'a:1: "text": expected the text, got 5'),
        (
            {"text": "x"},
            'a:1: no spans: expected a list under "spans" or "entities" or "ents" or "label" or "labels", ',
        ),
        ({"text": "x", "label": "sports"}, "a:1: no spans: expected a list under "),
        (one([0, 4]), "a:1: span 1: expected start, end and label, got [0, 4]"),
        (one("x"), 'a:1: span 1: expected start, end and label, got "x"'),
        (one({"start": 0, "end": 4}), "a:1: span 1: expected start, end and label, got {"),
        (one([0, 4, "A"], [5, "6", "A"]), 'a:1: span 2: end: expected a whole number of characters, got "6"'),
        (one([0.0, 4, "A"]), "a:1: span 1: start: expected a whole number of characters, got 0.0"),
        (one([0, True, "A"]), "a:1: span 1: end: expected a whole number of characters, got true"),
        (one([None, 4, "A"]), "a:1: span 1: start: expected a whole number of characters, got null"),
        (one([0, 4, None]), "a:1: span 1: expected a label, got null"),
        (one([0, 4, ""]), 'a:1: span 1: expected a label, got ""'),
        (one([0, 4, 1]), "a:1: span 1: expected a label, got 1"),
        (one([0, 19, "A"]), "a:1: span 1: 0 to 19 is not in the text, which has 18 characters"),
        (one([-1, 4, "A"]), "a:1: span 1: -1 to 4 is not in the text, which has 18 characters"),
        (one([4, 3, "A"]), "a:1: span 1: 4 to 3 is not in the text, which has 18 characters"),
        (one([18, 18, "A"]), "a:1: span 1: 18 to 18 holds no character"),
        (one([5, 10, "B"], [0, 6, "A"]), 'a:1: 0 to 6 ("A") and 5 to 10 ("B") overlap'),
        (one([0, 9, "A"], [0, 9, "B"]), 'a:1: 0 to 9 ("A") and 0 to 9 ("B") overlap'),
        (one([0, 9, "A"], [2, 3, "B"]), 'a:1: 0 to 9 ("A") and 2 to 3 ("B") overlap'),
        (
            one({"start": 1, "end": 5, "text": "Anna", "label": "A"}),
            'a:1: span 1: 1 to 5 is "nna ", but the span says "Anna"; offsets count characters, not bytes or UTF-16 ',
        ),
        (label_studio(), "a:1: 0 annotations, expected one; export one for each text, and only annotated texts"),
        (label_studio(annotation(ANNA), annotation(BERN)), "a:1: 2 annotations, expected one; "),
        (label_studio(annotation(ANNA | {"labels": ["A", "B"]})), 'a:1: span 1: expected one label, got ["A", "B"]'),
        (
            label_studio(annotation({"start": "/p[1]"}, kind="hypertextlabels")),
            "a:1: the spans are of a page of HTML; ",
        ),
        (label_studio(annotation(None)), "a:1: span 1: expected start, end and label, got null"),
        ('{"text": "\\ud83d", "spans": []}', "a:1: \\ud83d is half of a surrogate pair; the other half is missing"),
    ],
)
def test_awkward_records_are_refused(write, complaint, content, message):
    """What is malformed, outside of the text, on no character or overlapping is one error with file and line."""
    file = write("a", content if isinstance(content, str) else json.dumps(content) + "\n")
    assert complaint(Spans(files=(file,))).startswith(message)


def test_an_error_in_a_later_record_has_its_line(write, complaint):
    """Blank lines count."""
    file = write("a", json.dumps(one()) + "\n\n" + json.dumps(one([0, 99, "A"])) + "\n")
    assert complaint(Spans(files=(file,))) == "a:3: span 1: 0 to 99 is not in the text, which has 18 characters"
