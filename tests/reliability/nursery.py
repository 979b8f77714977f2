"""Starts runs as children of a process that has imported torch already: a fork takes milliseconds, an import seconds.

One JSON order a line on stdin, one answer a line on stdout. An order says what ``python -m rtx_core`` is given and what
is to happen to it; see :func:`serve`. The nursery has one thread, so that a fork of it is a whole process.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import time
from pathlib import Path

POLL_SECONDS = 0.002


def main() -> None:
    """Import what a run needs, then answer orders until stdin ends."""
    warm_up()
    if (threads := Path("/proc/self/task")).is_dir():
        assert len(list(threads.iterdir())) == 1
    print(json.dumps({"ready": os.getpid()}), flush=True)
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line))), flush=True)


def warm_up() -> None:
    """Everything that takes long to import and does nothing by itself."""
    import safetensors.torch
    import tokenizers
    import torch._dynamo  # any optimizer of torch's imports its compiler
    import torch._inductor

    import rtx_core.runner
    import rtx_plugins.architectures.bert.model

    assert {safetensors, tokenizers, torch, rtx_core, rtx_plugins}


def serve(order: dict) -> dict:
    """Start a run, do to it what the order says, and wait for its end.

    * ``arguments``, ``folder``, ``log``: of the command line, the working directory, where both its streams go;
    * ``signal`` and either ``after`` seconds or ``lines`` of the file ``watch``: what is sent, and when;
    * ``kill_in_save``: SIGKILL at this call to the system, counted inside of commits alone.

    The answer has the exit status (negative: the signal that ended it) and the seconds that it lived.
    """
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        run(order)
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        lived = time.monotonic() - began
        if done:
            return {"status": os.waitstatus_to_exitcode(status), "seconds": lived}
        if "signal" in order and is_time(order, lived):
            os.kill(child, order.pop("signal"))  # the child is ours and not waited for: the number is still its own
        time.sleep(POLL_SECONDS)


def is_time(order: dict, lived: float) -> bool:
    """Whether the moment of the signal has come."""
    if "after" in order:
        return lived >= order["after"]
    watched = Path(order["watch"])
    return watched.exists() and watched.read_bytes().count(b"\n") >= order["lines"]


def run(order: dict) -> None:
    """The child: the command line, with streams of its own."""
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    sys.stdin.close()
    sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(n, "w", closefd=False), write_through=True) for n in (1, 2))
    status = 1
    try:
        os.chdir(order["folder"])
        if "kill_in_save" in order:
            kill_in_save(order["kill_in_save"])
        from rtx_core.cli import main as command

        status = command(order["arguments"])
    finally:
        os._exit(status)


def kill_in_save(number: int) -> None:
    """Let this process die at a call to the system in the middle of a commit."""
    import safetensors.torch

    from rtx_core import checkpoint

    inside, seen = False, 0

    def deadly(module: object, name: str) -> None:
        original = getattr(module, name)

        def call(*arguments: object, **settings: object) -> object:
            nonlocal seen
            seen += inside
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **settings)

        setattr(module, name, call)

    for module, name in ((os, "mkdir"), (os, "open"), (os, "fsync"), (os, "rename"), (os, "chmod"), (io, "open")):
        deadly(module, name)
    deadly(safetensors.torch, "save_file")
    commit = checkpoint.commit

    def watched(*arguments: object, **settings: object) -> object:
        nonlocal inside
        inside = True
        try:
            return commit(*arguments, **settings)
        finally:
            inside = False

    checkpoint.commit = watched


if __name__ == "__main__":
    main()
