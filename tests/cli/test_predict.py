"""``predict``: columns and order stay, answers are added, and nothing is half written."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers

from rtx_core import Record
from rtx_plugins.commands.predict import Answered, write_file


@pytest.fixture
def here(trained, tmp_path, monkeypatch):
    """An empty working directory, with the trained run beside it."""
    monkeypatch.chdir(tmp_path)
    return trained / "runs/colours"


def rows(text):
    """JSON lines as dicts."""
    return [json.loads(line) for line in text.splitlines()]


def test_texts_on_the_command_line_are_answered_on_stdout(rtx, here):
    """Each ``--text`` is a line of JSON with the task's column and the prediction."""
    done = rtx("predict", here, "--text", "red thing", "--text", "blue thing")
    assert (done.status, done.err) == (0, "")
    assert rows(done.out) == [
        {"text": "red thing", "prediction": "warm"},
        {"text": "blue thing", "prediction": "cold"},
    ]


def test_scores_are_probabilities_by_label(rtx, here):
    """``--scores`` adds one probability a label; they sum to 1, and the largest is the prediction's."""
    (row,) = rows(rtx("predict", here, "--text", "red thing", "--scores").out)
    assert sum(row["scores"].values()) == pytest.approx(1.0, abs=1e-6)
    assert max(row["scores"], key=row["scores"].get) == row["prediction"] == "warm"


def test_a_run_may_be_named(rtx, here, trained, monkeypatch):
    """``run:colours`` is ``runs/colours`` in the working directory."""
    monkeypatch.chdir(trained)
    assert rtx("predict", "run:colours", "--text", "red thing").out == rtx("predict", here, "--text", "red thing").out


