"""Several runs of one pipeline: over seeds and over folds."""

from __future__ import annotations

import json
import statistics

from rtx_core import Pipeline

SHORT = ("--set", "training.duration=2 epochs")


def record(folder, name):
    return json.loads((folder / "runs" / name / "run.json").read_text())


def test_seeds_are_ordinary_runs_and_a_table(rtx, folder):
    """Each seed has its folder, and the table has the mean and the sample standard deviation of the test's values."""
    done = rtx("run", "colours.toml", "--seeds", 3, "--set", "run.seed=5", *SHORT)
    assert done.status == 0
    values = [record(folder, f"colours-seed-{seed}")["test"]["test/loss"] for seed in (5, 6, 7)]
    summary = json.loads((folder / "runs/colours-seeds/summary.json").read_text())
    assert len(set(values)) == 3
    assert summary["figures"]["test/loss"] == {
        "mean": statistics.fmean(values),
        "sd": statistics.stdev(values),
        "lowest": min(values),
        "highest": max(values),
        "runs": 3,
    }
    assert done.out.splitlines()[0] == "over 3 runs:"
    (line,) = (line for line in done.out.splitlines() if line.startswith("test/loss"))
    assert f"{statistics.fmean(values):.4f} ± {statistics.stdev(values):.4f}" in line


def test_a_seed_of_a_series_is_the_run_of_that_seed(rtx, folder):
    """The same model to the bit as ``--set run.seed=6`` alone gives."""
    assert rtx("run", "colours.toml", "--seeds", 2, "--set", "run.seed=5", *SHORT).status == 0
    assert rtx("run", "colours.toml", "--set", "run.seed=6", "--output", "alone", *SHORT).status == 0
    weights = "model/model.safetensors"
    assert (folder / "alone" / weights).read_bytes() == (folder / "runs/colours-seed-6" / weights).read_bytes()


def test_seeds_see_the_same_split(rtx, folder):
    """What is held out depends on the first seed alone, so that the figures are of the same records."""
    sets = ("--set", "data.eval=unset", "--set", "data.test=unset", "--set", "data.split={eval=0.2}", *SHORT)
    assert rtx("run", "colours.toml", "--seeds", 2, *sets).status == 0
    for seed in (0, 1):
        assert (
            "seed = 0" in (folder / f"runs/colours-seed-{seed}/resolved.toml").read_text().partition("[data.split]")[2]
        )


def test_a_series_goes_on_after_an_interruption(rtx, folder):
    """``--resume`` leaves what is finished and makes the rest; a plain start is refused before anything is trained."""
    assert rtx("run", "colours.toml", "--output", "runs/colours-seed-0", *SHORT).status == 0
    before = (folder / "runs/colours-seed-0/run.json").read_text()
    refused = rtx("run", "colours.toml", "--seeds", 2, *SHORT)
    assert refused.status == 2
    assert "colours-seed-0" in refused.err
    assert not (folder / "runs/colours-seed-1").exists()
    assert rtx("run", "colours.toml", "--seeds", 2, "--resume", *SHORT).status == 0
    assert (folder / "runs/colours-seed-0/run.json").read_text() == before
    assert (folder / "runs/colours-seeds/summary.json").exists()


def test_folds_answer_for_every_record_once(rtx, folder):
    """Each record is answered by the run that held it out; columns and order stay."""
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    done = rtx("run", "colours.toml", "--set", "data.eval=unset", "--set", "data.folds=3", *SHORT)
    assert done.status == 0
    answered = [json.loads(line) for line in (folder / "runs/colours-folds/predictions.jsonl").read_text().splitlines()]
    assert [(row["text"], row["label"]) for row in answered] == [(row["text"], row["label"]) for row in rows]
    assert {row["fold"] for row in answered} == {1, 2, 3}
    assert all(row["prediction"] in ("warm", "cold") for row in answered)
    summary = json.loads((folder / "runs/colours-folds/summary.json").read_text())
    right = {fold: [] for fold in (1, 2, 3)}
    for row in answered:
        right[row["fold"]].append(row["prediction"] == row["label"])
    assert summary["figures"]["eval/accuracy"]["mean"] == statistics.fmean(map(statistics.fmean, right.values()))


def test_one_fold_can_be_run_alone(rtx, folder):
    """``data.fold = 2`` is an ordinary run."""
    sets = ("--set", "data.eval=unset", "--set", "data.folds=3", "--set", "data.fold=2", *SHORT)
    assert rtx("run", "colours.toml", *sets).status == 0
    assert record(folder, "colours")["status"] == "finished"


def test_folds_beside_an_evaluation_set_are_refused(rtx, folder):
    """Two answers to what is evaluated."""
    done = rtx("check", "colours.toml", "--set", "data.folds=3")
    assert done.status == 2
    assert "each fold is the evaluation set of one run, but there is a [data.eval] too; keep one" in done.err


def test_seeds_and_folds_exclude_each_other(rtx, folder):
    """Fifteen runs were perhaps not meant."""
    done = rtx("run", "colours.toml", "--seeds", 3, "--set", "data.eval=unset", "--set", "data.folds=5")
    assert done.status == 2
    assert done.err.startswith("--seeds makes a run for each seed, [data] folds one for each fold; take one")


def test_a_series_from_python(folder):
    """The same folders, with records from Python."""
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    pipeline = Pipeline.load("colours.toml", sets=["training.duration=1 epoch"], data={"train": rows})
    together = pipeline.run_series(seeds=2, quiet=True)
    assert together == folder / "runs/colours-seeds"
    assert json.loads((together / "summary.json").read_text())["figures"]["eval/accuracy"]["runs"] == 2
