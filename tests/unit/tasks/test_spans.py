"""Texts with spans of characters: targets of words, and answers with characters of the original text."""

import math

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from rtx_core import DataError, InputError, Outputs
from rtx_plugins.tasks import long_texts
from rtx_plugins.tasks.tags import all_tags
from rtx_plugins.tasks.token_classification import TokenClassification

NAMES = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
OUTPUTS = Outputs(size=5, labels=NAMES, scheme="IOB2")


def span(start, end, label="LOC"):
    return {"start": start, "end": end, "label": label}


@pytest.fixture
def part(tokenizer, special_tokens):
    """A function: the task's part with spans LOC and PER."""

    def build(max_length=16, outputs=OUTPUTS, using=tokenizer, **settings):
        task = TokenClassification(text="text", **settings)
        return task.build(using, outputs, max_length=max_length, special_tokens=special_tokens)

    return build


@pytest.fixture
def byte_level(special_tokens):
    """RoBERTa's kind of tokenizer over bytes alone, whose words begin with the space before them."""
    characters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*special_tokens.names, *characters])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    around = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.post_processor = around
    return tokenizer


def tags_of(part, sample):
    return [part.labels.names[number] for number in sample.targets.tolist()]


def answered(part, record, tags):
    """The answer to logits that predict these tags."""
    rows = torch.tensor([NAMES.index(tag) for tag in tags], dtype=torch.int64)
    logits = torch.nn.functional.one_hot(rows, len(NAMES)).float()
    (answer,) = part.answers([record], [logits], scores=False)
    return answer["spans"]


# --- targets ----------------------------------------------------------------------------------------------------------


def test_a_spans_words_have_its_tags(part, record, tokens_of):
    """The first sub-word of each word has a target; a span's first word begins it."""
    built = part()
    text = "Anna lives in New York, unbelievably"
    (sample,) = built.samples([record(text=text, spans=[span(0, 4, "PER"), span(14, 22)])])
    tokens = tokens_of(sample)
    assert [tokens[at] for at in sample.target_positions] == ["anna", "lives", "in", "new", "york", ",", "un"]
    assert tags_of(built, sample) == ["B-PER", "O", "O", "B-LOC", "I-LOC", "O", "O"]
    assert built.notes() == []


def test_spans_in_iobes(part, record):
    """A single word is S-, the last of several E-."""
    outputs = Outputs(size=9, labels=all_tags(["LOC", "PER"], "IOBES"), scheme="IOBES")
    built = part(scheme="IOBES", outputs=outputs)
    (sample,) = built.samples([record(text="Anna in new york a", spans=[span(0, 4, "PER"), span(8, 18)])])
    assert tags_of(built, sample) == ["S-PER", "O", "B-LOC", "I-LOC", "E-LOC"]


def test_spans_that_touch_are_two(part, record):
    """The second begins anew, also with the label of the first."""
    built = part()
    (sample,) = built.samples([record(text="new,york", spans=[span(4, 8), span(0, 4)])])
    assert tags_of(built, sample) == ["B-LOC", "I-LOC", "B-LOC"]


