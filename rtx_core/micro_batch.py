"""``micro_batch_size = "auto"``: how many samples fit into the memory at once, found before the first step.

Forward and backward passes of the longest samples, twice as many each time, until the memory would not suffice or a
whole step fits. They go through the run's own hooks, so that what autocast and others save or need is counted; no
update is made, and nothing of them remains. The number decides bits, so it is kept and not measured again.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import attrs
import numpy as np
import psutil
import torch

from rtx_core.build import stored_steps
from rtx_core.config import resolved_toml
from rtx_core.errors import InputError
from rtx_core.folder import RunFolder, write_text_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rtx_core.build import Training
    from rtx_core.config import Pipeline
    from rtx_core.samples import Batch

_MOST_OF_A_GPU = 0.9
_MOST_OF_THE_HOST = 0.5
"""Of what is available: others need some too, and a machine that swaps is lost."""
_MOST_ON_THE_HOST = 8
"""Samples of a pass on a CPU: more take long, and what they need follows."""
_MOMENTS = 2
"""Tensors that an optimizer will keep for each parameter; Adam's."""


def decide(training: Training) -> None:
    """Measure the micro-batch, say it, and let the run go on with it; ``resolved.toml`` has it from now on.

    :raises InputError: not even one sample fits, or the run has several processes.
    """
    run = training.run
    if run.world_size > 1:
        raise InputError(
            'training.micro_batch_size: "auto" is measured in one process alone; write the number for several'
        )
    with _unchanged(training):
        size = _largest(training)
    run.pipeline = with_size(run.pipeline, size)
    cutting = attrs.evolve(training.prepared.cutting, micro_batch_size=size)
    training.prepared = attrs.evolve(training.prepared, cutting=cutting)
    training.steps = stored_steps(run.pipeline, training.prepared, run.rank)
    write_text_atomically(RunFolder(run.folder).resolved, resolved_toml(run.pipeline))
    told = "a whole step" if size is None else f"{size:,}"
    run.console.say(f"micro_batch_size: {told}, measured with the longest samples and kept")


def with_size(pipeline: Pipeline, size: int | None) -> Pipeline:
    """The pipeline with this micro-batch in place of ``auto``."""
    training = attrs.evolve(pipeline.training, micro_batch_size=size)
    table = {**pipeline.resolved["training"], "micro_batch_size": size}
    return attrs.evolve(pipeline, training=training, resolved={**pipeline.resolved, "training": table})


