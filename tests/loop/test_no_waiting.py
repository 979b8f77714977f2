"""Between two rows of metrics nothing of a step is brought from the device to the host."""

import attrs
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rtx_core import Callback, hookimpl
from rtx_plugins.losses.cross_entropy_part import CrossEntropyPart

EIGHT = [{"text": "abcdef"[i % 6], "label": str(i % 2)} for i in range(8)]
SETS = [
    *("training.batch_size=4", "training.micro_batch_size=2", "training.duration=9 steps"),
    *("callbacks.metrics.every=3 steps", "callbacks.clip_grad_norm.enabled=true", "callbacks.checkpoint.every=9 steps"),
    "callbacks.watch.enabled=false",
]


class Readings(TorchDispatchMode):
    """The steps in which a number or an array was taken out of a tensor, which waits for a GPU."""

    def __init__(self):
        super().__init__()
        self.steps, self.run, self.on_host = set(), None, False

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        if function is torch.ops.aten._local_scalar_dense.default:
            self.note()
        return function(*arguments, **(keywords or {}))

    def note(self):
        if self.run is not None and not self.on_host:
            self.steps.add(self.run.step)


@attrs.frozen(kw_only=True)
class Counting(Callback):
    """Reads nothing, or in every step."""

    reads: bool = False

    def on_run_start(self, run):
        READINGS.run = run

    def on_gradients(self, run):
        if self.reads:
            next(run.model.parameters()).flatten()[0].item()


def test_only_a_row_reads_the_device(train, plugins, monkeypatch):
    """With the default callbacks, over several micro-batches, rows every 3 steps: only those steps read anything; a
    part that reads in every step is noticed.
    """
    global READINGS  # noqa: PLW0603 - the callback is built from a file, which can't name an object
    for method in ("tolist", "cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, method, noting(getattr(torch.Tensor, method)))
    monkeypatch.setattr(CrossEntropyPart, "weight", on_host(CrossEntropyPart.weight))
    before = plugins.callback()

    @hookimpl
    def callback():
        return {**before, "counting": Counting}

    plugins.callback = callback
    # The fixture that watches runs reads every loss.
    monkeypatch.setattr(before["watch"], "latest", None, raising=False)
    for reads, expected in ((False, {3, 6, 9}), (True, set(range(10)))):
        READINGS = Readings()
        with READINGS:
            train(EIGHT, extra=f"[callbacks.counting]\nreads = {str(reads).lower()}\n", sets=SETS)
        assert READINGS.steps == expected


def noting(method):
    """A method of tensors that is noted."""

    def noted(self, *arguments, **keywords):
        READINGS.note()
        return method(self, *arguments, **keywords)

    return noted


def on_host(method):
    """What is computed on the host, from tensors that are there: readings of it wait for nobody."""

    def computed(self, targets):
        READINGS.on_host = True
        try:
            return method(self, targets)
        finally:
            READINGS.on_host = False

    return computed


READINGS = Readings()
