"""How near a run comes to what its device can do: the share of FLOPs that the model needs (MFU, Chowdhery et al. 2022,
arXiv:2204.02311, appendix B) in the rate of matrix products that is measured on the spot.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, ClassVar, cast

import attrs

from rtx_core import Callback, hookimpl

if TYPE_CHECKING:
    import torch

    from rtx_core import Batch, Run
    from rtx_core.model import Model

_SIZES = {"cuda": 8192, "mps": 4096}
"""Rows and columns of the matrices that are multiplied, large enough to keep the device busy."""
_SIZE = 1024
"""The same elsewhere."""
_SECONDS = 0.3
"""How long products are measured; the fastest counts."""
_TERA = 1e12
_MATRIX = 2
"""Axes of a matrix; what has fewer takes part in no product."""


@attrs.frozen(kw_only=True)
class Work:
    """FLOPs of a forward and a backward pass: a product of a weight with an input is 2, forward, and 4 backward.

    As the paper counts: recomputed activations, and what is frozen, don't change it; every token sees its whole
    sequence in each layer, also where attention is causal or local. A lookup in a table of embeddings is none.
    """

    per_token: int
    """6 · N, N the weights in matrices of the backbone."""
    per_target: int
    """The same of the head, which sees features at the targets alone."""
    per_pair: int
    """12 · layers · hidden size: scores and sums of attention, for each pair of tokens of one sequence."""

    @classmethod
    def of(cls, run: Run) -> Work:
        """Of the run's model; without attention where the architecture has no ``num_hidden_layers``."""
        import torch

        model, architecture = cast("Model", run.model), run.pipeline.architecture
        tables = {
            id(parameter)
            for module in model.backbone.modules()
            if isinstance(module, torch.nn.Embedding)
            for parameter in module.parameters()
        }
        backbone = sum(p.numel() for p in model.backbone.parameters() if p.ndim >= _MATRIX and id(p) not in tables)
        # A decoder that is tied to the table does multiply with it.
        head = sum(p.numel() for p in model.head.parameters() if p.ndim >= _MATRIX)
        layers: int = getattr(architecture, "num_hidden_layers", 0)
        return cls(per_token=6 * backbone, per_target=6 * head, per_pair=12 * layers * architecture.hidden_size)

    def on(self, batch: Batch) -> int:
        """For a micro-batch; all numbers are on the host."""
        pairs = sum(length * length for length in batch.lengths)
        return self.per_token * sum(batch.lengths) + self.per_target * len(batch.targets) + self.per_pair * pairs


def matrix_product_rate(device: torch.device, dtype: torch.dtype) -> float:
    """FLOPs a second of the fastest of several products of two square matrices."""
    import torch

    size = _SIZES.get(device.type, _SIZE)
    # A generator of its own leaves the run's chance alone; of zeros a GPU multiplies faster than of anything real.
    generator = torch.Generator(device).manual_seed(0)
    left, right = (torch.randn(size, size, generator=generator, device=device).to(dtype) for _ in range(2))
    best, end = math.inf, time.perf_counter() + _SECONDS
    while time.perf_counter() < end or math.isinf(best):
        _wait(device)
        start = time.perf_counter()
        torch.mm(left, right)
        _wait(device)
        best = min(best, time.perf_counter() - start)
    del left, right
    if device.type == "cuda":
        torch.cuda.empty_cache()  # so that the run has all memory again
    return 2 * size**3 / best


def dtype_of_products(run: Run) -> torch.dtype:
    """In which the run multiplies: that of autocast where a part has it on, else that of the weights."""
    from rtx_plugins.callbacks.amp import AutocastPart

    mixed = [part.dtype for part in run.parts.values() if isinstance(part, AutocastPart)]
    return mixed[0] if mixed else next(run.model.parameters()).dtype


def _wait(device: torch.device) -> None:
    """Until the device has done all that it was given."""
    import torch

    if device.type != "cpu":
        torch.accelerator.synchronize(device)


@attrs.define(eq=False)
class ThroughputPart:
    """Adds up the work since the last row, and the time; evaluation and saving don't count, as in the row's
    ``tokens_per_second``. Each process measures its own device and its own share of the step.
    """

    _peak: float | None = None
    """FLOPs a second; None before it is measured."""
    _work: Work | None = None
    _flops: int = 0
    _since: float | None = None
    """When the last row was written, later by all that doesn't count; None before the first."""
    _seen: float = 0.0
    """When training was last known to go on."""

    def on_run_start(self, run: Run) -> None:
        """Measure the device, once."""
        self._flops, self._since = 0, None
        if self._peak is not None:
            return
        self._work = Work.of(run)
        dtype = dtype_of_products(run)
        self._peak = matrix_product_rate(run.device, dtype)
        without = "" if self._work.per_pair else "; attention is not counted, the architecture has no num_hidden_layers"
        run.console.say(
            f"{run.speaker}: matrix products in {str(dtype).removeprefix('torch.')} reach "
            f"{self._peak / _TERA:,.3g} TFLOP/s on {run.device}, an mfu of 1{without}"
        )

    # Last, so that whoever asks for a row has asked.
    @hookimpl(trylast=True)
    def on_step_end(self, run: Run) -> None:
        """Count the step, and add the rate to its row."""
        if self._work is None or self._peak is None:
            raise ValueError("the device is measured in on_run_start")
        self._flops += sum(self._work.on(piece) for piece in run.pieces)
        if run.log_requested:
            _wait(run.device)  # the row's values are waited for anyway
            now = time.perf_counter()
            if self._since is not None and now > self._since:
                rate = self._flops / (now - self._since)
                run.log({"mfu": rate / self._peak, "tflops": rate / _TERA})
            self._flops, self._since = 0, now
        self._seen = time.perf_counter()

    @hookimpl(trylast=True)
    def on_eval_end(self) -> None:
        """An evaluation is over."""
        self._leave_out()

    @hookimpl(trylast=True)
    def on_checkpoint(self) -> None:
        """All is saved."""
        self._leave_out()

    def _leave_out(self) -> None:
        """What passed since training last went on doesn't count."""
        now = time.perf_counter()
        if self._since is not None:
            self._since += now - self._seen
        self._seen = now


@attrs.frozen(kw_only=True)
class Throughput(Callback):
    """Adds ``mfu`` to each row but the first: the FLOPs a second that the model's size asks for, as a share of the rate
    of matrix products in the run's dtype, which is measured at the start for 0.3 seconds. ``tflops`` is that number
    itself, in 10¹² a second. ``tokens_per_second`` is in the rows without it. It has no settings.
    """

    measures_machine: ClassVar[bool] = True
    once: ClassVar[bool] = True

    def build(self) -> ThroughputPart:
        """The part that counts."""
        return ThroughputPart()


@hookimpl
def callback() -> dict[str, type[Callback]]:
    """Offer it as ``throughput``."""
    return {"throughput": Throughput}
