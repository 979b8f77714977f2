"""``check --data``: what a pipeline's data are like, and what is odd about them."""

from __future__ import annotations

import json

import pytest

ODD = [
    {"text": "red thing", "label": "warm"},
    {"text": "red thing", "label": "cold"},
    {"text": "", "label": "cold"},
    {"text": "blue thing", "label": "cold"},
]


@pytest.fixture
def odd(folder):
    """The job with odd training data; the evaluation data are 20 other texts of both labels."""
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ODD))
    return folder


def test_each_set_is_a_line_on_stdout(rtx, folder):
    """Records, tokens, lengths and labels; the evaluation data are records of the training data here."""
    done = rtx("check", "--data", "colours.toml")
    assert done.status == 0
    first, training, evaluation, test = done.out.splitlines()
    assert first == "colours.toml: ok"
    assert training.startswith("training: 50 records · ")
    assert training.endswith(" · labels: cold 25, warm 25")
    assert evaluation.startswith("eval: 20 records · ")
    assert test.startswith("test: 20 records · ")
    assert "eval: 20 records with texts of the training data too (100.0%)" in done.err


def test_what_is_odd_is_told_on_stderr(rtx, odd):
    """With the place of an empty text."""
    err = rtx("check", "--data", "colours.toml").err
    assert "training: 1 record without text, the first at" in err
    assert "train.jsonl:3" in err
    assert "training: 1 record with the texts of an earlier one (25.0%)" in err
    assert "training: 1 text with more than one label" in err


def test_an_oddity_can_be_an_error(rtx, odd):
    """Exit status 2, for ``check --data`` and for a run before anything is made."""
    setting = ("--set", "data.lint.contradictions=error")
    for command in (("check", "--data"), ("run",)):
        done = rtx(*command, "colours.toml", *setting)
        assert done.status == 2
        assert "training: 1 text with more than one label (data.lint.contradictions)" in done.err
    assert not (odd / "runs").exists()


def test_a_program_can_read_it(rtx, odd):
    """``--json`` has the counts of each set and the oddities with their levels."""
    quiet = ("--set", "data.lint.cut=off", "--set", "data.lint.unknown_tokens=off")
    data = json.loads(rtx("check", "--data", "--json", "colours.toml", *quiet).out)["data"]
    assert data["sets"]["training"]["labels"] == {"warm": 1, "cold": 3}
    levels = {one["name"]: one["level"] for one in data["oddities"]}
    assert levels == {"empty": "warning", "contradictions": "warning", "duplicates": "note"}


def test_a_second_start_tells_the_same(rtx, odd):
    """Out of the cache."""
    first = rtx("check", "--data", "colours.toml")
    second = rtx("check", "--data", "colours.toml")
    assert [line for line in second.err.splitlines() if "training:" in line] == [
        line for line in first.err.splitlines() if "training:" in line
    ]
    assert second.out == first.out
