"""cuda_monitor against a GPU that is made up, throughput against torch's count of FLOPs, and profiler's window.

Nothing here has seen a GPU: torch.cuda's functions, or the driver's below them, are replaced.
"""

import io
import sys
import types
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from rtx_core import Batch, Horizon, InputError, Length, Run, Sample
from rtx_core.console import Console
from rtx_core.model import make_model
from rtx_core.registry import PartHooks
from rtx_core.run import measured_of_machine
from rtx_plugins.architectures.bert import Bert
from rtx_plugins.callbacks import throughput
from rtx_plugins.callbacks.amp import AutocastPart
from rtx_plugins.callbacks.cuda_monitor import CudaMonitor
from rtx_plugins.callbacks.ema import Ema
from rtx_plugins.callbacks.profiler import Profiler
from rtx_plugins.callbacks.throughput import Throughput, Work, dtype_of_products, matrix_product_rate

GIB = 2**30
BERT = Bert(
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=16,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def make_run(tmp_path, *, device="cpu", total=10, rank=0, task="masked_lm", architecture=BERT):
    """A run of a small BERT that has no optimizer and no data."""
    outputs = 20 if task == "masked_lm" else 3
    head = BERT.native_head(task)
    return Run(
        pipeline=SimpleNamespace(architecture=architecture, callbacks={}),
        folder=tmp_path,
        model=make_model(BERT, head, task=task, outputs=outputs, vocab_size=20, seed=0),
        optimizer=None,
        strategy=SimpleNamespace(device=torch.device(device), rank=rank, world_size=1),
        console=Console(io.StringIO()),
        horizon=Horizon(total=total, run_total=total, steps_per_epoch=5, samples_per_epoch=5, tokens_per_epoch=50),
        monitor=None,
        monitor_direction="min",
        threads=1,
    )


def hooks_of(part, run):
    """The hooks of a part, called as the loop does."""
    hooks = PartHooks({"callback.tested": part, "strategy": object()}, default="strategy")
    hooks.run = run
    return hooks.call


def said(run):
    return run.console.rich.file.getvalue()


def batch_of(*lengths, targets=1):
    """Sequences of these lengths, each with targets at its first tokens."""
    rows = [
        Sample(np.ones(n, np.int32), np.zeros(n, np.uint8), np.arange(targets, dtype=np.int32), np.zeros(targets, int))
        for n in lengths
    ]
    return Batch.of(rows, range(len(rows)))


# --- cuda_monitor -----------------------------------------------------------------------------------------------------


@pytest.fixture
def gpu(monkeypatch):
    """The functions of torch.cuda that are asked, and what for."""
    asked = []
    answers = {
        "memory_allocated": 3 * GIB,
        "memory_reserved": 4 * GIB,
        "max_memory_allocated": 3.5 * GIB,
        "utilization": 97,
        "temperature": 61,
        "power_draw": 412_500,  # milliwatts
    }

    def answering(name):
        def answer(device=None):
            asked.append((name, device))
            if isinstance(answers[name], Exception):
                raise answers[name]
            return answers[name]

        return answer

    for name in answers:
        monkeypatch.setattr(torch.cuda, name, answering(name))
    return SimpleNamespace(asked=asked, answers=answers)


def test_readings_are_in_their_units(tmp_path, gpu):
    """GiB of the run's own device, percent, degrees and watts, under the part's name."""
    run = make_run(tmp_path, device="cuda:1")
    run.request_log()
    hooks_of(CudaMonitor().build(), run).on_step_end(run=run)
    assert run.take_logged() == {
        "tested/allocated_gib": 3.0,
        "tested/reserved_gib": 4.0,
        "tested/peak_gib": 3.5,
        "tested/utilization_percent": 97.0,
        "tested/temperature_celsius": 61.0,
        "tested/power_watts": 412.5,
    }
    assert {device for _, device in gpu.asked} == {torch.device("cuda:1")}


class Asks:
    """A part that asks for a row, after cuda_monitor in the file."""

    def on_step_end(self, run):
        run.request_log()


def test_nothing_is_read_between_rows(tmp_path, gpu):
    """Where no row is due nothing is asked; where it is due the part sees it, also before who asks for it."""
    run, monitor = make_run(tmp_path, device="cuda"), CudaMonitor().build()
    hooks_of(monitor, run).on_step_end(run=run)
    assert (gpu.asked, run.take_logged()) == ([], {})
    hooks = PartHooks({"callback.monitor": monitor, "callback.asks": Asks(), "strategy": object()}, default="strategy")
    hooks.run = run
    hooks.call.on_step_end(run=run)
    assert run.take_logged()["monitor/allocated_gib"] == 3.0


@pytest.mark.parametrize(
    "error",
    [RuntimeError("cuda driver can't be loaded"), type("NVMLError_NotSupported", (Exception,), {})("Not Supported")],
)
def test_what_the_driver_refuses_is_said_once(tmp_path, gpu, error):
    """One reading fails in each of three rows: one warning, and the other readings are there."""
    gpu.answers["power_draw"] = error
    run, rows = make_run(tmp_path, device="cuda"), []
    hooks = hooks_of(CudaMonitor().build(), run)
    for _ in range(3):
        run.request_log()
        hooks.on_step_end(run=run)
        rows.append(run.take_logged())
    assert said(run) == f"warning: tested: no power_watts: {error}\n"
    assert all("tested/power_watts" not in row and row["tested/temperature_celsius"] == 61.0 for row in rows)


def test_without_the_drivers_package_it_says_what_to_install(tmp_path, gpu):
    """All three are left out in one line, and memory is still read."""
    for name in ("utilization", "temperature", "power_draw"):
        gpu.answers[name] = ModuleNotFoundError("nvidia-ml-py does not seem to be installed")
    run = make_run(tmp_path, device="cuda")
    run.request_log()
    hooks_of(CudaMonitor().build(), run).on_step_end(run=run)
    assert " ".join(said(run).split()) == (
        "warning: tested: no utilization_percent, temperature_celsius, power_watts: nvidia-ml-py does not seem to be "
        'installed (pip install "rtx-transformers[cuda]")'
    )
    assert set(run.take_logged()) == {"tested/allocated_gib", "tested/reserved_gib", "tested/peak_gib"}


def test_the_driver_is_asked_for_the_gpu_that_the_run_sees(tmp_path, gpu, monkeypatch):
    """Below torch's own functions: of CUDA_VISIBLE_DEVICES 3,5 the device cuda:1 is the driver's number 5."""
    monkeypatch.undo()
    nvml = types.ModuleType("pynvml")
    nvml.NVMLError_DriverNotLoaded = type("NVMLError_DriverNotLoaded", (Exception,), {})
    nvml.nvmlInit = lambda: None
    nvml.nvmlDeviceGetHandleByIndex = lambda index: index
    nvml.nvmlDeviceGetUtilizationRates = lambda handle: SimpleNamespace(gpu=handle * 10)
    nvml.nvmlDeviceGetTemperature = lambda handle, sensor: handle + 50 + sensor
    nvml.nvmlDeviceGetPowerUsage = lambda handle: handle * 100_000
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(torch.cuda, "pynvml", nvml, raising=False)
    monkeypatch.setattr(torch.cuda, "_HAS_PYNVML", True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    run = make_run(tmp_path, device="cuda:1")
    assert CudaMonitor().build()._sensors(run) == {
        "utilization_percent": 50.0,
        "temperature_celsius": 55.0,
        "power_watts": 500.0,
    }


@pytest.mark.parametrize(("device", "inactive"), [("cpu", True), ("mps", True), ("cuda", False)])
def test_without_cuda_it_is_inactive(device, inactive):
    """It says why, and isn't built; on CUDA it is."""
    why = CudaMonitor().inactive_on(torch.device(device))
    assert why == (f"there is no GPU of CUDA to watch, the run is on {device}" if inactive else None)


def test_what_is_of_the_machine_is_known_by_its_name():
    """Values of the two that measure, and the speed, differ between equal runs; a part's own name is no such value."""
    callbacks = {"gpu": CudaMonitor(), "throughput": Throughput(), "ema": Ema()}
    names = ["gpu/power_watts", "throughput/mfu", "tokens_per_second", "ema/decay", "train/loss", "gpu"]
    assert [measured_of_machine(name, callbacks) for name in names] == [True, True, True, False, False, False]


# --- throughput -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "targets"), [("masked_lm", 3), ("sequence_classification", 1)])
def test_the_work_is_what_torch_counts(tmp_path, task, targets):
    """Forward and backward pass of 4 sequences of 6 tokens: each product and each of attention, counted by torch."""
    run, batch = make_run(tmp_path, task=task), batch_of(6, 6, 6, 6, targets=targets)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        run.model(batch).sum().backward()
    assert Work.of(run).on(batch) == counter.get_total_flops()


def test_the_work_is_the_papers():
    """6 N a token and 12 L H Q T for attention, summed over sequences of unequal length."""
    work = Work(per_token=60, per_target=6, per_pair=12)
    assert work.on(batch_of(2, 5, targets=2)) == 60 * 7 + 6 * 4 + 12 * (4 + 25)


def test_a_tied_decoder_counts_and_a_lookup_does_not(tmp_path):
    """N of the backbone is that of its layers; the head has its transform and the table that it shares."""
    work = Work.of(make_run(tmp_path))
    assert work.per_token == 6 * 2 * (4 * 8 * 8 + 2 * 8 * 24)
    assert work.per_target == 6 * (8 * 8 + 20 * 8)
    assert work.per_pair == 12 * 2 * 8


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """Products of matrices take 0.125 seconds each, after one that takes a second; all else takes no time."""
    clock, real = Clock(), torch.mm
    durations = [1.0]

    def product(left, right):
        clock.now += durations.pop() if durations else 0.125
        return real(left, right)

    monkeypatch.setattr(throughput, "time", clock)
    monkeypatch.setattr(throughput, "_SIZE", 16)
    monkeypatch.setattr(torch, "mm", product)
    monkeypatch.setattr(throughput, "_SECONDS", 1.5)
    return clock


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_peak_is_that_of_the_fastest_product(clock, dtype):
    """2 n³ FLOPs in 0.125 seconds; the slow first one doesn't count, and the run's chance is as it was."""
    before = torch.default_generator.get_state()
    assert matrix_product_rate(torch.device("cpu"), dtype) == 2 * 16**3 / 0.125
    assert torch.equal(torch.default_generator.get_state(), before)


def test_products_are_in_the_dtype_of_the_run(tmp_path):
    """That of autocast where a part has it on, else that of the weights."""
    run = make_run(tmp_path)
    assert dtype_of_products(run) == torch.float32
    run.parts = {"callback.amp": AutocastPart(torch.bfloat16), "optimizer": object()}
    assert dtype_of_products(run) == torch.bfloat16
    run.parts = {}
    run.model.to(torch.float16)
    assert dtype_of_products(run) == torch.float16


def test_mfu_is_work_over_time_over_peak(tmp_path, clock):
    """Two rows of two steps: the first has no figure; evaluation and saving don't count, a skipped step does."""
    run, part = make_run(tmp_path), Throughput().build()
    hooks = hooks_of(part, run)
    hooks.on_run_start(run=run)
    assert said(run) == (
        "tested: matrix products in float32 reach 6.55e-08 TFLOP/s on cpu, an mfu of 1\n"  # 8192 / 0.125
    )
    batch = batch_of(4, 6)

    def step(*pieces, row):
        clock.now += 0.5
        run.pieces, run.log_requested = pieces, row
        hooks.on_step_end(run=run)
        return run.take_logged()

    assert step(batch, row=False) == {}
    assert step(batch, row=True) == {}
    hooks.on_eval_start(run=run, name="eval")
    clock.now += 7.0
    hooks.on_eval_end(run=run, name="eval", values={})
    clock.now += 3.0  # saving
    hooks.on_checkpoint(run=run, folder=tmp_path)
    assert step(batch, batch, row=False) == {}
    hooks.on_checkpoint(run=run, folder=tmp_path)
    logged = step(row=True)
    rate = 2 * Work.of(run).on(batch) / 1.0
    assert logged == pytest.approx({"tested/mfu": rate / (2 * 16**3 / 0.125), "tested/tflops": rate / 1e12}, rel=1e-12)


def test_attention_that_is_unknown_is_left_out_and_said(tmp_path, clock):
    """An architecture without ``num_hidden_layers`` is counted by its weights alone."""
    run = make_run(tmp_path, architecture=SimpleNamespace(hidden_size=8))
    hooks_of(Throughput().build(), run).on_run_start(run=run)
    assert "attention is not counted, the architecture has no num_hidden_layers" in " ".join(said(run).split())
    assert Work.of(run).per_pair == 0


# --- profiler ---------------------------------------------------------------------------------------------------------


def test_a_window_beyond_the_run_is_refused(tmp_path):
    """5 + 1 + 3 steps in a run of 8 are refused with both numbers; 9 are enough."""
    long, short = (make_run(tmp_path, total=total) for total in (9, 8))
    hooks_of(Profiler().build(), long).on_build(run=long)
    with pytest.raises(InputError, match=r"callbacks.tested: wait, warmup and active are 9 steps, .* has 8"):
        hooks_of(Profiler().build(), short).on_build(run=short)


@pytest.mark.parametrize("field", ["warmup", "active"])
def test_a_window_of_nothing_is_refused(field):
    """At least a step of warm-up and one to look at."""
    with pytest.raises(ValueError, match="must be longer than nothing"):
        Profiler(**{field: Length.parse("0 steps")})


def test_other_processes_profile_nothing(tmp_path):
    """One trace a run: that of the first process."""
    run, part = make_run(tmp_path, rank=1), Profiler().build()
    hooks = hooks_of(part, run)
    hooks.on_run_start(run=run)
    hooks.on_step_end(run=run)
    hooks.on_run_end(run=run)
    assert list(tmp_path.iterdir()) == []
    assert said(run) == ""
