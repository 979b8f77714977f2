"""Exact match and F1 of answers against the formulas of SQuAD's scripts, case by case and over whole evaluations."""

import collections
import re
import string

import numpy as np
import pytest
import torch

from rtx_core import Outputs
from rtx_core.components import SpanRole
from rtx_plugins.metrics.answers import Answers, compared
from rtx_plugins.tasks.span_rows import rows_of_text

WORDS = [
    *(
        "The",
        "a",
        "an",
        "the",
        "in",
        "New",
        "york",
        "York,",
        "well-known",
        "the-end",
        "$40",
        "1,000",
        "U.S.A.",
        "A.",
        "--",
    ),
    *("“the", "a–b", "élan", "É", "字", "😀", "ΣΑΣ", "İ", "thé", "x\u00a0a", "don't", "an_the", "Ａ", "\x00"),
]
SPACES = [" ", " ", " ", "  ", "\n", "\u00a0", "\t", ""]


# --- the scripts of SQuAD 1.1 and 2.0, written anew from their formulas -----------------------------------------------


def script_normalised(text):
    text = "".join(character for character in text.lower() if character not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def script_f1(prediction, truth, *, version):
    words, expected = script_normalised(prediction).split(), script_normalised(truth).split()
    same = sum((collections.Counter(words) & collections.Counter(expected)).values())
    if version == 2 and (not words or not expected):
        return float(words == expected)
    if same == 0:
        return 0.0
    precision, recall = 1.0 * same / len(words), 1.0 * same / len(expected)
    return (2 * precision * recall) / (precision + recall)


def script(prediction, truths, *, version):
    """Exact match and F1 of one question. Version 2 leaves out truths of which nothing is left."""
    if version == 2:
        truths = [truth for truth in truths if script_normalised(truth)] or [""]
    exact = max(float(script_normalised(prediction) == script_normalised(truth)) for truth in truths)
    return exact, max(script_f1(prediction, truth, version=version) for truth in truths)


def random_cases(count, seed):
    """Texts with the characters of an answer and of up to three right ones; some have none, some start alike."""
    chance = np.random.default_rng(seed)
    for _ in range(count):
        size = chance.integers(1, 14)
        pieces = [WORDS[number] for number in chance.integers(len(WORDS), size=size)]
        text = "".join(
            piece + SPACES[number]
            for piece, number in zip(pieces, chance.integers(len(SPACES), size=size), strict=True)
        )
        near = int(chance.integers(0, len(text)))

        def span(text=text, near=near):
            first = max(0, near - int(chance.integers(0, 6)))
            return first, min(len(text), first + int(chance.integers(1, 14)))

        references = [span() for _ in range(chance.integers(0, 4))]
        chosen = references[0] if references and chance.random() < 0.3 else span()
        yield text, (0, 0) if chance.random() < 0.15 else chosen, references


def part():
    return Answers().build(Outputs(size=2))


def rows_of(text, references):
    spans = [(SpanRole.REFERENCE, 0, 0, *span) for span in references]
    return np.concatenate([np.array(spans, dtype=np.int64).reshape(-1, 5), rows_of_text(text)])


def counted(cases, sizes):
    """The metric over the cases in batches of these sizes."""
    metric, start = part(), 0
    for size in sizes:
        batch = cases[start : start + size]
        start += size
        rows = [rows_of(text, references) for text, _, references in batch]
        spans = np.concatenate([np.tile(span, (len(own), 1)) for own, (_, span, _) in zip(rows, batch, strict=True)])
        samples = np.repeat(np.arange(len(batch)), [len(own) for own in rows])
        targets = torch.from_numpy(np.concatenate(rows))
        weights = torch.zeros(len(targets))
        metric.update_by_sample(torch.from_numpy(spans), targets, weights, torch.from_numpy(samples))
    assert start == len(cases)
    return metric.compute()


@pytest.mark.parametrize(
    ("answer", "references", "expected"),
    [
        ("The Eiffel Tower!", ["Eiffel tower"], (1.0, 1.0)),
        ("in New York", ["New York", "York"], (0.0, 0.8)),
        ("", [], (1.0, 1.0)),
        ("Paris", [], (0.0, 0.0)),
        ("", ["Paris"], (0.0, 0.0)),
        ("the", [], (1.0, 1.0)),  # nothing is left of it
        ("Paris", ["The"], (0.0, 0.0)),  # nothing is left of the reference
        ("b b b c", ["b b"], (0.0, 2 * 0.5 * 1.0 / 1.5)),
        ("wellknown", ["well-known"], (1.0, 1.0)),
    ],
)
def test_single_answers(answer, references, expected):
    """By hand: case, articles and punctuation don't count, words are counted with repetition, the best reference is."""
    assert compared(answer, references) == expected


def test_both_figures_are_those_of_the_scripts():
    """1,000 random cases, to the bit: those of version 2, and of version 1 where something is left of each text."""
    of_both = 0
    for text, (first, last), references in random_cases(1000, seed=1):
        answer, truths = text[first:last], [text[start:stop] for start, stop in references]
        assert compared(answer, truths) == script(answer, truths, version=2)
        if truths and all(map(script_normalised, [answer, *truths])):
            assert compared(answer, truths) == script(answer, truths, version=1)
            of_both += 1
    assert of_both > 400


@pytest.mark.parametrize("sizes", [(1000,), (1, 332, 667), (100,) * 10])
def test_the_mean_does_not_depend_on_the_batches(sizes):
    """From rows of targets, over 1,000 samples in uneven batches: the exact mean of the script's figures."""
    cases = list(random_cases(1000, seed=2))
    figures = [script(text[a:b], [text[c:d] for c, d in references], version=2) for text, (a, b), references in cases]
    exact, f1 = np.array(figures, dtype=np.longdouble).mean(axis=0)
    found = counted(cases, sizes)
    assert found == counted(cases, (500, 500))
    assert found == counted(cases[::-1], (1000,))
    assert found["exact_match"] == float(exact)
    assert found["answer_f1"] == pytest.approx(float(f1), rel=1e-15)
    assert 0.2 < found["exact_match"] < found["answer_f1"] < 0.8


def test_no_sample_gives_no_figure():
    """Both are NaN, after a reset too."""
    metric = part()
    assert np.isnan(list(metric.compute().values())).all()
    assert metric.compute().keys() == Answers().names().keys()