def test_a_table_keeps_its_columns_and_order(rtx, here, tmp_path):
    """A CSV comes back with every column and row as it was, also ``007``, quotes and an empty field, and one more."""
    written = [["id", "text", "note"], ["007", 'blue, "dark"', ""], ["3", "red\nthing", "NA"], ["1", "", "x"]]
    with (tmp_path / "in.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows(written)
    done = rtx("predict", here, "in.csv", "--output", "out.csv")
    assert (done.status, done.out, done.err) == (0, "", "wrote 3 rows to out.csv\n")
    with (tmp_path / "out.csv").open(newline="") as stream:
        read = list(csv.reader(stream))
    assert [row[:3] for row in read] == written
    assert [row[3] for row in read[:3]] == ["prediction", "cold", "warm"]


def test_tables_stored_by_column_are_answered(rtx, here, tmp_path):
    """Parquet and Arrow input; in strict JSON a date is its text and what is not finite is null."""
    columns = {
        "text": ["red thing", "blue thing"],
        "day": [dt.date(2020, 2, 29), None],
        "values": [[0.5, float("nan")], [float("inf")]],
    }
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    with pa.OSFile(str(tmp_path / "in.feather"), "wb") as out, pa.ipc.new_file(out, pa.table(columns).schema) as writer:
        writer.write_table(pa.table(columns))
    for name in ("in.parquet", "in.feather"):
        assert rows(rtx("predict", here, name).out) == [
            {"text": "red thing", "day": "2020-02-29", "values": [0.5, None], "prediction": "warm"},
            {"text": "blue thing", "day": None, "values": [None], "prediction": "cold"},
        ]


def test_input_is_read_as_the_source_of_its_format_was(rtx, trained, tmp_path, monkeypatch):
    """Of several training sources the one of the input's format says how that is written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.jsonl").write_bytes((trained / "train.jsonl").read_bytes())
    (tmp_path / "more.csv").write_text("text;label\nred, and more;warm\n")
    sources = '[{ files = ["train.jsonl"] }, { type = "csv", files = ["more.csv"], delimiter = ";" }]'
    options = ("--output", "run", "--steps", 1, "--quiet", "--set", f"data.train={sources}")
    assert rtx("run", trained / "colours.toml", *options).status == 0
    (tmp_path / "in.csv").write_text("text;n\nred, and more;1\n")
    (answer,) = rows(rtx("predict", "run", "in.csv").out)
    assert (answer["text"], answer["n"]) == ("red, and more", "1")


def test_formats_follow_the_names_and_agree(rtx, here, tmp_path):
    """jsonl, tsv, txt and gzipped input give the same predictions, in the same order, to any output."""
    texts = [f"{'red' if i % 3 else 'blue'} thing {i}" for i in range(40)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"n": i, "text": t}) + "\n" for i, t in enumerate(texts)))
    (tmp_path / "in.tsv").write_text("text\n" + "".join(t + "\n" for t in texts))
    (tmp_path / "in.txt").write_text("".join(t + "\n" for t in texts))
    with gzip.open(tmp_path / "in.jsonl.gz", "wt") as stream:
        stream.write((tmp_path / "in.jsonl").read_text())
    expected = ["warm" if i % 3 else "cold" for i in range(40)]
    for name in ("in.jsonl", "in.tsv", "in.txt", "in.jsonl.gz"):
        answered = rows(rtx("predict", here, name).out)
        assert [row["prediction"] for row in answered] == expected
        assert [row["text"] for row in answered] == texts
    assert rtx("predict", here, "in.jsonl", "--output", "out.tsv", "--scores").status == 0
    with (tmp_path / "out.tsv").open(newline="") as stream:
        table = list(csv.DictReader(stream, delimiter="\t"))
    assert list(table[0]) == ["n", "text", "prediction", "scores.cold", "scores.warm"]
    assert [row["prediction"] for row in table] == expected
    assert float(table[0]["scores.cold"]) > 0.5


def test_a_taken_name_is_left_to_the_input(rtx, here, tmp_path):
    """Where the input has a column ``prediction``, it stays, the answer gets the next free name, and a note says so."""
    (tmp_path / "in.csv").write_text("text,prediction,prediction_2\nred thing,mine,too\n")
    done = rtx("predict", here, "in.csv")
    assert rows(done.out) == [
        {"text": "red thing", "prediction": "mine", "prediction_2": "too", "prediction_3": "warm"}
    ]
    assert done.err == 'note: the input has a column "prediction"; the answer is in "prediction_3"\n'


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("RUN",), "give either INPUT or --text"),
        (("RUN", "in.csv", "--text", "a"), "give either INPUT or --text"),
        (("none", "in.csv"), "none: no such folder"),
        ((".", "in.csv"), "it has no run.json"),
        (("RUN", "none.csv"), "none.csv: no such file"),
        (("RUN", "folder.csv"), "folder.csv: is a folder"),
        (("RUN", "in.xlsx"), "in.xlsx: the name must end in"),
        (("RUN", "empty.csv"), "empty.csv"),
        (("RUN", "in.csv", "--output", "out.xlsx"), "out.xlsx: the name must end in"),
        (("RUN", "in.csv", "--output", "none/out.csv"), "there is no folder none"),
        (("RUN", "in.csv", "--output", "in.csv/out.csv"), "there is no folder in.csv"),
        (("RUN", "in.csv", "--output", "folder.csv"), "folder.csv: is a folder"),
        (("RUN", "in.csv", "--output", "in.csv"), "is the input too"),
        (("RUN", "other.csv", "--output", "out.csv"), 'no column "text"; the columns are "body"'),
        (("RUN", "bad.jsonl", "--output", "out.csv"), "bad.jsonl:2: "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_cannot_work_is_one_line_and_changes_nothing(rtx, here, tmp_path, arguments, part):
    """Exit status 2, a line that names the file or option, and no new file."""
    (tmp_path / "in.csv").write_text("text\nred thing\n")
    (tmp_path / "other.csv").write_text("body\nred thing\n")
    (tmp_path / "bad.jsonl").write_text('{"text": "red"}\n{"text": \n')
    (tmp_path / "empty.csv").touch()
    (tmp_path / "folder.csv").mkdir()
    before = sorted(tmp_path.rglob("*"))
    done = rtx("predict", *(here if argument == "RUN" else argument for argument in arguments))
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert part in line
    assert sorted(tmp_path.rglob("*")) == before


def test_the_plugin_files_of_the_run_are_asked_for(rtx, folder, mine):
    """A run that was started with ``--plugin`` wants the same file again, or leave to run the copy that it kept."""
    assert rtx("run", "colours.toml", "--steps", "1", "--plugin", mine).status == 0
    refused = rtx("predict", "run:colours-smoke", "--text", "red thing")
    assert (refused.status, refused.out) == (2, "")
    assert "--plugin extra.py" in refused.err
    assert "--trust-run-plugins" in refused.err
    given = rtx("predict", "run:colours-smoke", "--text", "red thing", "--plugin", mine)
    assert given.status == 0
    assert rtx("predict", "run:colours-smoke", "--text", "red thing", "--trust-run-plugins").out == given.out


# --- a damaged folder -------------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(rtx, trained, tmp_path, monkeypatch):
    """Predict with a copy of the run's folder after ``damage(copy)``; the status and the only line on stderr."""
    copy = tmp_path / "copy"
    shutil.copytree(trained / "runs/colours", copy)
    monkeypatch.chdir(tmp_path)

    def predict(damage):
        damage(copy)
        done = rtx("predict", "copy", "--text", "red thing")
        assert done.out == ""
        (line,) = done.err.splitlines()
        return done.status, line

    return predict


def entry(path, value):
    """A change of one entry of run.json, by its dotted name."""

    def change(run):
        record = json.loads((run / "run.json").read_text())
        table = record
        *tables, name = path.split(".")
        for key in tables:
            table = table[key]
        table[name] = value
        (run / "run.json").write_text(json.dumps(record))

    return change


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("max_length", "x", "max_length: expected a whole number from 1, got 'x'"),
        ("max_length", None, "max_length: expected a whole number from 1, got None"),
        ("max_length", 100_000, "max_length: 100000, but the architecture has only 16 usable positions"),
        ("vocab_size", True, "vocab_size: expected a whole number from 1, got True"),
        ("outputs", None, "outputs: expected what rtx wrote there, got None"),
        ("outputs.size", "2", "outputs.size: expected a whole number from 1, got '2'"),
        ("outputs.labels", "ab", "outputs.labels: expected a list of texts, got 'ab'"),
        ("outputs.labels", ["warm"], "outputs.labels: has 1 entries, but the model has 2 outputs"),
        ("outputs.labels", ["a", "b", "c"], "outputs.labels: has 3 entries, but the model has 2 outputs"),
        ("plugins", None, 'plugins: expected objects with "file" and "sha256", got None'),
        ("plugins", [{"file": "a.py"}], 'plugins: expected objects with "file" and "sha256", got [{'),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_damaged_entry_of_run_json_is_one_line(damaged, path, value, told):
    """Exit status 2, with the file, the entry, and what stands there."""
    status, line = damaged(entry(path, value))
    assert (status, line.partition(told)[1]) == (2, told), line
    assert "run.json: " in line


@pytest.mark.parametrize(
    ("name", "size", "told"),
    [
        ("model/tokenizer.json", None, "there is no "),
        ("model/tokenizer.json", 100, "can't be read"),
        ("model/model.safetensors", 100, ""),
        ("resolved.toml", None, ""),
        ("resolved.toml", 8, ""),
        ("run.json", 100, "can't be read"),
    ],
)
def test_a_missing_or_truncated_file_is_one_line(damaged, name, size, told):
    """Exit status 2, with the file's name; ``size`` is how much is left of it, None nothing at all."""

    def damage(run):
        content = (run / name).read_bytes()
        (run / name).unlink()
        if size is not None:
            (run / name).write_bytes(content[:size])

    status, line = damaged(damage)
    assert (status, told in line) == (2, True), line
    assert name.rpartition("/")[2] in line


def test_the_tokenizer_of_another_model_is_one_line(damaged):
    """One with more tokens than the table has rows can't belong to it."""

    def grow(run):
        tokenizer = tokenizers.Tokenizer.from_file(str(run / "model/tokenizer.json"))
        tokenizer.add_tokens([f"more{i}" for i in range(10)])
        tokenizer.save(str(run / "model/tokenizer.json"))

    status, line = damaged(grow)
    assert (status, "tokenizer.json has " in line, "rows" in line) == (2, True, True), line


def test_config_json_is_not_needed(rtx, trained, tmp_path):
    """It is there for transformers; predict goes by the run's own files."""
    shutil.copytree(trained / "runs/colours", tmp_path / "copy")
    (tmp_path / "copy/model/config.json").unlink()
    (answer,) = rows(rtx("predict", tmp_path / "copy", "--text", "red thing").out)
    assert answer["prediction"] == "warm"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
@pytest.mark.parametrize("count", [1, 3000], ids=["found at the end", "found on the way"])
def test_a_full_device_is_one_line(here, tmp_path, count):
    """Exit status 1 and no traceback, be it found while answers are written or at the end."""
    (tmp_path / "in.txt").write_text("red thing\n" * count)
    command = [sys.executable, "-m", "rtx_core", "predict", str(here), "in.txt"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "stdout can't be written: No space left on device\n")


# --- without a model --------------------------------------------------------------------------------------------------


@pytest.fixture
def fails_late(tmp_path):
    """Records of which the fourth can't be answered."""

    def answer(records):
        for number, _ in enumerate(records):
            if number == 3:
                raise ValueError("the model broke")
            yield {"prediction": "x"}

    return Answered(lambda: [Record({"n": i}, "f", i) for i in range(5)], answer)


def test_a_failure_leaves_the_former_output(fails_late, tmp_path):
    """The output is replaced when all is written, not before; no temporary file stays."""
    output = tmp_path / "out.csv"
    output.write_text("former\n")
    with pytest.raises(ValueError, match="the model broke"):
        write_file(fails_late, output)
    assert output.read_text() == "former\n"
    assert list(tmp_path.iterdir()) == [output]


def test_a_table_has_every_column_of_any_record(tmp_path):
    """JSON lines may have other keys in each record: the header has all, and what is missing or null is empty."""
    records = [
        Record({"a": 1}, "f", 1),
        Record({"b": None, "c": [1, "x"]}, "f", 2),
        Record({"a": True, "c": "é"}, "f", 3),
    ]
    answered = Answered(lambda: records, lambda rs: ({"prediction": ["O", "B"], "scores": [{"O": 1.0}]} for _ in rs))
    write_file(answered, tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as stream:
        assert list(csv.reader(stream)) == [
            ["a", "b", "c", "prediction", "scores"],
            ["1", "", "", '["O", "B"]', '[{"O": 1.0}]'],
            ["", "", '[1, "x"]', '["O", "B"]', '[{"O": 1.0}]'],
            ["true", "", "é", '["O", "B"]', '[{"O": 1.0}]'],
        ]


def test_records_are_not_collected():
    """Answers come while records are still being read: a chunk is all that is kept."""
    read = []

    def source():
        for i in range(100):
            read.append(i)
            yield Record({"n": i}, "f", i)

    answered = Answered(source, lambda records: ({"prediction": record.values["n"]} for record in records))
    read.clear()
    first = next(answered.rows())
    assert first == {"n": 0, "prediction": 0}
    assert read == [0]
