"""``predict``: columns and order stay, answers are added, and nothing is half written."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers

from rtx_core import DataError, Record
from rtx_plugins.commands.answered import Answered
from rtx_plugins.commands.output import write_file


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
    """A CSV comes back with every column and row as it was, also ``007``, quotes and an empty field, and two more."""
    written = [["id", "text", "note"], ["007", 'blue, "dark"', ""], ["3", "red\nthing", "NA"], ["1", "", "x"]]
    with (tmp_path / "in.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows(written)
    done = rtx("predict", here, "in.csv", "--output", "out.csv")
    assert (done.status, done.out, done.err) == (0, "", "wrote 3 rows to out.csv\n")
    with (tmp_path / "out.csv").open(newline="") as stream:
        read = list(csv.reader(stream))
    assert [row[:3] for row in read] == written
    assert [row[3:] for row in read[:3]] == [["prediction", "error"], ["cold", ""], ["warm", ""]]


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
    assert list(table[0]) == ["n", "text", "prediction", "scores.cold", "scores.warm", "error"]
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


def test_a_taken_column_of_an_answer_is_named_as_the_input_has_it(rtx, here, tmp_path):
    """``scores`` would be ``scores.cold`` in a table, and that name is taken."""
    (tmp_path / "in.csv").write_text("text,scores.cold\nred thing,mine\n")
    done = rtx("predict", here, "in.csv", "--scores", "--output", "out.csv")
    assert done.err.startswith('note: the input has a column "scores.cold"; the answer is in "scores_2"\n')


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
        (("RUN", "in.csv", "--output", "out.parquet.gz"), "out.parquet.gz: the name must end in"),
        (("RUN", "null.jsonl", "--strict"), 'null.jsonl:2: column "text": expected text, got null'),
        (("RUN", "null.jsonl", "--strict", "--output", "out.csv"), "null.jsonl:2: "),
        (("RUN", "mixed.jsonl", "--output", "out.parquet"), 'the column "n" has no one type, as Parquet needs it'),
        (("RUN", "-"), "-: --format says what stdin holds: jsonl, csv or text"),
        (("RUN", "in.csv", "--device", "cuda:99"), '--device: "cuda:99" is not available here'),
        (("RUN", "in.csv", "--device", "banana"), '--device: "banana" is not available here'),
        (("RUN", "in.csv", "--threshold", "high"), '--threshold: expected a number, or LABEL=NUMBER, got "high"'),
        (("RUN", "in.csv", "--threshold", "1.5"), "threshold: a threshold lies between 0 and 1, got 1.5"),
        (("RUN", "in.csv", "--threshold", ".1", "--threshold", ".2"), "--threshold: there is one already"),
        (("RUN", "in.csv", "--threshold", ".1", "--threshold", "warm=.2"), "give one number for all labels, or"),
        (("RUN", "in.csv", "--threshold", "hot=.2"), 'no label "hot"; the labels are "cold", "warm"'),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_cannot_work_is_one_line_and_changes_nothing(rtx, here, tmp_path, arguments, part):
    """Exit status 2, a line that names the file or option, and no new file."""
    (tmp_path / "in.csv").write_text("text\nred thing\n")
    (tmp_path / "other.csv").write_text("body\nred thing\n")
    (tmp_path / "bad.jsonl").write_text('{"text": "red"}\n{"text": \n')
    (tmp_path / "null.jsonl").write_text('{"text": "red"}\n{"text": null}\n')
    (tmp_path / "mixed.jsonl").write_text('{"text": "red", "n": 1}\n{"text": "red", "n": "1"}\n')
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


# --- rows that can't be read ------------------------------------------------------------------------------------------

BAD_ROWS = [
    {"text": "red thing", "n": 1},
    {"text": None, "n": 2},
    {"n": 3},
    {"text": ["red"], "n": 4},
    {"text": "blue thing", "n": 5},
]
REASONS = [
    None,
    'in.jsonl:2: column "text": expected text, got null',
    'in.jsonl:3: no column "text"; the columns are "n"',
    'in.jsonl:4: column "text": expected text, got the list ["red"]',
    None,
]


def write_lines(path, values):
    """JSON lines."""
    path.write_text("".join(json.dumps(value) + "\n" for value in values))


def test_a_row_that_cannot_be_read_costs_no_other_its_answer(rtx, here, tmp_path):
    """One row out for each in, in order: a bad one has empty answers and says why; the exit status is 1."""
    write_lines(tmp_path / "in.jsonl", BAD_ROWS)
    done = rtx("predict", here, "in.jsonl", "--scores")
    answered = rows(done.out)
    assert [row["n"] for row in answered] == [1, 2, 3, 4, 5]
    assert [row["prediction"] for row in answered] == ["warm", None, None, None, "cold"]
    assert [row["scores"] for row in answered[1:4]] == [{"cold": None, "warm": None}] * 3
    assert [row.get("error", "").removeprefix(f"{tmp_path}/") or None for row in answered] == REASONS
    told = '3 of 5 rows could not be read and have no answers; the column "error" says why; the first: '
    assert (done.status, done.err) == (1, f"{told}{tmp_path}/{REASONS[1]}\n")


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_a_table_says_why_in_a_column_of_its_own(rtx, here, tmp_path, name):
    """``error`` is empty, or null, where there is an answer."""
    write_lines(tmp_path / "in.jsonl", [row for row in BAD_ROWS if row["n"] != 4])
    assert rtx("predict", here, "in.jsonl", "--output", name, "--scores").status == 1
    if name.endswith(".csv"):
        with (tmp_path / name).open(newline="") as stream:
            table = [{key: value or None for key, value in row.items()} for row in csv.DictReader(stream)]
    else:
        table = pq.read_table(tmp_path / name).to_pylist()
    assert list(table[0]) == ["text", "n", "prediction", "scores.cold", "scores.warm", "error"]
    assert [row["prediction"] for row in table] == ["warm", None, None, "cold"]
    assert [row["scores.cold"] is None for row in table] == [False, True, True, False]
    reasons = [row["error"] and row["error"].removeprefix(f"{tmp_path}/") for row in table]
    assert reasons == [REASONS[0], REASONS[1], REASONS[2], None]


def test_an_input_of_nothing_but_bad_rows_keeps_its_rows(rtx, here, tmp_path):
    """The columns are those of any other input."""
    write_lines(tmp_path / "in.jsonl", [{"text": None}, {"text": 1}])
    assert rtx("predict", here, "in.jsonl", "--output", "out.csv").status == 1
    with (tmp_path / "out.csv").open(newline="") as stream:
        header, *read = csv.reader(stream)
    assert header == ["text", "prediction", "error"]
    assert [row[:2] for row in read] == [["", ""], ["1", ""]]


def test_a_taken_error_column_is_left_to_the_input(rtx, here, tmp_path):
    """As with answers: the next free name, and a note."""
    write_lines(tmp_path / "in.jsonl", [{"text": None, "error": "mine"}, {"text": "red"}])
    done = rtx("predict", here, "in.jsonl")
    assert rows(done.out)[0]["error"] == "mine"
    assert rows(done.out)[0]["error_2"].endswith("got null")
    assert done.err.startswith('note: the input has a column "error"; the answer is in "error_2"\n')


def test_a_model_of_language_alone_has_no_answers(rtx, here, trained, tmp_path):
    """One line, also where the input is longer than a sequence, so that a record would be several samples."""
    text = (trained / "colours.toml").read_text()
    text = text.replace('"sequence_classification"', '"masked_lm"').replace('label = "label"\n', "")
    (tmp_path / "words.toml").write_text(text.replace('monitor = "eval/accuracy"\n', ""))
    for name in ("train.jsonl", "eval.jsonl"):
        shutil.copy(trained / name, tmp_path)
    assert rtx("run", "words.toml", "--steps", 1, "--output", "words", "--quiet").status == 0
    done = rtx("predict", "words", "--text", "red thing " * 50)
    assert (done.status, done.out, done.err[:9]) == (2, "", "predict: ")
    assert "has no answers to give" in done.err


# --- formats ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".tsv", ".ndjson"])
def test_packed_output_holds_the_same_bytes(rtx, here, tmp_path, ending):
    """``.gz`` and ``.zst`` hold what the plain file does, and two runs give the same packed file."""
    write_lines(tmp_path / "in.jsonl", [{"text": f"{word} é {i}"} for i in range(30) for word in ("red", "blue")])
    for name in (f"out{ending}", f"out{ending}.gz", f"out{ending}.zst", f"again{ending}.gz"):
        assert rtx("predict", here, "in.jsonl", "--output", name).status == 0
    plain = (tmp_path / f"out{ending}").read_bytes()
    assert gzip.decompress((tmp_path / f"out{ending}.gz").read_bytes()) == plain
    assert (tmp_path / f"out{ending}.gz").read_bytes() == (tmp_path / f"again{ending}.gz").read_bytes()
    with pa.CompressedInputStream(pa.OSFile(str(tmp_path / f"out{ending}.zst")), "zstd") as stream:
        assert stream.read() == plain
    if ending == ".jsonl":
        assert rtx("predict", here, "out.jsonl.zst", "--output", "twice.jsonl").status == 0
        assert "prediction_2" in rows((tmp_path / "twice.jsonl").read_text())[0]


def test_parquet_comes_back_with_its_types(rtx, here, tmp_path):
    """Dates, lists, numbers and nulls of a Parquet file stay what they are; answers are text and doubles."""
    columns = {
        "text": ["red thing", "blue thing", "red"],
        "day": [dt.date(2020, 2, 29), None, dt.date(2021, 1, 1)],
        "values": [[0.5, 1.0], [], None],
        "n": [None, 2**40, 7],
        "nothing": pa.nulls(3),
    }
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    assert rtx("predict", here, "in.parquet", "--output", "out.parquet", "--scores").status == 0
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.select(["text", "day", "values", "n"]).to_pylist() == pa.table(columns).drop("nothing").to_pylist()
    assert [str(table.schema.field(name).type) for name in ("day", "n", "nothing", "prediction", "scores.cold")] == [
        *("date32[day]", "int64", "string", "string", "double")
    ]
    assert table["prediction"].to_pylist() == ["warm", "cold", "warm"]


def test_whole_numbers_and_fractions_are_numbers_in_parquet(rtx, here, tmp_path):
    """A column of JSON lines with 1 and 2.5 is one of doubles, wherever in the file they stand."""
    write_lines(tmp_path / "in.jsonl", [{"text": "red", "n": i if i < 9000 else i + 0.5} for i in range(9001)])
    assert rtx("predict", here, "in.jsonl", "--output", "out.parquet").status == 0
    numbers = pq.read_table(tmp_path / "out.parquet")["n"].to_pylist()
    assert numbers == [*map(float, range(9000)), 9000.5]


# --- a pipe -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def piped(here):
    """Predict with what a pipe brings; how it ended, and what it said."""

    def call(content, *arguments):
        command = [sys.executable, "-m", "rtx_core", "predict", str(here), "-", *arguments]
        return subprocess.run(command, input=content, capture_output=True, text=True, check=False)

    return call


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("jsonl", '{"text": "red thing", "n": 1}\n\n{"text": "blue thing", "n": 2}\n'),
        ("csv", "text,n\nred thing,1\nblue thing,2\n"),
        ("text", "red thing\nblue thing\n"),
    ],
)
def test_stdin_is_answered_in_one_pass(piped, kind, content):
    """``-`` with its format gives JSON lines on stdout."""
    done = piped(content, "--format", kind)
    assert (done.returncode, done.stderr) == (0, "")
    assert [(row["text"], row["prediction"]) for row in rows(done.stdout)] == [
        ("red thing", "warm"),
        ("blue thing", "cold"),
    ]


def test_a_column_that_comes_late_in_a_pipe(piped, tmp_path):
    """JSON lines take it; a table can't, which is said with its place, and leaves the former file."""
    content = "".join(json.dumps({"text": "red"} | ({"late": i} if i == 1500 else {})) + "\n" for i in range(1501))
    assert rows(piped(content, "--format", "jsonl", "--output", "-").stdout)[1500]["late"] == 1500
    (tmp_path / "out.csv").write_text("former\n")
    done = piped(content, "--format", "jsonl", "--output", "out.csv")
    assert done.returncode == 1
    assert done.stderr.startswith(
        '/dev/stdin:1501: the column "late" is new here, but a table has its columns from the'
    )
    assert (tmp_path / "out.csv").read_text() == "former\n"