@pytest.mark.parametrize(
    ("spans", "tags", "notes"),
    [
        ([span(7, 9)], ["O", "B-LOC", "O"], ["1 spans cut a word and were widened to whole words"]),
        ([span(0, 8)], ["B-LOC", "I-LOC", "O"], ["1 spans cut a word and were widened to whole words"]),
        ([span(4, 17)], ["O", "B-LOC", "O"], []),
        ([span(4, 5)], ["O", "O", "O"], ["1 spans have no word of their own and are not learnt"]),
        (
            [span(5, 8), span(8, 17, "PER")],
            ["O", "B-LOC", "O"],
            [
                "1 spans cut a word and were widened to whole words",
                "1 spans have no word of their own and are not learnt",
            ],
        ),
    ],
)
def test_a_word_that_is_cut_belongs_to_the_span_as_a_whole(part, record, spans, tags, notes):
    """Inside of "unbelievably" or from its middle on; of two spans to the first; spaces around don't matter."""
    built = part()
    (sample,) = built.samples([record(text="Anna unbelievably york", spans=spans)])
    assert tags_of(built, sample) == tags
    assert built.notes() == notes
    assert built.notes() == []


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([span(0, 4), span(3, 6, "PER")], '0 to 4 ("LOC") and 3 to 6 ("PER") overlap, but a word has one tag'),
        ([span(0, 10), span(5, 9)], '0 to 10 ("LOC") and 5 to 9 ("LOC") overlap, but a word has one tag'),
        ([span(0, 4), span(0, 11)], "span 2: 0 to 11 is no part of the text, which has 10 characters"),
        ([span(3, 3)], "span 1: 3 to 3 is no part of the text, which has 10 characters"),
        ([span(-1, 3)], "span 1: -1 to 3 is no part of the text, which has 10 characters"),
        (
            [span(start=True, end=3)],
            'span 1: expected an object with start, end and label, got the object {"start": true, ',
        ),
        ([[0, 3, "LOC"]], 'span 1: expected an object with start, end and label, got the list [0, 3, "LOC"]'),
        ([span(0, 3, None)], "expected a label (text or an integer), got null"),
        ([span(0, 4, "ORG")], 'unknown label "ORG"; the labels are "LOC", "PER"'),
        ("LOC", 'expected a list of spans, got the text "LOC"'),
    ],
)
def test_bad_spans_are_an_error_with_their_place(part, record, spans, message):
    """Overlapping and nested ones, those outside of the text, and what is no span at all."""
    with pytest.raises(DataError) as caught:
        list(part().samples([record(text="anna lives", spans=spans)]))
    assert str(caught.value).startswith(f'data.jsonl:7: column "spans": {message}')


def test_words_that_are_cut_off_are_counted(part, record):
    """Three tokens of text fit; two words have no target."""
    built = part(5)
    (sample,) = built.samples([record(text="a b c d a", spans=[span(4, 9)])])
    assert tags_of(built, sample) == ["O", "O", "B-LOC"]
    assert built.notes() == ["2 words cut off by max_length, without a target"]


def test_prediction_needs_no_spans(part, record):
    """Each word has a target that is ignored."""
    (sample,) = part().samples([record(text="a b")], targets=False)
    assert (sample.target_positions.tolist(), sample.targets.tolist()) == ([1, 2], [-100, -100])


def test_a_text_without_words_has_no_targets(part, record):
    """It is a sample of two special tokens, and its answer has no spans."""
    for text in ("", " \n"):
        (sample,) = part().samples([record(text=text, spans=[])])
        assert (len(sample.input_ids), len(sample.targets)) == (2, 0)
        assert part().answers([record(text=text)], [torch.zeros(0, 5)], scores=True) == [{"spans": []}]


def test_labels_of_spans_become_tags(record):
    """Those of the training data, sorted, with every tag that they may need; ``labels`` decides the order."""
    records = [
        record(text="new york", spans=[span(0, 3, "PER")]),
        record(text="new", spans=[span(0, 3), span(0, 0)][:1]),
    ]
    task = TokenClassification(text="text")
    assert task.outputs(records, 25) == OUTPUTS
    assert TokenClassification(text="text", labels=("PER", "LOC")).outputs(records, 25).labels == (
        *("O", "B-PER", "I-PER", "B-LOC", "I-LOC"),
    )
    with pytest.raises(DataError, match='data.jsonl:7: column "spans": unknown label "PER"; the labels are "LOC"$'):
        TokenClassification(text="text", labels=("LOC",)).outputs(records, 25)
    with pytest.raises(InputError, match='column "spans" of the training data has no span'):
        task.outputs([record(text="new", spans=[])], 25)


