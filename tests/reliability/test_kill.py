"""A run that is killed at any moment and resumed ends with the bits of one that was left alone.

The run has everything that could lose something: dropout, a tokenizer trained in the run, accumulation, random masking,
early stopping, a callback that scales the rate, and an outside optimizer with floats in its state.
"""

import functools
import hashlib
import json
import random
import signal
from itertools import count
from pathlib import Path
from typing import Any

import attrs
import pytest

CALLS_OF_A_COMMIT = 40
"""About so many calls to the system that can be killed at."""


@attrs.frozen
class Victim:
    """A run's folder and the ways to treat it."""

    nursery: Any
    plugin_files: list[Path]
    home: Path
    """Where the pipeline is."""
    folder: Path
    seed: int

    def start(self, **treatment):
        """Begin, or go on, and be treated: the exit status and the seconds that the process lived."""
        plugins = [word for file in self.plugin_files for word in ("--plugin", file)]
        arguments = ["run", "pipeline.toml", "--resume", "--output", self.folder, "--set", f"run.seed={self.seed}"]
        return self.nursery.order(
            arguments=list(map(str, [*arguments, *plugins])),
            folder=str(self.home),
            log=str(self.folder.with_suffix(".log")),
            **treatment,
        )

    def finish(self):
        """Let it run to its end."""
        answer = self.start()
        assert answer["status"] == 0, self.said
        return answer["seconds"]

    @property
    def said(self):
        return self.folder.with_suffix(".log").read_text()

    def left(self):
        """Everything that must not depend on what the run went through."""
        record = json.loads((self.folder / "run.json").read_text())
        last = max((self.folder / "checkpoints").glob("step-*"))
        kept = ("status", "why", "best", "kept", "test", "fingerprints", "vocab_size")
        return {
            "checkpoint": last.name,
            **{file.name: sha256(file) for file in last.iterdir()},
            **{f"model/{file.name}": sha256(file) for file in (self.folder / "model").iterdir()},
            "rows": [
                without_clock(json.loads(row)) for row in (self.folder / "metrics.jsonl").read_text().splitlines()
            ],
            "record": {name: record[name] for name in kept},
            "leftovers": [path.name for path in self.folder.rglob(".*") if path.name != ".lock"],
        }

    def was_inside_a_save(self):
        """Whether the last kill left a checkpoint half written."""
        return any((self.folder / "checkpoints").glob(".tmp-*"))


def sha256(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def without_clock(row):
    return {name: value for name, value in row.items() if name != "tokens_per_second"}


@pytest.fixture(scope="module")
def victims(nursery, home, plugin_files, tmp_path_factory):
    """Runs of one pipeline, each in a folder of its own: ``victims(seed)`` gives the next."""
    runs = tmp_path_factory.mktemp("killed")
    numbers = count(1)

    def next_one(seed):
        return Victim(nursery, plugin_files, home, runs / f"run-{next(numbers)}", seed)

    return next_one


@pytest.fixture(scope="module")
def straight(victims):
    """A run that nobody disturbs: what it left, and how long it took."""

    @functools.cache
    def run(seed):
        victim = victims(seed)
        seconds = victim.finish()
        left = victim.left()
        rows = left["rows"]
        assert left["record"]["status"] == "stopped_early"
        assert len({row["lr"] for row in rows if "lr" in row}) > 1  # the rate was scaled
        assert [row["step"] for row in rows if "train/loss" in row] == list(range(1, rows[-1]["step"] + 1))
        return left, seconds

    return run


def kill(victims, seed, chance, *, kills, inside, seconds):
    """Kill runs again and again until so many kills have happened; yields each run that got to its end all the same.

    :param inside: at least so many of the kills come inside a save.
    :param seconds: that a run takes which nobody disturbs.
    """
    happened = happened_inside = runs = 0
    while happened < kills or happened_inside < inside:
        victim = victims(seed)
        while True:
            if happened_inside < inside and chance.random() < 0.5:
                # At most two saves later: every process gets some way, however short.
                answer = victim.start(kill_in_save=chance.randint(1, 2 * CALLS_OF_A_COMMIT))
            else:
                answer = victim.start(signal=int(signal.SIGKILL), after=chance.uniform(0, 0.7 * seconds))
            if answer["status"] == 0:
                break
            assert answer["status"] == -signal.SIGKILL, victim.said
            happened += 1
            happened_inside += victim.was_inside_a_save()
        runs += 1
        yield victim
    print(f"{happened} kills, {happened_inside} of them inside a save, in {runs} runs")


def check_kills(victims, straight, seed, *, kills, inside):
    expected, seconds = straight(seed)
    chance = random.Random(seed)  # noqa: S311 - moments, not secrets
    for victim in kill(victims, seed, chance, kills=kills, inside=inside, seconds=seconds):
        assert victim.left() == expected


def test_three_kills_leave_no_trace(victims, straight):
    """The short form: three kills, one of them inside a save, and the end is that of the straight run to the bit."""
    check_kills(victims, straight, 0, kills=3, inside=1)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_thirty_kills_leave_no_trace(victims, straight, seed):
    """The long form: 30 kills at random moments, at least 5 inside a save, for three seeds."""
    check_kills(victims, straight, seed, kills=30, inside=5)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_run_after_its_step(victims, straight, number, status):
    """Sent once rows are written: the status is 128 plus the signal, the checkpoint is that of the last row, and the
    resumed run ends like the straight one.
    """
    expected, _ = straight(0)
    victim = victims(0)
    answer = victim.start(signal=int(number), watch=str(victim.folder / "metrics.jsonl"), lines=10)
    assert answer["status"] == status, victim.said
    last = json.loads((victim.folder / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert (victim.folder / "checkpoints" / f"step-{last:08d}").is_dir()
    assert (
        f"interrupted after step {last}; a checkpoint is saved; the same command with --resume goes on" in victim.said
    )
    assert json.loads((victim.folder / "run.json").read_text())["status"] == "interrupted"
    victim.finish()
    assert victim.left() == expected
