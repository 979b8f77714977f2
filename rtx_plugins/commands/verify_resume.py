"""Prove that a pipeline's run, killed and resumed, ends with the same bits as one that was not."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from rtx_core import Command, InputError, RunError, hookimpl
from rtx_core.arguments import add_pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import torch

    from rtx_core.checkpoint import Checkpoint
    from rtx_core.registry import Registry

_POLL_SECONDS = 0.01


@attrs.frozen(kw_only=True)
class VerifyResume(Command):
    """Run a pipeline twice, once straight and once killed and resumed, and compare every bit of the result.

    A component that keeps something outside its state is named.
    """

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """PIPELINE, and how many steps before and after the kill."""
        add_pipeline(parser)
        parser.add_argument("--steps", type=int, default=5, metavar="N", help="steps before the kill (default 5)")
        parser.add_argument("--more", type=int, default=5, metavar="M", help="steps after it (default 5)")

    @classmethod
    def main(cls, arguments: argparse.Namespace, registry: Registry) -> int:
        """0 where both runs end equal, 1 with one line for each part that differs."""
        from rtx_core import config

        if arguments.steps < 1 or arguments.more < 1:
            raise InputError("--steps and --more are at least 1")
        config.load(arguments.pipeline, sets=arguments.sets, registry=registry)
        with tempfile.TemporaryDirectory(prefix="rtx-verify-") as scratch:
            differences = list(_compare(_Trial(arguments, Path(scratch))))
        total = arguments.steps + arguments.more
        if not differences:
            print(
                f"{arguments.pipeline}: {arguments.steps} steps, kill, {arguments.more} more "
                f"are equal to {total} steps, to the bit"
            )
            return 0
        for part, what in differences:
            print(f"{part}: {what}")
        return 1


class _Trial:
    """The two runs, in processes of their own, as a person would start them."""

    def __init__(self, arguments: argparse.Namespace, scratch: Path) -> None:
        self._arguments, self._scratch = arguments, scratch
        self.total = arguments.steps + arguments.more

    def straight(self) -> Checkpoint:
        """All steps in one go."""
        folder = self._scratch / "straight"
        self._finish(self._start(folder))
        return _last(folder, self.total)

    def interrupted(self) -> Checkpoint:
        """Killed once the first checkpoint is there, then resumed from it."""
        folder = self._scratch / "killed"
        process = self._start(folder)
        first = folder / "checkpoints" / f"step-{self._arguments.steps:08d}"
        while not first.exists() and process.poll() is None:
            time.sleep(_POLL_SECONDS)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if not first.exists():
            raise RunError(f"the run ended before step {self._arguments.steps}: {_said(process)}")
        _forget_after(first)
        self._finish(self._start(folder, "--resume"))
        return _last(folder, self.total)

    def _start(self, folder: Path, *more: str) -> subprocess.Popen[bytes]:
        sets = [
            f"callbacks.checkpoint.every={self._arguments.steps} steps",
            "callbacks.checkpoint.keep_last=1000000",
            *self._arguments.sets,
        ]
        command: Sequence[str] = [
            *(sys.executable, "-m", "rtx_core", "run", str(self._arguments.pipeline), "--output", str(folder)),
            *("--steps", str(self.total), "--quiet", *more),
            *(word for value in sets for word in ("--set", value)),
            *(word for file in self._arguments.plugin for word in ("--plugin", str(file))),
        ]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # noqa: S603 - our own command

    @staticmethod
    def _finish(process: subprocess.Popen[bytes]) -> None:
        output, _ = process.communicate()
        if process.returncode:
            raise RunError(f"a run of the comparison failed: {output.decode(errors='replace').strip()}")


def _said(process: subprocess.Popen[bytes]) -> str:
    return process.stdout.read().decode(errors="replace").strip() if process.stdout else ""


def _forget_after(first: Path) -> None:
    """Between checkpoint and kill a fast run gets further; the resume has to start from the first all the same."""
    from rtx_core import checkpoint

    checkpoint.set_aside(first.parent, checkpoint.step_of(first))


def _last(folder: Path, step: int) -> Checkpoint:
    from rtx_core import checkpoint

    found = checkpoint.listing(folder / "checkpoints")
    if not found or found[-1].step != step:
        raise RunError(f"the run has fewer than {step} steps; take smaller --steps and --more")
    return found[-1]


def _compare(trial: _Trial) -> Iterator[tuple[str, str]]:
    """Each part whose state differs, and how."""
    straight, killed = trial.straight(), trial.interrupted()
    yield from _tensor_differences("model", straight.tensors("model"), killed.tensors("model"))
    yield from _tensor_differences("optimizer", straight.tensors("optimizer"), killed.tensors("optimizer"))
    one, other = straight.document("state"), killed.document("state")
    if one["optimizer"] != other["optimizer"]:
        yield "optimizer", "its numbers differ"
    tensors = (straight.tensors("parts"), killed.tensors("parts"))
    for part in sorted(one["parts"].keys() | other["parts"].keys()):
        if one["parts"].get(part) != other["parts"].get(part):
            yield part, "its state differs"
        own = [{name: value for name, value in side.items() if name.split("/")[0] == part} for side in tensors]
        yield from _tensor_differences(part, *own)
    if one["run"] != other["run"]:
        yield "run", f"its counters differ: {one['run']} and {other['run']}"


def _tensor_differences(
    part: str, one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]
) -> Iterator[tuple[str, str]]:
    if one.keys() != other.keys():
        yield part, f"other tensors: {', '.join(sorted(one.keys() ^ other.keys())[:3])}"
        return
    differing = [name for name in one if not _same_bits(one[name], other[name])]
    if differing:
        yield part, f"{len(differing)} of {len(one)} tensors differ, {differing[0]} first"


def _same_bits(one: Any, other: Any) -> bool:
    import torch

    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and torch.equal(
            one.contiguous().reshape(-1).view(torch.uint8), other.contiguous().reshape(-1).view(torch.uint8)
        )
    )


@hookimpl
def command() -> dict[str, type[Command]]:
    """Offer the command."""
    return {"verify-resume": VerifyResume}
