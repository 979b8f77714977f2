"""``scripts/linear_baseline.py``: a linear model on made rows whose targets a single word decides."""

import json

import pytest

WORDS = {"red": 3.0, "blue": -3.0, "green": 1.0}


def record(word, number, name):
    """A row of a data set with a target that the word decides."""
    text = f"{word} thing number {number}"
    return {
        "nouns": {"text": text, "label": word},
        "sms": {"text": text, "label": word},
        "tweets": {"text": text, "rating": WORDS[word]},
        "topics": {"text": text, "topic": word},
        "addresses": {"words": [word, "12"], "tags": [word, f"after-{word}"]},
        "tags": {"text": text, "tags": [word] if word != "green" else ["red", "blue"]},
    }[name]


def write(folder, name, sizes, change=lambda row: row):
    """The three files of a data set."""
    for part, size in sizes.items():
        found = [change(record(word, i, name)) for i in range(size) for word in WORDS]
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))


@pytest.fixture
def script(load):
    """The script as a module."""
    return load("linear_baseline")


@pytest.mark.parametrize("name", ["nouns", "sms", "tweets", "topics", "addresses", "tags"])
def test_it_learns_what_a_word_decides(script, tmp_path, name):
    """Every metric is 1 where targets follow from the words; a ridge shrinks but keeps the line."""
    write(tmp_path, name, {"train": 20, "eval": 5, "test": 5})
    assert script.measured(name, tmp_path) == pytest.approx(1.0, abs=0.01 if name == "tweets" else 0.0)


def test_it_is_measured_on_the_test_set_alone(script, tmp_path):
    """A test set with one label for all: right for one word of three."""
    write(tmp_path, "sms", {"train": 20, "eval": 5})
    write(tmp_path, "sms", {"test": 5}, lambda row: row | {"label": "red"})
    # F1 of red: 2·5 / (2·5 + 0 + 10) = 1/2; of the two that are predicted and never right, 0.
    assert script.measured("sms", tmp_path) == pytest.approx(0.5 / 3)


def test_the_evaluation_rows_are_learnt_from(script, tmp_path):
    """A label that stands in ``eval.jsonl`` alone is known."""
    write(tmp_path, "sms", {"train": 20, "test": 5})
    (tmp_path / "eval.jsonl").write_text(json.dumps({"text": "yellow", "label": "yellow"}) + "\n")
    (tmp_path / "test.jsonl").write_text(json.dumps({"text": "yellow", "label": "yellow"}) + "\n")
    assert script.measured("sms", tmp_path) == 1.0


def test_the_command_prints_one_line(script, tmp_path, monkeypatch, capsys):
    """The data set, the metric and its value."""
    write(tmp_path, "topics", {"train": 10, "eval": 2, "test": 2})
    monkeypatch.setattr("sys.argv", ["linear_baseline.py", "topics", str(tmp_path)])
    script.main()
    assert capsys.readouterr().out == "topics  accuracy 1.0000\n"