def test_a_pipe_that_breaks_off_says_after_how_many_rows(piped):
    """What was answered stands on stdout; the status is 1, since it was more than a refusal."""
    done = piped('{"text": "red"}\n' * 3000 + '{"text": \n', "--format", "jsonl")
    answered = len(rows(done.stdout))
    assert 0 < answered < 3000
    assert done.returncode == 1
    assert done.stderr.startswith("/dev/stdin:3001: column ")
    assert done.stderr.endswith(f"(after {answered:,} rows)\n")


def test_an_interrupted_pipe_leaves_the_former_output(here, tmp_path):
    """Ctrl-C while rows are written: status 130, the old file, and no temporary one."""
    (tmp_path / "out.jsonl").write_text("former\n")
    command = [sys.executable, "-m", "rtx_core", "predict", str(here), "-"]
    command += ["--format", "jsonl", "--output", "out.jsonl"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdin.write('{"text": "red"}\n' * 3000)
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".tmp-*")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert (tmp_path / "out.jsonl").read_text() == "former\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


# --- thresholds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threshold", "expected"), [("0.999999", "cold"), ("0.000001", "warm"), ("cold=0.999999", "warm")]
)
def test_a_threshold_of_the_command_line_decides(rtx, here, threshold, expected):
    """A number is for the second label, ``warm``; a named one for its label."""
    done = rtx("predict", here, "--text", "red thing", "--text", "blue thing", "--threshold", threshold)
    assert [row["prediction"] for row in rows(done.out)] == [expected] * 2


