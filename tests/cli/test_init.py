"""``init``: what it makes of columns that nobody named, and that its pipelines are valid and train."""

from __future__ import annotations

import csv
import json
import random

import pytest
import tomli

ANIMALS = ["the cat sat on a mat", "a dog barks at night", "two horses run fast", "the cow eats green grass"]
PLANTS = ["an oak with big leaves", "the rose has red petals", "a fern grows in shade", "tall grass near the lake"]


def table(path, header, rows):
    """Write a CSV file."""
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])


def lines(path, rows):
    """Write JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def sentences(count):
    """Rows of a text and its kind, in an order that is always the same."""
    chance = random.Random(5)  # noqa: S311 - it only shuffles
    rows = [(f"{chance.choice(ANIMALS)} {chance.randrange(1000)}", "animal") for _ in range(count)]
    rows += [(f"{chance.choice(PLANTS)} {chance.randrange(1000)}", "plant") for _ in range(count)]
    chance.shuffle(rows)
    return rows


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def proposed(rtx, tmp_path):
    """Propose a pipeline for a file of the working directory, check it, and return it as data."""

    def propose(name):
        done = rtx("init", name)
        assert done.status == 0, done.err
        (pipeline,) = tmp_path.glob("*.toml")
        assert done.out == f"rtx run {pipeline.name}\n"
        assert rtx("check", pipeline.name).status == 0
        return tomli.loads(pipeline.read_text(encoding="utf-8"))

    return propose


# --- columns ----------------------------------------------------------------------------------------------------------


def test_text_and_label_are_told_apart_by_what_they_hold(proposed, tmp_path):
    """Among an identifier, a date, a text and a label with names that say nothing, text and label are found."""
    rows = [(f"{i:032x}", f"2024-01-{i % 28 + 1:02}", text, kind) for i, (text, kind) in enumerate(sentences(200))]
    table(tmp_path / "a.csv", ["w", "x", "y1", "z"], rows)
    pipeline = proposed("a.csv")
    assert pipeline["task"]["type"] == "sequence_classification"
    assert (pipeline["task"]["text"], pipeline["task"]["label"]) == ("y1", "z")
    assert pipeline["data"]["type"] == "csv"
    assert pipeline["data"]["split"] == {"eval": 0.1, "test": 0.05, "stratify": True}
    assert pipeline["data"]["train"] == {"files": ["a.csv"]}
    assert pipeline["training"]["monitor"] == "eval/accuracy"


def test_a_column_called_label_is_the_label(proposed, tmp_path):
    """Where several columns could be the label, the one that is called so is taken; the comment names the others."""
    rows = [(kind, text, ["de", "en", "fr"][i % 3]) for i, (text, kind) in enumerate(sentences(60))]
    table(tmp_path / "a.csv", ["label", "text", "language"], rows)
    assert proposed("a.csv")["task"]["label"] == "label"
    assert "# Others could be it too: " in (tmp_path / "a.toml").read_text()


def test_a_file_that_is_sorted_by_label_has_a_label(proposed, tmp_path):
    """Rows are looked at to the end, so a label that changes once in 12,000 rows is seen."""
    lines(tmp_path / "a.jsonl", [{"t": f"text number {i} here", "k": i // 6000} for i in range(12_000)])
    pipeline = proposed("a.jsonl")
    assert (pipeline["task"]["text"], pipeline["task"]["label"]) == ("t", "k")


def test_two_texts_are_a_pair(proposed, tmp_path):
    """A premise and a hypothesis of similar length are read together, in the order of the file."""
    rows = [
        {"premise": f"{text} and number {i} too", "hypothesis": f"there is {text} {i}", "gold": i % 2}
        for i, (text, _) in enumerate(sentences(50))
    ]
    lines(tmp_path / "a.jsonl", rows)
    assert proposed("a.jsonl")["task"]["text"] == ["premise", "hypothesis"]


def test_a_title_is_no_second_text(proposed, tmp_path):
    """A short text beside a long one is left out."""
    rows = [(f"title {i}", f"{text} {text} {text} {text}", kind) for i, (text, kind) in enumerate(sentences(50))]
    table(tmp_path / "a.csv", ["title", "body", "kind"], rows)
    assert proposed("a.csv")["task"]["text"] == "body"


def test_rare_labels_are_measured_by_f1(proposed, tmp_path):
    """With one label in twenty, accuracy would be 0.95 for a model that has learnt nothing."""
    table(
        tmp_path / "a.csv", ["a", "b"], [(f"text number {i}", "rare" if i % 20 == 0 else "often") for i in range(400)]
    )
    assert proposed("a.csv")["training"]["monitor"] == "eval/f1_macro"


def test_lists_of_the_same_length_are_words_and_tags(proposed, tmp_path):
    """The list with more different items holds the words."""
    rows = [{"t": ["O", "B", "O"], "w": [f"word{i}", f"name{i}", "."], "id": i} for i in range(40)]
    lines(tmp_path / "a.jsonl", rows)
    pipeline = proposed("a.jsonl")
    task = pipeline["task"]
    assert (task["type"], task["words"], task["tags"]) == ("token_classification", "w", "t")
    assert pipeline["training"]["monitor"] == "eval/f1_macro"  # most words are O, so accuracy says little


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_many_different_numbers_are_a_target(proposed, tmp_path, name):
    """Beside a text, a number of the row and a code, prices are what regression learns; text or JSON numbers."""
    rows = [
        {"id": i, "code": f"{i:04}x", "text": text, "euros": round(10 + 7.31 * (i % 90), 2)}
        for i, (text, _) in enumerate(sentences(60))
    ]
    if name == "a.csv":
        table(tmp_path / name, list(rows[0]), [list(row.values()) for row in rows])
    else:
        lines(tmp_path / name, rows)
    pipeline = proposed(name)
    assert pipeline["task"]["type"] == "regression"
    assert (pipeline["task"]["text"], pipeline["task"]["target"]) == ("text", "euros")
    assert pipeline["training"]["monitor"] == "eval/mae"
    assert pipeline["data"]["split"] == {"eval": 0.2, "test": 0.1}


def test_similarities_of_pairs_are_numbers(proposed, tmp_path):
    """26 scores from 0 to 5 in steps of 0.2 are a quantity, though each occurs as often as a label would."""
    rows = [(f"{t} number {i} too", f"there is {t} {i}", (i % 26) / 5) for i, (t, _) in enumerate(sentences(150))]
    table(tmp_path / "a.csv", ["one", "other", "score"], rows)
    task = proposed("a.csv")["task"]
    assert (task["type"], task["text"], task["target"]) == ("regression", ["one", "other"], "score")


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_the_delimiter_is_recognised(proposed, rtx, tmp_path, mark):
    """A file that spreadsheets write with another character than a comma is read with it, commas in texts or not."""
    rows = [f"well, {text}{mark}{kind}" for text, kind in sentences(30)]
    (tmp_path / "a.csv").write_text("\n".join([f"text{mark}label", *rows]) + "\n")
    pipeline = proposed("a.csv")
    assert pipeline["data"]["delimiter"] == mark
    assert (pipeline["task"]["text"], pipeline["task"]["label"]) == ("text", "label")
    assert rtx("plan", "a.toml").status == 0


def test_a_comma_wins_where_both_stand_in_the_header(proposed, tmp_path):
    """``text,a;b`` has two columns either way; the usual character is kept and not written."""
    table(tmp_path / "a.csv", ["text", "a;b"], sentences(30))
    assert "delimiter" not in proposed("a.csv")["data"]


def test_labels_that_are_all_different_are_said_to_be_none(rtx, tmp_path):
    """Language alone is learnt then, and one line says why."""
    table(tmp_path / "a.csv", ["text", "label"], [(f"{ANIMALS[i % 4]} {i}", f"class {i}") for i in range(60)])
    done = rtx("init", "a.csv")
    note, _ = done.err.splitlines()
    assert note == (
        "note: no label was found, so the pipeline learns language alone (masked_lm): "
        '"label" has 60 different values in 60 rows'
    )
    assert tomli.loads((tmp_path / "a.toml").read_text())["task"]["type"] == "masked_lm"


def test_text_without_labels_is_language(proposed, tmp_path):
    """Every text is another and there is nothing else: masked_lm on that column."""
    table(tmp_path / "a.csv", ["n", "words"], [(i, f"{ANIMALS[i % 4]} number {i}") for i in range(100)])
    task = proposed("a.csv")["task"]
    assert (task["type"], task["text"]) == ("masked_lm", "words")


@pytest.mark.parametrize(("gap", "unit"), [("\n\n", "paragraph"), ("\n", "line")])
def test_plain_text_is_read_as_it_is_written(proposed, tmp_path, gap, unit):
    """Blocks of lines between blank lines are paragraphs; without them each line is a text."""
    (tmp_path / "a.txt").write_text(gap.join("one line\nanother line\na third" for _ in range(60)))
    pipeline = proposed("a.txt")
    assert pipeline["task"]["type"] == "masked_lm"
    assert (pipeline["data"]["type"], pipeline["data"]["unit"]) == ("text", unit)


def test_the_length_leaves_room_for_nearly_every_text(proposed, tmp_path):
    """max_length is a multiple of 16 above the words and marks of 99 % of the texts, also without spaces."""
    rows = [("龍" * (30 if i % 50 else 300), "ab"[i % 2]) for i in range(100)]
    table(tmp_path / "a.csv", ["a", "b"], rows)
    length = proposed("a.csv")["task"]["max_length"]
    assert length % 16 == 0
    assert length >= 300 + 2  # 2 % have 300 characters


def test_names_may_hold_anything(proposed, tmp_path):
    """Quotes, line ends and brackets in names of columns and labels do no harm to the TOML file."""
    rows = [(text, f'{kind}\n"] #') for text, kind in sentences(40)]
    table(tmp_path / "a.csv", ['te"xt\n= 1', "[label]"], rows)
    task = proposed("a.csv")["task"]
    assert (task["text"], task["label"]) == ('te"xt\n= 1', "[label]")


# --- files ------------------------------------------------------------------------------------------------------------


def test_paths_are_relative_to_the_pipeline(rtx, tmp_path):
    """``--output`` in another folder: the data are found from there."""
    (tmp_path / "data").mkdir()
    (tmp_path / "jobs").mkdir()
    table(tmp_path / "data/a.csv", ["a", "b"], sentences(30))
    assert rtx("init", "data/a.csv", "--output", "jobs/first.toml").status == 0
    assert tomli.loads((tmp_path / "jobs/first.toml").read_text())["data"]["train"]["files"] == ["../data/a.csv"]
    assert rtx("check", "jobs/first.toml").status == 0


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("none.csv", None, "none.csv: no such file"),
        ("a.xlsx", "x", "the name must end in one of .csv"),
        ("a.csv", "", "a.csv"),
        ("a.csv", "text,label\n", "a.csv"),
        ("a.csv", "text,label\n" + "some text,a\n" * 5, "5 rows are too few"),
        ("a.csv", "a cat sat,animal\n" + "".join(f"{t},{k}\n" for t, k in sentences(20)), "must name the columns"),
        ("a.jsonl", '{"n": 1}\n' * 30, 'no column holds text to learn from; the columns are "n"'),
        ("a.csv", "text,label\nx\n", "a.csv:2: "),
    ],
)
def test_data_that_cannot_be_used_are_one_line(rtx, tmp_path, name, content, part):
    """Exit status 2, the file's name, and no pipeline is written."""
    if content is not None:
        (tmp_path / name).write_text(content)
    done = rtx("init", name)
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert name in line
    assert part in line
    assert not list(tmp_path.glob("*.toml"))


