"""Spans and windows of a kept model against transformers' token-classification pipeline on the same folder."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from rtx_core import Record, inference
from rtx_core.cli import main
from rtx_core.registry import Registry

NOUNS = Path(__file__).parents[2] / "pipelines" / "data" / "nouns"
TOLERANCE = 1e-5
"""Of a probability or a logit: the two add float32 numbers in another order."""

PIPELINE = """\
[task]
type = "token_classification"
text = "text"
max_length = 32
[data]
type = "spans"
[data.train]
files = ["train.jsonl"]
[tokenizer]
type = "wordpiece"
vocab_size = 1500
[architecture]
type = "bert"
hidden_size = 32
num_hidden_layers = 2
num_attention_heads = 4
intermediate_size = 64
max_position_embeddings = 32
[optimizer]
lr = 1e-2
[training]
duration = "30 steps"
batch_size = 25
threads = 1
"""
STRIDE = 10


def definitions(name, count):
    with (NOUNS / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in itertools.islice(lines, count)]


def spelt(text):
    """A text with its runs of long words and its runs of short ones as spans."""
    spans = [
        {"start": found.start(), "end": found.end(), "label": found.lastgroup}
        for found in re.finditer(r"(?P<LONG>\w{7,}( \w{7,})*)|(?P<TINY>\b\w{1,2}( \w{1,2})*\b)", text)
    ]
    return {"text": text, "spans": spans}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that was trained for a few steps."""
    folder = tmp_path_factory.mktemp("spans")
    rows = [spelt(text) for text in definitions("train", 300)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "spans.toml").write_text(PIPELINE, encoding="utf-8")
    assert main(["run", str(folder / "spans.toml"), "--output", str(folder / "run"), "--quiet"]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def windows(run):
    """The same run, which reads long texts in windows: an edit of its resolved.toml."""
    text = (run / "resolved.toml").read_text(encoding="utf-8")
    changed = text.replace('long_text = "truncate"', f'long_text = "windows"\nstride = {STRIDE}')
    assert changed != text
    (run / "resolved.toml").write_text(changed, encoding="utf-8")
    ours = inference.load(run, Registry.discover())
    (run / "resolved.toml").write_text(text, encoding="utf-8")
    return ours


def their_pipeline(run, strategy, **options):
    return transformers.pipeline(
        "token-classification", model=str(run / "model"), aggregation_strategy=strategy, device="cpu", **options
    )


def our_spans(ours, texts, *, scores):
    records = [Record({"text": text}, "texts", number) for number, text in enumerate(texts, start=1)]
    return [answer["spans"] for answer in ours.answers(records, scores=scores)]


def plain(entities):
    """Their entities under our names, without the words and the scores."""
    return [{"start": e["start"], "end": e["end"], "label": e["entity_group"]} for e in entities]


def without(spans, *names):
    return [{name: value for name, value in span.items() if name not in names} for span in spans]


@pytest.mark.parametrize("strategy", ["first", "simple"])
def test_spans_are_those_of_the_pipeline(run, strategy):
    """Of definitions that fit: places, labels, texts and scores; "simple" of texts whose words are a token each."""
    ours, theirs = inference.load(run, Registry.discover()), their_pipeline(run, strategy)
    texts = definitions("eval", 200) if strategy == "first" else texts_of_tokens(theirs.tokenizer, 100, 4, 20)
    texts = [text for text in texts if len(theirs.tokenizer.tokenize(text)) <= 30]
    expected = [theirs(text) for text in texts]
    found = our_spans(ours, texts, scores=True)
    assert [without(spans, "score", "text") for spans in found] == [plain(entities) for entities in expected]
    assert [s["text"] for t in found for s in t] == [
        text[e["start"] : e["end"]] for text, entities in zip(texts, expected, strict=True) for e in entities
    ]
    scores, of_theirs = ([one["score"] for spans in rows for one in spans] for rows in (found, expected))
    np.testing.assert_allclose(scores, of_theirs, rtol=0, atol=TOLERANCE)
    assert len(texts) >= 90
    assert len(scores) > 2 * len(texts)


def texts_of_tokens(tokenizer, count, fewest, most):
    """Random texts of words that are a token each."""
    words = sorted({word for text in definitions("train", 300) for word in re.findall("[a-z]+", text)})
    words = [word for word in words if tokenizer.tokenize(word) == [word]]
    draw = np.random.default_rng(1)
    return [" ".join(draw.choice(words, draw.integers(fewest, most))) for _ in range(count)]


def their_windows(theirs, text):
    """The logits of each window without its special tokens, and the place in the text of its first token."""
    encoded = theirs.tokenizer(
        text, truncation=True, stride=STRIDE, return_overflowing_tokens=True, padding=True, return_tensors="pt"
    )
    encoded.pop("overflow_to_sample_mapping")
    with torch.no_grad():
        logits = theirs.model(**encoded).logits
    lengths = encoded["attention_mask"].sum(1).tolist()
    step = theirs.tokenizer.model_max_length - 2 - STRIDE
    return [
        (number * step, rows[1 : length - 1]) for number, (rows, length) in enumerate(zip(logits, lengths, strict=True))
    ]


def test_each_word_has_the_logits_of_the_window_with_most_context(run, windows):
    """Of long texts in windows that share 10 tokens, as transformers cuts and computes them."""
    theirs = their_pipeline(run, "first", stride=STRIDE)
    texts = texts_of_tokens(theirs.tokenizer, 40, 60, 120)
    ours = windows.logits(Record({"text": text}, "texts", number) for number, text in enumerate(texts, start=1))
    for text, rows in zip(texts, ours, strict=True):
        cut = their_windows(theirs, text)
        assert len(cut) > 2
        expected = []
        for word in range(len(rows)):
            there = [(start, part) for start, part in cut if start <= word < start + len(part)]
            start, part = max(there, key=lambda one: min(word - one[0], one[0] + len(one[1]) - 1 - word))
            expected.append(part[word - start])
        torch.testing.assert_close(rows, torch.stack(expected), rtol=0, atol=TOLERANCE)


def test_spans_of_windows_are_those_of_the_pipeline(run, windows):
    """Of long texts in which windows that share words agree on their tags, so that no rule has to choose."""
    theirs = their_pipeline(run, "first", stride=STRIDE)
    texts = texts_of_tokens(theirs.tokenizer, 100, 35, 90)
    texts = [text for text in texts if windows_agree(their_windows(theirs, text))]
    assert len(texts) >= 20
    found = our_spans(windows, texts, scores=False)
    assert [without(spans, "text") for spans in found] == [plain(theirs(text)) for text in texts]
    assert any(span["end"] > 200 for spans in found for span in spans)


def windows_agree(cut):
    """Whether windows give each word that they share the same tag."""
    tags = {}
    for start, part in cut:
        for word, tag in enumerate(part.argmax(-1).tolist(), start=start):
            tags.setdefault(word, set()).add(tag)
    return all(len(found) == 1 for found in tags.values())
