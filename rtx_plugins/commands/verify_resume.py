"""Prove that a pipeline's run, killed and resumed, ends with the same bits as one that was not."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from rtx_core import Command, InputError, RunError, hookimpl
from rtx_core.arguments import add_pipeline
from rtx_core.sources import Hub

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    import torch

    from rtx_core.checkpoint import Checkpoint
    from rtx_core.components import Callback
    from rtx_core.registry import Registry

_PROBE = Path(__file__).with_name("verify_resume_probe.py")
_MOST_SUSPECTS = 8


@attrs.frozen(kw_only=True)
class VerifyResume(Command):
    """Run a pipeline straight, then again killed and resumed, and compare every bit of the result.

    A part that keeps what it doesn't save is named, with the attribute: carried over by force, it makes the runs equal.
    """

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """PIPELINE, and how many steps before and after the kill."""
        add_pipeline(parser)
        parser.add_argument("--steps", type=int, default=5, metavar="N", help="steps before the kill (default 5)")
        parser.add_argument("--more", type=int, default=5, metavar="M", help="steps after it (default 5)")

    @classmethod
    def main(cls, arguments: argparse.Namespace, registry: Registry) -> int:
        """0 where both runs end equal, 1 with a line for each part that lost something and for each difference."""
        from rtx_core import config

        if arguments.steps < 1 or arguments.more < 1:
            raise InputError("--steps and --more are at least 1")
        pipeline = config.load(arguments.pipeline, sets=arguments.sets, registry=registry, hub=Hub(network=True))
        with tempfile.TemporaryDirectory(prefix="rtx-verify-") as scratch:
            findings = _findings(
                _Trials(arguments, pipeline.callbacks, [file.path for file in registry.files], Path(scratch))
            )
        for line in findings:
            print(line)
        if findings:
            return 1
        total = arguments.steps + arguments.more
        print(
            f"{arguments.pipeline}: {arguments.steps} steps, kill and {arguments.more} more equal {total}, to the bit"
        )
        return 0


def _findings(trials: _Trials) -> list[str]:
    """What differs, after the parts whose fault it is; nothing where all is equal."""
    straight, killed = trials.straight(), trials.killed()
    resumed = trials.resumed(killed)
    differences = list(_differences(straight, killed, resumed))
    if not differences:
        return []
    lost = _lost(straight.words, killed.words, resumed.words)
    culprits = list(_culprits(trials, (straight, killed, resumed), lost))
    if not culprits:
        culprits = [
            "no attribute of a part tells why: look for what is outside of them (random generators, files, time)"
        ]
    return culprits + differences


# --- the runs ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class _Trial:
    """A run's folder, the folder of what the probe noted in it, and the run's callbacks."""

    folder: Path
    notes: Path
    callbacks: Mapping[str, Callback]

    @property
    def last(self) -> Checkpoint:
        """The checkpoint of the last step."""
        from rtx_core import checkpoint

        return checkpoint.listing(self.folder / "checkpoints")[-1]

    @property
    def words(self) -> dict[str, dict[str, str]]:
        """What each part held before the first step after the kill, by attribute."""
        from rtx_plugins.commands.verify_resume_probe import notes_in

        words: dict[str, dict[str, str]] = notes_in(self.notes).document("words")
        return words

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Those of metrics.jsonl, without what is of the clock and the machine."""
        from rtx_core.run import measured_of_machine

        lines = (self.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [
            {name: value for name, value in json.loads(line).items() if not measured_of_machine(name, self.callbacks)}
            for line in lines
        ]


class _Trials:
    """Starts runs in processes of their own, as a person would."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        callbacks: Mapping[str, Callback],
        plugins: Sequence[Path],
        scratch: Path,
    ) -> None:
        self.steps = arguments.steps
        self._total = arguments.steps + arguments.more
        self._arguments, self._callbacks, self._plugins, self._scratch = arguments, callbacks, plugins, scratch
        self._count = 0

    def straight(self) -> _Trial:
        """All steps in one go."""
        trial = self._next()
        self._finish(trial)
        if trial.last.step != self._total:
            raise InputError(_too_short(trial.last.step, self.steps, self._total - self.steps))
        return trial

    def killed(self) -> _Trial:
        """SIGKILL in the step after the checkpoint."""
        from rtx_plugins.commands.verify_resume_probe import KILL

        trial = self._next()
        (trial.notes / KILL).touch()
        process = self._run(trial)
        if process.returncode != -signal.SIGKILL:
            raise RunError(f"a run of the comparison was not killed, but ended by itself: {process.stdout.strip()}")
        return trial

    def resumed(self, killed: _Trial, carry: Sequence[_Lost] = (), source: _Trial | None = None) -> _Trial:
        """Go on with a copy of a killed run.

        :param carry: what the parts are given as ``source`` had it.
        """
        from rtx_plugins.commands.verify_resume_probe import CARRY

        trial = self._next()
        shutil.copytree(killed.folder, trial.folder)
        if source is not None:
            attributes = [(item.part, item.name) for item in carry]
            (trial.notes / CARRY).write_text(json.dumps({"notes": str(source.notes), "attributes": attributes}))
        self._finish(trial, "--resume")
        return trial

    def _next(self) -> _Trial:
        self._count += 1
        run, notes = (self._scratch / f"{what}-{self._count}" for what in ("run", "notes"))
        trial = _Trial(run, notes, self._callbacks)
        trial.notes.mkdir()
        return trial

    def _finish(self, trial: _Trial, *more: str) -> None:
        process = self._run(trial, *more)
        if process.returncode:
            raise RunError(f"a run of the comparison failed: {process.stdout.strip()}")

    def _run(self, trial: _Trial, *more: str) -> subprocess.CompletedProcess[str]:
        probe = "callbacks.verify_resume_probe"
        sets = (*self._arguments.sets, f"{probe}.at={self.steps}", f"{probe}.path={trial.notes}")
        command = [
            *(sys.executable, "-m", "rtx_core", "run", str(self._arguments.pipeline), "--output", str(trial.folder)),
            *("--steps", str(self._total), "--quiet", *more),
            *(word for value in sets for word in ("--set", value)),
            *(word for file in (*self._plugins, _PROBE) for word in ("--plugin", str(file))),
        ]
        return subprocess.run(  # noqa: S603 - our own command
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
        )


def _too_short(end: int, steps: int, more: int) -> str:
    """That the run has fewer steps than are compared, and what to type instead."""
    if end == 1:
        return "the run ends after step 1, so there is no step to kill it before; make training.duration longer"
    options = f"--steps {end // 2} --more {end - end // 2}"
    return f"the run ends after step {end}, before {steps} steps and {more} more; write {options}"


# --- what differs -----------------------------------------------------------------------------------------------------


def _differences(straight: _Trial, killed: _Trial, resumed: _Trial) -> Iterator[str]:
    """Each part whose last state differs, and how; then what differs in metrics.jsonl."""
    one, other = straight.last, resumed.last
    for key in ("model", "optimizer"):
        yield from _tensor_differences(key, one.tensors(key), other.tensors(key))
    states = (one.document("state"), other.document("state"))
    if states[0]["optimizer"] != states[1]["optimizer"]:
        yield "optimizer: its numbers differ"
    tensors = (one.tensors("parts"), other.tensors("parts"))
    for part in sorted(states[0]["parts"].keys() | states[1]["parts"].keys()):
        if states[0]["parts"].get(part) != states[1]["parts"].get(part):
            yield f"{part}: its state differs"
        own = [{name: value for name, value in side.items() if name.split("/")[0] == part} for side in tensors]
        yield from _tensor_differences(part, *own)
    runs = [state["run"] for state in states]
    for name in runs[0].keys() - {"last_values", "logged"}:  # those are of metrics.jsonl, and compared with it
        if runs[0][name] != runs[1][name]:
            yield f"run: {name} is {runs[0][name]} in the straight run and {runs[1][name]} in the resumed one"
    yield from _row_differences(straight.rows, killed.rows, resumed.rows)


def _tensor_differences(part: str, one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> Iterator[str]:
    if one.keys() != other.keys():
        yield f"{part}: other tensors: {', '.join(sorted(one.keys() ^ other.keys())[:3])}"
        return
    differing = [name for name in one if not _same_bits(one[name], other[name])]
    if differing:
        yield f"{part}: {len(differing)} of {len(one)} tensors differ, {differing[0]} first"


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    import torch

    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(*(side.contiguous().flatten().view(torch.uint8) for side in (one, other)))


def _row_differences(
    straight: Sequence[Mapping[str, Any]], killed: Sequence[Mapping[str, Any]], resumed: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """The first difference of each column, but for those that differ without a kill (a clock's)."""
    if [row["step"] for row in straight] != [row["step"] for row in resumed]:
        yield "metrics.jsonl: it has rows of other steps"
        return
    said = {name for pair in zip(straight, killed, strict=False) for name in _unequal(*pair)}
    for one, other in zip(straight, resumed, strict=True):
        for name in _unequal(one, other):
            if name not in said:
                said.add(name)
                yield f"metrics.jsonl: {name} of step {one['step']} is {one.get(name)} and {other.get(name)}"


def _unequal(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


# --- whose fault it is ------------------------------------------------------------------------------------------------

_Words = dict[str, dict[str, str]]


@attrs.frozen
class _Lost:
    """An attribute that a part didn't have back after the resume."""

    part: str
    name: str
    before: str
    after: str


def _lost(straight: _Words, killed: _Words, resumed: _Words) -> list[_Lost]:
    """Attributes that are equal in both runs before the kill and another afterwards."""
    return [
        _Lost(part, name, before, resumed.get(part, {}).get(name, "nothing"))
        for part, words in straight.items()
        for name, before in words.items()
        if before == killed.get(part, {}).get(name) and before != resumed.get(part, {}).get(name)
    ]


def _culprits(trials: _Trials, compared: tuple[_Trial, _Trial, _Trial], lost: Sequence[_Lost]) -> Iterator[str]:
    """Find out which part's attributes it were by carrying them over: of each part alone, then of all that matter."""
    from rtx_plugins.commands.verify_resume_probe import notes_in, plain_values

    straight, killed, resumed = compared
    values = plain_values(notes_in(straight.notes))
    suspects = [item for item in lost if item.name not in values[item.part]]  # what can't be carried may be all of it
    groups = _by_part([item for item in lost if item.name in values[item.part]])
    influential: list[_Lost] = []
    for group in groups:
        carried = trials.resumed(killed, group, straight)
        if _are_equal(straight, killed, carried):
            yield from map(_proven, group)
            return
        if not _are_equal(resumed, killed, carried):
            influential += group
    if len(_by_part(influential)) > 1 and _are_equal(straight, killed, trials.resumed(killed, influential, straight)):
        yield from map(_proven, influential)
        return
    for item in suspects + influential:
        yield f"{item.part} may have lost {item.name}: {item.before} before the kill, {item.after} after the resume"


def _are_equal(straight: _Trial, killed: _Trial, other: _Trial) -> bool:
    return next(_differences(straight, killed, other), None) is None


def _by_part(lost: Sequence[_Lost]) -> list[list[_Lost]]:
    parts = dict.fromkeys(item.part for item in lost)
    return [[item for item in lost if item.part == part] for part in parts][:_MOST_SUSPECTS]


def _proven(item: _Lost) -> str:
    return (
        f"{item.part} lost {item.name}: {item.before} before the kill, {item.after} after the resume; "
        "carried over, it makes the runs equal, so it belongs in state_dict()"
    )


@hookimpl
def command() -> dict[str, type[Command]]:
    """Offer the command."""
    return {"verify-resume": VerifyResume}