def test_columns_and_texts(record):
    """Spans are only asked for where there are targets; a tokenizer is trained on the text."""
    task = TokenClassification(text="t", spans="s")
    assert (task.columns(targets=True), task.columns(targets=False)) == (("t", "s"), ("t",))
    assert list(task.texts(record(t="New York"))) == ["New York"]


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("New York, Anna", [span(0, 8), span(10, 14, "PER")]),
        ("😀😀 new york 😀", [span(0, 2), span(3, 11), span(12, 13, "PER")]),
        ("á ANNA Á", [span(0, 1), span(2, 6, "PER"), span(7, 8)]),
        ("a\u0301b a\u0301 b", [span(0, 3), span(4, 6)]),
        ("字字 字", [span(0, 2), span(3, 4, "PER")]),
        ("  new\u00a0york\t a ", [span(2, 10), span(12, 13)]),
        ("ab\u200dc \ufeffd", [span(0, 4), span(6, 7)]),
        ("👨\u200d👩\u200d👧 new", [span(0, 5), span(6, 9, "PER")]),
    ],
)
@pytest.mark.parametrize("kind", ["wordpiece", "byte_level"])
def test_spans_come_back_as_they_were(part, record, byte_level, tokenizer, text, spans, kind):
    """Offsets are characters of the text as it was given, with emoji, accents, control characters and odd spaces."""
    built = part(64, using=tokenizer if kind == "wordpiece" else byte_level)
    given = record(text=text, spans=spans)
    (sample,) = built.samples([given])
    assert built.notes() == []
    expected = [{**one, "text": text[one["start"] : one["end"]]} for one in spans]
    assert answered(built, given, tags_of(built, sample)) == expected


def test_random_spans_of_words_come_back(part, record, random_words):
    """200 random texts of words with spaces, and spans of whole words in them."""
    built = part(400)
    draw = np.random.default_rng(3)
    for drawn in random_words(200, seed=8):
        words = [word for word in drawn if word not in ("\u200d", "\ufffd")]
        ends = np.cumsum([len(word) + 1 for word in words]) - 1
        borders = np.sort(draw.choice(len(words) + 1, size=min(4, len(words) + 1) // 2 * 2, replace=False))
        spans = [
            span(int(ends[a] - len(words[a])), int(ends[b - 1]), str(draw.choice(["LOC", "PER"])))
            for a, b in borders.reshape(-1, 2)
        ]
        given = record(text=" ".join(words), spans=spans)
        (sample,) = built.samples([given])
        found = answered(built, given, tags_of(built, sample))
        expected = [{**one, "text": given.values["text"][one["start"] : one["end"]]} for one in spans]
        assert found == expected


def test_a_spans_score_is_the_mean_of_its_words(part, record):
    """Probabilities 1/2 and 1/3 make 5/12."""
    rows = torch.zeros(2, 5)
    rows[0, 3], rows[1, 4] = math.log(4.0), math.log(2.0)
    (answer,) = part().answers([record(text="a b")], [rows], scores=True)
    assert answer["spans"] == [{**span(0, 3, "PER"), "text": "a b", "score": pytest.approx(5 / 12, abs=1e-7)}]


def test_a_text_in_parts_is_the_same_text(part, record, random_words, monkeypatch):
    """A long text that is encoded in parts of 30 characters has the ids and spans of one that is encoded at once."""
    texts = ["  ".join(words) + " " + " ".join(words) for words in random_words(50, seed=2)]
    whole = list(part(4000).samples([record(text=text, spans=[]) for text in texts]))
    places = [
        part(4000).answers([record(text=t)], [predict_all(s)], scores=False) for t, s in zip(texts, whole, strict=True)
    ]
    monkeypatch.setattr(long_texts, "_PART", 30)
    for text, sample, expected in zip(texts, whole, places, strict=True):
        (other,) = part(4000).samples([record(text=text, spans=[])])
        assert other.input_ids.tolist() == sample.input_ids.tolist()
        assert other.target_positions.tolist() == sample.target_positions.tolist()
        assert part(4000).answers([record(text=text)], [predict_all(sample)], scores=False) == expected


def predict_all(sample):
    """Logits that predict a span at every word."""
    return torch.eye(5)[[1]].repeat(len(sample.targets), 1)