@pytest.mark.parametrize(
    ("output", "part"),
    [("there.toml", "exists already"), ("a.txt", "ends in .toml"), ("none/a.toml", "there is no folder none")],
)
def test_a_pipeline_that_cannot_be_written_is_one_line(rtx, tmp_path, output, part):
    """A file that exists is never overwritten."""
    table(tmp_path / "a.csv", ["a", "b"], sentences(30))
    (tmp_path / "there.toml").write_text("mine\n")
    done = rtx("init", "a.csv", "--output", output)
    assert done.status == 2
    (line,) = done.err.splitlines()
    assert part in line
    assert (tmp_path / "there.toml").read_text() == "mine\n"


def test_an_existing_pipeline_is_offered_for_its_own_data_alone(rtx, tmp_path):
    """``a.toml`` for ``a.csv`` can be run; for ``a.jsonl``, with the same default name, it would be the wrong one."""
    table(tmp_path / "a.csv", ["a", "b"], sentences(30))
    lines(tmp_path / "a.jsonl", [{"x": text, "y": kind} for text, kind in sentences(30)])
    assert rtx("init", "a.csv").status == 0
    again, other = rtx("init", "a.csv"), rtx("init", "a.jsonl")
    assert (again.status, other.status) == (2, 2)
    assert again.err.strip() == "a.toml exists already; run it with rtx run a.toml, or name another with --output"
    assert other.err.strip() == "a.toml exists already, and not for a.jsonl; name another pipeline with --output"


def test_one_command_from_a_table_to_a_trained_model(rtx, tmp_path):
    """``init --run`` on two unnamed columns trains a model that knows every text of its kind."""
    table(tmp_path / "a.csv", ["x", "y"], sentences(60))
    done = rtx("init", "a.csv", "--run")
    assert done.status == 0, done.err
    answered = rtx("predict", "run:a", "a.csv").out.splitlines()
    right = [row["prediction"] == row["y"] for row in map(json.loads, answered)]
    assert len(right) == 120
    assert all(right)
