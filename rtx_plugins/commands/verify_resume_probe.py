"""The callback that ``verify-resume`` puts into the runs that it compares: it notes what the parts hold, and kills.

It is no installed plugin: the command hands this file to its runs as ``--plugin``.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from rtx_core import Callback, PluginError, hookimpl

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    import torch

    from rtx_core import Run
    from rtx_core.checkpoint import Checkpoint

KILL = "kill"
"""A file of this name in the folder of notes: the process is to die."""
CARRY = "carry.json"
"""This file names attributes, and the notes of another run from which they are carried over."""


@attrs.frozen(kw_only=True)
class Probe(Callback):
    """Saves after one step, and looks at all parts before the next does anything."""

    at: int
    """The step."""
    path: str
    """The folder of notes."""

    def build(self) -> ProbePart:
        """The part, which looks once."""
        return ProbePart(self.at, Path(self.path))


class ProbePart:
    """Changes nothing, unless it was told to carry attributes over."""

    def __init__(self, at: int, notes: Path) -> None:
        self._at, self._notes = at, notes
        self._looked = False

    def on_run_start(self, run: Run) -> None:
        """Give the parts of a resumed run what they are to have."""
        if run.step == self._at:
            self._carry(run)

    def on_step_end(self, run: Run) -> None:
        """Ask for the checkpoint."""
        if run.step == self._at:
            run.request_checkpoint()

    @hookimpl(wrapper=True)
    def compute_loss(self, run: Run) -> Generator[None, torch.Tensor, torch.Tensor]:
        """Before the first forward pass after the step: what a resume restores is there, and nothing has gone on."""
        if run.step >= self._at and not self._looked:
            self._looked = True
            self._carry(run)
            _note(run, self._notes)
            if (self._notes / KILL).exists():
                os.kill(os.getpid(), signal.SIGKILL)
        return (yield)

    def _carry(self, run: Run) -> None:
        if not (self._notes / CARRY).exists():
            return
        from rtx_plugins.commands.part_attributes import attributes

        order = json.loads((self._notes / CARRY).read_bytes())
        values = plain_values(notes_in(Path(order["notes"])))
        for part, name in order["attributes"]:
            attributes(run.parts[part])[name].put(values[part][name])


def _note(run: Run, folder: Path) -> None:
    """Write down every attribute of every part: in words, and as data where it is data that a state may hold."""
    from rtx_core import checkpoint, state
    from rtx_plugins.commands.part_attributes import attributes

    words: dict[str, dict[str, str]] = {}
    plain: dict[str, dict[str, Any]] = {}
    tensors: dict[str, torch.Tensor] = {}
    for part, built in run.parts.items():
        words[part], plain[part] = {}, {}
        for name, attribute in attributes(built).items():
            words[part][name] = attribute.told
            try:
                plain[part][name], own = state.encode(f"{part} {name}", attribute.plain)
            except PluginError:
                continue  # it can be compared, but not carried over
            tensors.update(own)
    checkpoint.commit(folder, run.step, {"plain": tensors}, {"plain": plain, "words": words})


def notes_in(folder: Path) -> Checkpoint:
    """What a probe noted there."""
    from rtx_core import checkpoint

    return checkpoint.listing(folder)[-1]


def plain_values(notes: Checkpoint) -> Mapping[str, Mapping[str, Any]]:
    """The values that can be carried over, by part and attribute."""
    from rtx_core import state

    tensors = {name: tensor.clone() for name, tensor in notes.tensors("plain").items()}
    return {
        part: {name: state.decode(tree, tensors) for name, tree in values.items()}
        for part, values in notes.document("plain").items()
    }


@hookimpl
def callback() -> dict[str, type[Callback]]:
    """Offer it as ``verify_resume_probe``."""
    return {"verify_resume_probe": Probe}