def _largest(training: Training) -> int | None:
    """The micro-batch; None for a whole step of as many tokens as it has."""
    settings, device = training.run.pipeline.training, training.run.device
    memory: _Memory = _GpuMemory(training) if device.type == "cuda" else _HostMemory(training)
    longest = _worst_step(training)
    size = 0
    while size < len(longest):
        more = min(max(1, 2 * size), len(longest))
        if not memory.holds(longest[:more]):
            if size:
                return size
            raise InputError(
                f"not even one sample of {training.prepared.train.lengths[longest[0]]} tokens fits into the memory of "
                f"{device}; lower task.max_length, or take a smaller architecture"
            )
        size = more
    return None if settings.batch_size is None else -(-settings.batch_size // training.prepared.cutting.processes)


def _worst_step(training: Training) -> np.ndarray:
    """As many of the longest samples as a step may have, the longest first."""
    settings, lengths = training.run.pipeline.training, training.prepared.train.lengths
    processes = training.prepared.cutting.processes
    order = np.argsort(-lengths, kind="stable")
    if settings.batch_size is not None:
        return order[: -(-settings.batch_size // processes)]
    tokens = np.cumsum(lengths[order])
    return order[: int(np.searchsorted(tokens, (settings.batch_tokens or 0) / processes)) + 1]


@contextmanager
def _unchanged(training: Training) -> Iterator[None]:
    """Gradients, buffers and random generators are afterwards what they were; parameters are only read."""
    gradients = {parameter: parameter.grad for parameter in training.module.parameters()}
    buffers = {buffer: buffer.clone() for buffer in training.module.buffers()}
    device = training.run.device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            _forget_gradients(training)
            yield
        finally:
            for parameter, gradient in gradients.items():
                parameter.grad = gradient
            with torch.no_grad():
                for buffer, before in buffers.items():
                    buffer.copy_(before)


def _forget_gradients(training: Training) -> None:
    for parameter in training.module.parameters():
        parameter.grad = None


# --- two kinds of memory ----------------------------------------------------------------------------------------------


class _Memory(Protocol):
    def holds(self, samples: np.ndarray) -> bool:
        """Whether a forward and backward pass of these samples fits."""
        ...


class _GpuMemory:
    """A pass fits if it doesn't fail and leaves a tenth of the memory free."""

    def __init__(self, training: Training) -> None:
        self._training, self._device = training, training.run.device

    def holds(self, samples: np.ndarray) -> bool:
        """Run it; what it took stays with torch's allocator until it is asked, also what is free again."""
        torch.cuda.empty_cache()
        try:
            kept = torch.empty(_state_bytes(self._training), dtype=torch.uint8, device=self._device)
        except torch.OutOfMemoryError:
            return False
        done = _passes(self._training, samples)
        free, total = torch.cuda.mem_get_info(self._device)
        del kept
        _forget_gradients(self._training)
        torch.cuda.empty_cache()
        return bool(done and free >= (1 - _MOST_OF_A_GPU) * total)


class _HostMemory:
    """Half of what is available may be taken; how much more samples take follows from what some took."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._limit: float = _MOST_OF_THE_HOST * psutil.virtual_memory().available - _state_bytes(training)
        self._before: int | None = None
        self._per_token = 0.0

    def holds(self, samples: np.ndarray) -> bool:
        """Run it if it can be expected to fit and is small; the first pass makes the gradients and is not counted."""
        tokens = int(self._training.prepared.train.lengths[samples].sum())
        if self._per_token * tokens > self._limit:
            return False
        if len(samples) > _MOST_ON_THE_HOST:
            return True
        held = _Held(self._training)
        if not _passes(self._training, samples, held):
            return False
        if self._before is None:
            self._before = held.now()
        self._per_token = max(0, held.most - self._before) / tokens
        return self._per_token * tokens <= self._limit


class _Held:
    """The most memory that was taken whenever it was looked at."""

    def __init__(self, training: Training) -> None:
        self._on_mps = training.run.device.type == "mps"
        self._process = psutil.Process()
        self.most = 0

    def now(self) -> int:
        """Bytes that are taken at this moment."""
        used = torch.mps.driver_allocated_memory() if self._on_mps else self._process.memory_info().rss
        self.most = max(self.most, used)
        return used


def _passes(training: Training, samples: np.ndarray, held: _Held | None = None) -> bool:
    """Whether a forward and backward pass came to its end."""
    steps = stored_steps(training.run.pipeline, training.prepared, training.run.rank)
    batch = steps.batch(0, samples)
    batch.weight = training.loss.weight(batch.targets) if len(batch.targets) else 0.0
    try:
        _forward_and_backward(training, batch, held)
    except torch.OutOfMemoryError:
        return False
    return True


def _forward_and_backward(training: Training, batch: Batch, held: _Held | None) -> None:
    run, hooks = training.run, training.hooks.call
    loss = hooks.compute_loss(run=run, batch=batch.to(run.device))
    if held is not None:
        held.now()  # all that the backward pass will need is there
    hooks.backward(run=run, loss=loss / max(batch.weight, 1.0))
    if held is not None:
        held.now()


def _state_bytes(training: Training) -> int:
    """What the optimizer will keep from its first update on."""
    return _MOMENTS * sum(parameter.numel() * parameter.element_size() for parameter in training.parameters)