# --- the same as elsewhere, and in constant memory --------------------------------------------------------------------


def test_labels_are_those_of_transformers_pipeline(rtx, here, tmp_path):
    """500 rows: label and score equal what transformers' text-classification pipeline says of the kept model."""
    transformers = pytest.importorskip("transformers", reason="the test extra is not installed")
    words = ["red", "blue", "thing", "number", "unseen", "7"]
    texts = [" ".join(words[(i // 6**k) % 6] for k in range(1 + i % 5)) for i in range(500)]
    write_lines(tmp_path / "in.jsonl", [{"text": text} for text in texts])
    answered = rows(rtx("predict", here, "in.jsonl", "--scores").out)
    theirs = transformers.pipeline("text-classification", model=str(here / "model"), device="cpu")
    expected = theirs(texts, batch_size=64)
    assert [row["prediction"] for row in answered] == [row["label"] for row in expected]
    scores = [row["scores"][row["prediction"]] for row in answered]
    assert scores == pytest.approx([row["score"] for row in expected], abs=1e-6)
    assert len({row["prediction"] for row in answered}) == 2


PEAK = """
import resource, sys
from rtx_core.cli import main
status = main(sys.argv[1:])
print(status, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_memory(here, folder, count, output):
    """Predict so many rows in a fresh process; the largest amount of memory that it had, in KiB."""
    with (folder / "in.jsonl").open("w") as stream:
        for i in range(count):
            stream.write(json.dumps({"n": i, "text": f"{'red' if i % 3 else 'blue'} thing {i}"}) + "\n")
    command = [sys.executable, "-c", PEAK, "predict", str(here), "in.jsonl", "--output", output]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    status, peak = map(int, done.stdout.split())
    assert status == 0
    return peak


@pytest.mark.nightly
@pytest.mark.parametrize("output", ["out.jsonl", "out.csv", "out.parquet"])
def test_memory_is_flat_over_100_000_rows(here, tmp_path, output):
    """100,000 rows take at most 24 MB more than 10,000, order and number are kept."""
    few, many = (peak_memory(here, tmp_path, count, output) for count in (10_000, 100_000))
    print(f"\n{output}: peak {few / 1024:.0f} MB of 10,000 rows, {many / 1024:.0f} MB of 100,000")
    assert many - few < 24 * 1024
    if output.endswith(".parquet"):
        table = pq.read_table(tmp_path / output).select(["n", "prediction"]).to_pylist()
    elif output.endswith(".csv"):
        with (tmp_path / output).open(newline="") as stream:
            table = list(csv.DictReader(stream))
    else:
        table = rows((tmp_path / output).read_text())
    assert [int(row["n"]) for row in table] == list(range(100_000))
    assert [row["prediction"] for row in table] == ["warm" if i % 3 else "cold" for i in range(100_000)]


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


def of_file(records, attempt, **settings):
    """Answered records; an answer where there is none to look at says nothing."""
    return Answered.of_file(lambda: iter(records), attempt, example=dict, **settings)


def test_a_failure_leaves_the_former_output(tmp_path):
    """The output is replaced when all is written, not before; no temporary file stays."""

    def attempt(records):
        for record in records:
            if record.values["n"] == 3:
                raise ValueError("the model broke")
            yield {"prediction": "x"}

    output = tmp_path / "out.csv"
    output.write_text("former\n")
    answered = of_file([Record({"n": i}, "f", i) for i in range(5)], attempt)
    with pytest.raises(ValueError, match="the model broke"):
        write_file(answered, output)
    assert output.read_text() == "former\n"
    assert list(tmp_path.iterdir()) == [output]


def test_a_table_has_every_column_of_any_record(tmp_path):
    """JSON lines may have other keys in each record: the header has all, and what is missing or null is empty."""
    records = [
        Record({"a": 1}, "f", 1),
        Record({"b": None, "c": [1, "x"]}, "f", 2),
        Record({"a": True, "c": "é"}, "f", 3),
    ]
    answer = {"prediction": ["O", "B"], "scores": [{"O": 1.0}]}
    write_file(of_file(records, lambda rs: (answer for _ in rs), strict=True), tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as stream:
        assert list(csv.reader(stream)) == [
            ["a", "b", "c", "prediction", "scores"],
            ["1", "", "", '["O", "B"]', '[{"O": 1.0}]'],
            ["", "", '[1, "x"]', '["O", "B"]', '[{"O": 1.0}]'],
            ["true", "", "é", '["O", "B"]', '[{"O": 1.0}]'],
        ]


def test_a_column_of_a_label_that_is_taken_is_left_to_the_input(tmp_path):
    """``scores.a`` of the input is no answer: the scores get the next free name, in JSON lines and in tables."""
    records = [Record({"scores.a": "mine"}, "f", 1)]
    answered = of_file(records, lambda rs: ({"scores": {"a": 0.25}} for _ in rs), strict=True)
    assert answered.names == {"scores": "scores_2"}
    write_file(answered, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "scores.a,scores_2.a\nmine,0.25\n"


def test_answers_get_their_type_from_more_than_the_first(tmp_path):
    """In Parquet a null or an empty list at the beginning says nothing about the numbers and texts that follow."""
    answers = [{"start": None, "prediction": []}, {"start": 7, "prediction": ["a"]}]
    records = [Record({"n": i}, "f", i) for i in range(2)]
    answered = of_file(records, lambda rs: (answers[record.values["n"]] for record in rs), strict=True)
    write_file(answered, tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == [{"n": i, **answers[i]} for i in range(2)]


def test_records_are_not_collected():
    """Answers come while records are still being read: a chunk is all that is kept."""
    read = []

    def source():
        for i in range(100):
            read.append(i)
            yield Record({"n": i}, "f", i)

    def attempt(records):
        return ({"prediction": record.values["n"]} for record in records)

    answered = Answered.of_file(source, attempt, example=dict)
    read.clear()
    first = next(answered.rows())
    assert first == {"n": 0, "prediction": 0}
    assert read == [0]


def test_a_stream_is_read_as_it_is_answered():
    """Of 5,000 records that come from a pipe no more than the first 1,024 are read before the first answer."""
    read = []

    def source():
        for i in range(5000):
            read.append(i)
            yield Record({"n": i}, "f", i)

    answered = Answered.of_stream(source(), lambda rs: ({"prediction": r.values["n"]} for r in rs), example=dict)
    rows = answered.rows()
    assert next(rows) == {"n": 0, "prediction": 0}
    assert len(read) == 1024
    assert [row["n"] for row in rows] == list(range(1, 5000))


def test_an_answer_is_looked_at_before_the_first_row():
    """Where the first record can't be answered, a later one says which columns there are, else the example does."""
    records = [Record({"n": i}, "f", i) for i in range(3)]

    def attempt(rs):
        return ({"prediction": 1.5} if r.values["n"] == 2 else DataError(r.file, r.line, "bad") for r in rs)

    assert of_file(records, attempt).header() == ("n", "prediction", "error")
    answered = Answered.of_file(lambda: iter(records[:2]), attempt, example=lambda: {"other": 0})
    assert list(answered.rows()) == [
        {"n": 0, "other": None, "error": "f:0: bad"},
        {"n": 1, "other": None, "error": "f:1: bad"},
    ]
    assert (answered.count, answered.failures, str(answered.first_failure)) == (2, 2, "f:0: bad")
