#!/usr/bin/env python3
"""What a linear model reaches on the data of ``fetch_data.py``, for comparison with a fine-tuned one.

    python scripts/linear_baseline.py sms data/sms
    python scripts/linear_baseline.py all data

Texts become TF-IDF of words and pairs of words; words of an address, themselves and their neighbours. On that stands a
logistic regression, for numbers a ridge, of scikit-learn. It learns from ``train.jsonl`` and ``eval.jsonl``, since
nothing is chosen by the latter, and is measured on ``test.jsonl``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, f1_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer

Record = dict[str, Any]


def rows(folder: Path, *sets: str) -> list[Record]:
    """The records of some sets of a folder."""
    return [
        json.loads(line)
        for name in sets
        for line in (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def of_text(estimator: Any) -> Pipeline:
    """A linear model on TF-IDF."""
    return make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), estimator)


def pearson(expected: np.ndarray, predicted: np.ndarray) -> float:
    """Pearson's correlation."""
    return float(np.corrcoef(expected, predicted)[0, 1])


def of_texts(records: list[Record], target: str) -> tuple[list[str], list[Any]]:
    """Texts and their targets."""
    return [record["text"] for record in records], [record[target] for record in records]


def of_words(records: list[Record], _: str) -> tuple[list[dict[str, str]], list[str]]:
    """Features and tag of each word of each record."""
    features = [found for record in records for found in neighbours(record["words"])]
    return features, [tag for record in records for tag in record["tags"]]


def neighbours(words: list[str]) -> Iterator[dict[str, str]]:
    """Of each word what it says, its shape, its end, and the words beside it."""
    lower = ["<start>", *(word.lower() for word in words), "<end>"]
    for i, word in enumerate(words):
        before, itself, after = lower[i : i + 3]
        shape = "".join("9" if c.isdigit() else "a" if c.isalpha() else c for c in word)
        yield {"word": itself, "before": before, "after": after, "shape": shape, "end": itself[-3:]}


@dataclass(frozen=True)
class Baseline:
    """A model, what it is given, and what is measured."""

    model: Callable[[], Any]
    target: str
    metric: str
    measure: Callable[[Any, Any], float]
    read: Callable[[list[Record], str], tuple[Any, Any]] = of_texts


def logistic() -> LogisticRegression:
    """The classifier of each."""
    return LogisticRegression(C=10, max_iter=1000)


BASELINES = {
    "nouns": Baseline(lambda: of_text(logistic()), "label", "accuracy", accuracy_score),
    "sms": Baseline(lambda: of_text(logistic()), "label", "f1_macro", partial(f1_score, average="macro")),
    "tweets": Baseline(lambda: of_text(Ridge()), "rating", "pearson", pearson),
    "topics": Baseline(lambda: of_text(logistic()), "topic", "accuracy", accuracy_score),
    "addresses": Baseline(
        lambda: make_pipeline(DictVectorizer(), logistic()), "tags", "accuracy", accuracy_score, of_words
    ),
    "tags": Baseline(
        lambda: of_text(OneVsRestClassifier(logistic())), "tags", "f1_micro", partial(f1_score, average="micro")
    ),
}


def measured(name: str, folder: Path) -> float:
    """Learn and measure."""
    baseline = BASELINES[name]
    texts, targets = baseline.read(rows(folder, "train", "eval"), baseline.target)
    asked, expected = baseline.read(rows(folder, "test"), baseline.target)
    if isinstance(targets[0], list):
        labels = MultiLabelBinarizer().fit(targets)
        targets, expected = labels.transform(targets), labels.transform(expected)
    return baseline.measure(expected, baseline.model().fit(texts, targets).predict(asked))


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description="Measure a linear model on fetched data.")
    parser.add_argument("name", choices=[*BASELINES, "all"])
    parser.add_argument("folder", type=Path, help="what fetch_data.py made, as data/sms; of all, the folder of folders")
    arguments = parser.parse_args()
    folder = arguments.folder
    wanted = {name: folder / name for name in BASELINES} if arguments.name == "all" else {arguments.name: folder}
    for name, found in wanted.items():
        print(f"{name}  {BASELINES[name].metric} {measured(name, found):.4f}")  # noqa: T201 - the result


if __name__ == "__main__":
    main()
