"""What a GPU does while it trains: memory as torch has it, load, temperature and power as the driver says."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from rtx_core import Callback, hookimpl

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from rtx_core import Run

_GIB = 2**30
_MILLIWATTS = 1000.0


class CudaMonitorPart:
    """Reads when a row of values is due, and at no other time."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    # Last, so that whoever asks for a row has asked.
    @hookimpl(trylast=True)
    def on_step_end(self, run: Run) -> None:
        """Add the readings to the step's row."""
        if run.log_requested:
            run.log({**memory(run.device), **self._sensors(run)})

    def _sensors(self, run: Run) -> dict[str, float]:
        """Those that answer; what the others say instead is said once."""
        import torch

        readers: dict[str, Callable[[], float]] = {
            "utilization_percent": lambda: float(torch.cuda.utilization(run.device)),
            "temperature_celsius": lambda: float(torch.cuda.temperature(run.device)),
            "power_watts": lambda: torch.cuda.power_draw(run.device) / _MILLIWATTS,
        }
        values: dict[str, float] = {}
        silent: dict[str, list[str]] = {}
        for name, read in readers.items():
            try:
                values[name] = read()
            except ImportError as error:
                hint = f'{error} (pip install "rtx-transformers[cuda]")'
                silent.setdefault(hint, []).append(name)
            except Exception as error:  # noqa: BLE001 - each driver has errors of its own, and none may end a run
                silent.setdefault(str(error), []).append(name)
        for why, names in silent.items():
            if why not in self._told:
                self._told.add(why)
                run.console.warn(f"{run.speaker}: no {', '.join(names)}: {why}")
        return values


def memory(device: torch.device) -> dict[str, float]:
    """In GiB: what tensors take, what torch holds for them, and the most that tensors took so far."""
    import torch

    return {
        "allocated_gib": torch.cuda.memory_allocated(device) / _GIB,
        "reserved_gib": torch.cuda.memory_reserved(device) / _GIB,
        "peak_gib": torch.cuda.max_memory_allocated(device) / _GIB,
    }


@attrs.frozen(kw_only=True)
class CudaMonitor(Callback):
    """Adds what the process's GPU does to each row of values.

    ``allocated_gib``, ``reserved_gib``, ``peak_gib``: memory of tensors, of torch's allocator, and the most that
    tensors had since the process began. ``utilization_percent``, ``temperature_celsius``, ``power_watts``: as NVML has
    them, which needs the extra ``cuda``. It has no settings, and does nothing where there is no GPU of CUDA.
    """

    measures_machine: ClassVar[bool] = True
    once: ClassVar[bool] = True

    def inactive_on(self, device: torch.device) -> str | None:
        """Everywhere but on CUDA."""
        return None if device.type == "cuda" else f"there is no GPU of CUDA to watch, the run is on {device}"

    def build(self) -> CudaMonitorPart:
        """The part, which remembers what it has said."""
        return CudaMonitorPart()


@hookimpl
def callback() -> dict[str, type[Callback]]:
    """Offer it as ``cuda_monitor``."""
    return {"cuda_monitor": CudaMonitor}
