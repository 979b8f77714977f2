"""Write a run's model, as it was after any checkpoint, into a new folder that ``transformers`` loads."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import attrs

from rtx_core import Command, InputError, hookimpl
from rtx_core.folder import RunFolder
from rtx_core.header import counted
from rtx_core.model_folder import WEIGHTS
from rtx_core.plugin_files import with_plugins_of_run
from rtx_plugins.commands.destination import destination
from rtx_plugins.commands.kept import add_trust, run_folder

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    import torch

    from rtx_core.checkpoint import Checkpoint
    from rtx_core.registry import Registry

_DTYPES = ("float32", "float16", "bfloat16")
_MEGABYTE = 1_000_000


@attrs.frozen(kw_only=True)
class Export(Command):
    """Write a run's model into a new folder that transformers loads; the run may still be going on.

    Weights, config.json, tokenizer and model card, as in the run's own folder model; the run is only read.
    """

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """RUN and DEST, which weights, and as what numbers."""
        parser.add_argument("run", metavar="RUN", help="the run's folder, or run:NAME for runs/NAME")
        parser.add_argument("dest", metavar="DEST", help="the new folder")
        parser.add_argument(
            "--checkpoint",
            metavar="WHICH",
            help="best, last or a step (default: what the run has kept, or would keep if it ended now)",
        )
        parser.add_argument("--dtype", choices=_DTYPES, default="float32", help="the weights' numbers (float32)")
        parser.add_argument("--json", action="store_true", help="print the result for a program to read")
        add_trust(parser)

    @classmethod
    def main(cls, arguments: argparse.Namespace, registry: Registry) -> int:
        """Refuse what can't work, then read, then write."""
        folder = run_folder(arguments.run)
        dest = destination(arguments.dest, folder)
        with_plugins_of_run(registry, RunFolder(folder), trust=arguments.trust_run_plugins)
        # Only now, since they import torch.
        from rtx_core import inference
        from rtx_core.config import load_parts
        from rtx_core.publish import publish

        run = inference.of_run(folder)
        chosen = _chosen(run, arguments.checkpoint)
        parts = load_parts(run.resolved, registry=registry)
        publish(run, parts, dest, tensors=chosen.tensors, step=chosen.step, dtype=arguments.dtype)
        size, count = (dest / WEIGHTS).stat().st_size, len(chosen.tensors)
        if arguments.json:
            result = {"folder": str(dest), "step": chosen.step, "dtype": arguments.dtype, "tensors": count}
            print(json.dumps({**result, "bytes": size}, indent=2))
        else:
            written = f"{counted(count, 'tensor')} in {arguments.dtype}, {size / _MEGABYTE:,.1f} MB"
            print(f"{dest}: step {chosen.step}, {written}")
        return 0


@attrs.frozen
class _Chosen:
    """The weights after a step, by public name."""

    step: int
    tensors: Mapping[str, torch.Tensor]


def _chosen(run: RunFolder, wanted: str | None) -> _Chosen:
    """The weights that are meant: those of ``model/``, or of a checkpoint, which is verified.

    :raises InputError: there are none, or they are damaged.
    """
    from rtx_core.saving import kept_tensors
    from rtx_core.stored import mapped

    record = run.read_record()
    kept = (record.get("kept") or {}).get("step")
    if wanted is None and kept is not None and (run.model / WEIGHTS).is_file():
        return _Chosen(kept, mapped(run.model / WEIGHTS))
    found = _checkpoint(run, wanted, (record.get("best") or {}).get("step"))
    return _Chosen(found.step, kept_tensors(found))


def _checkpoint(run: RunFolder, wanted: str | None, best: int | None) -> Checkpoint:
    """The checkpoint that is meant.

    :param wanted: None: the best, or the last where nothing was evaluated yet.
    :raises InputError: there is none, or it is damaged.
    """
    from rtx_core import checkpoint

    found = {saved.step: saved for saved in checkpoint.listing(run.checkpoints)}
    if not found:
        hint = "; leave --checkpoint out for the model that it kept" if (run.model / WEIGHTS).is_file() else ""
        raise InputError(f"{run.path} has no checkpoint (status: {run.read_record().get('status')}){hint}")
    if wanted == "last" or (wanted is None and best is None):
        newest = checkpoint.newest(run.checkpoints, lambda text: print(text, file=sys.stderr))
        if newest is not None:
            return newest
    step = best if wanted in ("best", None) else _step(wanted or "")
    if step is None:
        raise InputError("--checkpoint best: nothing was evaluated, so none is the best; take last, or a step")
    if step not in found:
        raise InputError(f"{run.path} has no checkpoint of step {step}; there are {', '.join(map(str, found))}")
    problem = found[step].problem()
    if problem is not None:
        raise InputError(
            f"the checkpoint {found[step].folder.name} is damaged: {problem}; take another by --checkpoint"
        )
    return found[step]


def _step(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise InputError(f'--checkpoint: expected best, last or a step, got "{text}"')
    return int(text)


@hookimpl
def command() -> dict[str, type[Command]]:
    """Offer it as ``export``."""
    return {"export": Export}
