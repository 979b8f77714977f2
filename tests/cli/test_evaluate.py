"""``evaluate``: the kept model's values are those of the run, and those of other data are scikit-learn's."""

from __future__ import annotations

import json
import re
import shutil
import sys

import attrs
import pytest
from sklearn.metrics import accuracy_score, f1_score, log_loss, roc_auc_score

from rtx_plugins.commands import evaluate
from rtx_plugins.optimizers.adamw import AdamW


@attrs.frozen
class Run:
    """A finished run's folder, and what it wrote about its values."""

    folder: object

    @property
    def record(self):
        return json.loads((self.folder / "run.json").read_text())

    @property
    def values(self):
        """The values of the kept step, and those of the test set."""
        step = self.record["kept"]["step"]
        rows = [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]
        (kept,) = [row for row in rows if row["step"] == step and "eval/loss" in row]
        return {name: value for name, value in kept.items() if "/" in name} | self.record["test"]


@pytest.fixture
def run(trained, tmp_path, monkeypatch):
    """A copy of the small run, in a working directory of its own, with data that it hasn't seen in ``new.jsonl``."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained / "runs/colours", tmp_path / "run")
    words = {"red": "warm", "blue": "cold", "thing": "warm", "number": "cold"}
    new = [{"text": f"{word} {i}", "label": label} for i in range(9) for word, label in words.items()]
    write(tmp_path / "new.jsonl", new)
    return Run(tmp_path / "run")


def write(path, rows):
    """JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def values_of(done):
    """The values of ``--json``."""
    assert done.status == 0, done.err
    return json.loads(done.out)["values"]


def test_values_are_those_of_the_run_to_the_bit(rtx, run):
    """Of the kept step in metrics.jsonl, and of the test set in run.json."""
    done = rtx("evaluate", "run", "--json")
    assert json.loads(done.out) == {"run": "run", "step": run.record["kept"]["step"], "values": run.values}
    assert done.err == ""


@pytest.mark.parametrize("size", [1, 3, 7])
def test_another_batch_size_gives_the_same_values(rtx, run, size):
    """But for the rounding of sums in float32."""
    values = values_of(rtx("evaluate", "run", "--json", "--set", f"training.eval_batch_size={size}"))
    assert values == pytest.approx(run.values, rel=1e-6)


def test_another_set_is_measured_under_its_own_name(rtx, run):
    """Loss, accuracy and F1 of a file are scikit-learn's on what ``predict`` says of it; metrics may be added."""
    values = values_of(rtx("evaluate", "run", "--json", "--data", "new.jsonl", "--set", "metrics.auroc.average=macro"))
    answered = [json.loads(line) for line in rtx("predict", "run", "new.jsonl", "--scores").out.splitlines()]
    truth, predicted = ([row[name] for row in answered] for name in ("label", "prediction"))
    warm = [row["scores"]["warm"] for row in answered]
    assert values == pytest.approx(
        {
            "data/loss": log_loss(truth, [[row["scores"][label] for label in ("cold", "warm")] for row in answered]),
            "data/accuracy": accuracy_score(truth, predicted),
            "data/f1_macro": f1_score(truth, predicted, average="macro"),
            "data/auroc": roc_auc_score([label == "warm" for label in truth], warm),
        },
        rel=1e-6,
    )
    assert 0.5 < values["data/accuracy"] < 1.0


def test_metrics_may_be_taken_away_and_changed(rtx, run):
    """What ``--set`` says of them holds, also for the one that was the monitor."""
    sets = ("metrics.accuracy.enabled=false", "metrics.f1.average=none")
    options = [option for text in sets for option in ("--set", text)]
    assert values_of(rtx("evaluate", "run", "--json", *options)).keys() == {
        *("eval/loss", "eval/f1_per_class", "test/loss", "test/f1_per_class")
    }


def test_a_threshold_may_be_tried(rtx, run):
    """At 0.999999 nothing is warm: half of the labels are right; the loss doesn't change."""
    values = values_of(rtx("evaluate", "run", "--json", "--set", "task.threshold=0.999999"))
    assert values["eval/accuracy"] == 0.5
    assert values["eval/loss"] == run.values["eval/loss"]


def test_a_pipe_gets_a_line_for_each_value(rtx, run):
    """Name and value, six digits."""
    lines = rtx("evaluate", "run").out.splitlines()
    assert [line.split()[0] for line in lines] == list(run.values)
    assert [float(line.split()[1]) for line in lines] == pytest.approx(list(run.values.values()), rel=1e-5)


def test_a_terminal_gets_a_table(capsys):
    """A column for each set; a list by label has a row for each label."""
    values = {"eval/loss": 0.25, "eval/f1_per_class": [0.5, 1.0], "test/loss": 0.125, "test/matrix": [[1.0, 2.0]]}
    evaluate._print_table(values, ["cold", "warm"])
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert table == [
        ["eval", "test"],
        ["loss", "0.25", "0.125"],
        ["f1_per_class", "cold", "0.5"],
        ["f1_per_class", "warm", "1"],
        ["matrix", "[[1.0,", "2.0]]"],
    ]


def test_no_optimizer_is_built(rtx, run, monkeypatch):
    """Nor anything else that only trains."""

    def build(*_):
        raise AssertionError("evaluate built an optimizer")

    monkeypatch.setattr(AdamW, "build", build)
    assert rtx("evaluate", "run").status == 0


