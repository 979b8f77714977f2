"""The data beside the ready pipelines: what their READMEs promise, and that ``scripts/make_data.py`` makes them."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from rtx_plugins.data.jsonl import Jsonl
from rtx_plugins.data.text import Text

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "pipelines" / "data"


@pytest.fixture(scope="module")
def nouns():
    """Text and label of each row, by set."""
    return {
        name: [
            (record.values["text"], record.values["label"])
            for record in Jsonl(files=(DATA / "nouns" / f"{name}.jsonl",)).records()
        ]
        for name in ("train", "eval", "test")
    }


def test_nouns_have_the_promised_sizes_and_labels(nouns):
    """8,000 rows to train on, 1,000 to evaluate, 1,000 to test, of four kinds each."""
    assert {name: len(rows) for name, rows in nouns.items()} == {"train": 8000, "eval": 1000, "test": 1000}
    for rows in nouns.values():
        assert {label for _, label in rows} == {"animal", "food", "person", "plant"}


def test_no_definition_stands_twice(nouns):
    """Neither within a set nor in two of them, however it is spelt."""
    texts = [" ".join(text.casefold().split()) for rows in nouns.values() for text, _ in rows]
    assert max(Counter(texts).values()) == 1


def test_moby_dick_holds_out_whole_chapters():
    """Every tenth chapter is in the evaluation set alone; together they are the 135 of the book."""
    chapters = {}
    for name in ("train", "eval"):
        records = Text(files=(DATA / "moby_dick" / f"{name}.txt",), unit="paragraph").records()
        headings = [r.values["text"].split()[1] for r in records if r.values["text"].startswith("CHAPTER ")]
        chapters[name] = [int(number.rstrip(".")) for number in headings]
    assert chapters["eval"] == list(range(10, 136, 10))
    assert sorted(chapters["train"] + chapters["eval"]) == list(range(1, 136))


def test_every_data_set_has_its_licence_and_description():
    """``LICENSE`` and ``README.md`` stand beside the files."""
    for folder in DATA.iterdir():
        assert (folder / "LICENSE").stat().st_size > 0
        assert (folder / "README.md").stat().st_size > 0


def make(data_set, package, output):
    """Run the script as its docstring says."""
    command = [sys.executable, ROOT / "scripts" / "make_data.py", data_set, package, "--output", output]
    subprocess.run(command, check=True, timeout=60)


def test_nouns_are_made_from_the_database(tmp_path):
    """Only the four kinds; without examples, insults, repetitions, and definitions under two labels."""
    lines = ["  1 The licence.  "]
    for number, (kind, gloss) in enumerate(
        [
            ("05", 'a beast; large; "the beast ran"'),
            ("13", "a dish"),
            ("13", "a dish"),
            ("03", "an entity"),
            ("05", "one species"),
            ("20", "one species"),
            ("18", "(slang) offensive term for a person"),
            ("20", "a plant with an offensive smell"),
            *(("18", f"person {number}") for number in range(10_000)),
        ]
    ):
        lines.append(f"{number:08} {kind} n 01 word 0 000 | {gloss}  ")
    (tmp_path / "dict").mkdir()
    (tmp_path / "dict" / "data.noun").write_text("\n".join(lines) + "\n")
    make("nouns", tmp_path, tmp_path / "out")
    folder = tmp_path / "out" / "nouns"
    made = "".join((folder / f"{name}.jsonl").read_text() for name in ("train", "eval", "test"))
    rows = [json.loads(line) for line in made.splitlines()]
    others = {row["text"]: row["label"] for row in rows if row["label"] != "person"}
    assert (
        others.items()
        <= {"a beast; large": "animal", "a dish": "food", "a plant with an offensive smell": "plant"}.items()
    )
    assert len({row["text"] for row in rows}) == 10_000
    assert (folder / "LICENSE").read_text() == "The licence.\n"


def test_moby_dick_is_cut_at_its_chapters(tmp_path):
    """Chapters go whole to one of the two files; verse keeps its indentation."""
    text = "".join(f"CHAPTER {number}. Title.\n\nText {number}\nof it. \n\n\n     Verse\n\n" for number in (9, 10, 11))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "data.txt").write_text(text)
    make("moby_dick", tmp_path, tmp_path / "out")
    made = {name: (tmp_path / "out" / "moby_dick" / f"{name}.txt").read_text() for name in ("train", "eval")}
    chapter = "CHAPTER {0}. Title.\n\nText {0}\nof it.\n\n     Verse\n"
    assert made == {"train": "\n".join(map(chapter.format, (9, 11))), "eval": chapter.format(10)}