def test_what_training_started_from_may_be_gone(rtx, trained, tmp_path, monkeypatch):
    """Training data and first weights, and how these were loaded, do not count any more, only what is measured on."""
    monkeypatch.chdir(tmp_path)
    for name in ("train.jsonl", "eval.jsonl"):
        shutil.copy(trained / name, tmp_path)
    shutil.copytree(trained / "runs/colours/model", tmp_path / "weights")
    text = (
        (trained / "colours.toml")
        .read_text()
        .replace("[architecture]\n", '[architecture]\nfrom_pretrained = "weights"\nload.reinit_head = true\n')
    )
    (tmp_path / "job.toml").write_text(text.replace('[tokenizer]\ntype = "wordpiece"\nvocab_size = 100\n', ""))
    assert rtx("run", "job.toml", "--steps", 2, "--output", "tuned", "--quiet").status == 0
    expected = values_of(rtx("evaluate", "tuned", "--json"))
    (tmp_path / "train.jsonl").unlink()
    shutil.rmtree(tmp_path / "weights")
    assert values_of(rtx("evaluate", "tuned", "--json")) == expected == Run(tmp_path / "tuned").values


def test_a_split_is_made_again(rtx, trained, tmp_path, monkeypatch):
    """Sets that were split off are found again in the training data."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(trained / "train.jsonl", tmp_path)
    tables = '[data.eval]\nfiles = ["eval.jsonl"]\n[data.test]\nfiles = ["eval.jsonl"]\n'
    text = (
        (trained / "colours.toml")
        .read_text()
        .replace(tables, "")
        .replace('type = "jsonl"\n', 'type = "jsonl"\nsplit = { eval = 0.2, test = 0.2, stratify = true }\n', 1)
    )
    (tmp_path / "job.toml").write_text(text)
    assert rtx("run", "job.toml", "--steps", 2, "--output", "run", "--quiet").status == 0
    assert values_of(rtx("evaluate", "run", "--json")) == Run(tmp_path / "run").values
    other = values_of(rtx("evaluate", "run", "--json", "--data", "train.jsonl"))
    assert other.keys() == {"data/loss", "data/accuracy", "data/f1_macro"}


def test_data_that_changed_since_are_told(rtx, run, trained, tmp_path, monkeypatch):
    """A note on stderr says which set, and the values are those of the new contents."""
    shutil.copy(trained / "train.jsonl", tmp_path)
    write(tmp_path / "eval.jsonl", [{"text": "red 1", "label": "warm"}])
    resolved = (run.folder / "resolved.toml").read_text().replace(str(trained), str(tmp_path))
    (run.folder / "resolved.toml").write_text(resolved)
    done = rtx("evaluate", "run", "--json")
    told = "note: the contents of data.{} have changed since the run\n"
    assert done.err == told.format("eval") + told.format("test")
    assert values_of(done)["eval/accuracy"] == 1.0


def test_plugin_files_of_the_run_are_asked_for(rtx, folder, mine):
    """The same rule as for ``predict``: the same file again, or leave to run the copy."""
    assert rtx("run", "colours.toml", "--steps", "1", "--plugin", mine, "--quiet").status == 0
    refused = rtx("evaluate", "run:colours-smoke")
    assert (refused.status, refused.out, "--plugin extra.py" in refused.err) == (2, "", True)
    given = rtx("evaluate", "run:colours-smoke", "--plugin", mine)
    assert given.status == 0
    assert rtx("evaluate", "run:colours-smoke", "--trust-run-plugins").out == given.out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("none",), "none: no such folder"),
        ((".",), "it has no run.json"),
        (("run", "--data", "none.jsonl"), "none.jsonl: no such file"),
        (("run", "--data", "new.xlsx"), "new.xlsx: the name must end in"),
        (("run", "--data", "unknown.jsonl"), 'unknown.jsonl:2: column "label": unknown label "hot"; the labels are "c'),
        (("run", "--data", "empty.jsonl"), "empty.jsonl: no records in this file"),
        (("run", "--device", "cuda:99"), '--device: "cuda:99" is not available here'),
        (
            ("run", "--set", "metrics.acuracy.enabled=false"),
            'no metric "acuracy" is installed; did you mean "accuracy"',
        ),
        (("run", "--set", "task.threshold=2.0"), "task.threshold: a threshold lies between 0 and 1, got 2.0"),
        (("run", "--set", "optimizer.lr=1.0"), "--set: optimizer.lr: evaluate takes it from the run; what can be"),
        (("run", "--set", "training.eval_batch_sizes=1"), "--set: training.eval_batch_sizes: evaluate takes it"),
        (("run", "--set", "architecture.hidden_size=32"), "--set: architecture.hidden_size: evaluate takes it"),
        (("run", "--data", "new.jsonl", "--set", "data.limit=1"), "--set: data.limit: evaluate takes it from the run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_cannot_work_is_one_line(rtx, run, tmp_path, arguments, part):
    """Exit status 2, nothing on stdout, and a line that says where."""
    write(tmp_path / "unknown.jsonl", [{"text": "red", "label": "warm"}, {"text": "red", "label": "hot"}])
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "new.xlsx").touch()
    done = rtx("evaluate", *arguments)
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert part in line


def test_a_run_without_evaluation_data_wants_some(rtx, folder):
    """One line that names ``--data``, which then works."""
    sets = ("data.eval=unset", "data.test=unset", "training.monitor=unset")
    options = [option for text in sets for option in ("--set", text)]
    assert rtx("run", "colours.toml", "--steps", 1, "--quiet", *options).status == 0
    done = rtx("evaluate", "run:colours-smoke")
    assert (done.status, done.err) == (
        2,
        f"{folder}/runs/colours-smoke has neither evaluation nor test data; give some by --data\n",
    )
    assert rtx("evaluate", "run:colours-smoke", "--data", "eval.jsonl").status == 0


def test_a_terminal_is_recognised(rtx, run, monkeypatch):
    """There the values stand in a table, whose head are the sets."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", rtx("evaluate", "run").out)
    assert shown.split()[:3] == ["eval", "test", "loss"]
