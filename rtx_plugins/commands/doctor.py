"""Say what rtx finds on this machine: versions, devices, threads, plugins, disk."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from rtx_core import Command, PluginError, hookimpl
from rtx_core.cache import default_folder, size_of
from rtx_core.registry import GROUP, OURS
from rtx_core.sources import cache_folder

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from rtx_core.registry import Entry, Registry

_PACKAGES = ("torch", "tokenizers", "safetensors", "pyarrow", "numpy", "attrs", "cattrs", "pluggy", "transformers")
_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""What a CPU that multiplies in bfloat16 says of itself, on x86 and on ARM."""
_MEBIBYTE, _GIBIBYTE = 1 << 20, 1 << 30


@attrs.frozen(kw_only=True)
class Doctor(Command):
    """Say what rtx finds on this machine. Imports every installed plugin; exit status 1 where something is broken."""

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Only how to print it."""
        parser.add_argument("--json", action="store_true", help="print it for a program to read")

    @classmethod
    def main(cls, arguments: argparse.Namespace, registry: Registry) -> int:
        """Print each finding; the problems come last."""
        report = examine(registry)
        if arguments.json:
            print(json.dumps(report, indent=2))
        else:
            _print(report)
        return 1 if report["problems"] else 0


def examine(registry: Registry) -> dict[str, Any]:
    """Findings by topic; ``notes`` and ``problems`` are lists of sentences."""
    problems = list(_plugin_problems(registry))
    try:
        device = _device()
    except (ImportError, OSError) as error:  # OSError: one of its libraries can't be loaded
        device = {"torch": "can't be imported"}
        problems.append(f"torch can't be imported: {error}")
    return {
        "versions": _versions(),
        "machine": _machine(),
        "device": device,
        "plugins": _plugins(registry),
        "disk": _disk(),
        "notes": list(_notes(registry)),
        "problems": problems,
    }


# --- findings ---------------------------------------------------------------------------------------------------------


def _versions() -> dict[str, Any]:
    found: dict[str, Any] = {OURS: _version(OURS), "plugin API": GROUP}
    found["python"] = f"{platform.python_version()} ({sys.executable})"
    return found | {name: _version(name) for name in _PACKAGES}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _machine() -> dict[str, Any]:
    import psutil

    flags = _cpu_flags()
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": f"{psutil.cpu_count(logical=False)} physical, {psutil.cpu_count()} logical",
        "memory": f"{psutil.virtual_memory().total / _GIBIBYTE:.1f} GiB",
        # Without it a product in bfloat16 is emulated and far slower than in float32.
        "bfloat16 on the CPU": "unknown" if flags is None else "yes" if flags & _BF16_FLAGS else "no",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "not set"),
    }


def _cpu_flags() -> frozenset[str] | None:
    """What the CPU can do, by Linux; None on other systems."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    lines = (line.partition(":") for line in text.splitlines())
    return next((frozenset(value.split()) for name, _, value in lines if name.strip() in ("flags", "Features")), None)


def _device() -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cuda": torch.version.cuda or "not in this torch",
    }
    for number in range(torch.cuda.device_count()):
        memory = torch.cuda.get_device_properties(number).total_memory / _GIBIBYTE
        precise = "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "no bfloat16"
        found[f"cuda:{number}"] = f"{torch.cuda.get_device_name(number)}, {memory:.0f} GiB, {precise}"
    if torch.backends.mps.is_available():
        found["mps"] = "available"
    return found


def _plugins(registry: Registry) -> dict[str, Any]:
    """Each distribution with the names of its parts."""
    found: dict[str, Any] = {}
    for entry in registry.entries:
        found.setdefault(entry.source, []).append(f"{entry.kind}.{entry.name}")
    return {source: sorted(names) for source, names in sorted(found.items())}


def _disk() -> dict[str, Any]:
    here, cache = Path.cwd(), cache_folder()
    return {
        "free here": f"{shutil.disk_usage(here).free / _GIBIBYTE:.1f} GiB in {here}",
        "cache": _cache(),
        "cache of hub: sources": f"{cache} ({'there' if cache.is_dir() else 'nothing in it yet'})",
    }


def _cache() -> str:
    """Where the encoded data of earlier starts are, and how much of the disk they take."""
    folder = default_folder()
    if folder is None:
        return "none: there is no home folder; RTX_CACHE names one"
    try:
        entries, size = size_of(folder)
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return f"{folder}, {entries:,} {'entry' if entries == 1 else 'entries'}, {size / _MEBIBYTE:.1f} MiB"


# --- problems ---------------------------------------------------------------------------------------------------------


def _plugin_problems(registry: Registry) -> Iterator[str]:
    """What is broken, whether a pipeline names it or not."""
    for entry in registry.entries:
        # The file of a --plugin is loaded already.
        if entry.file is None and (problem := _import_problem(registry, entry)):
            yield problem
    yield from (entry.problem for entry in registry.malformed)
    for entry in registry.other_versions:
        yield f"{entry.kind}.{entry.name} of {entry.source} is for plugin API {entry.group}, this is {GROUP}"


def _notes(registry: Registry) -> Iterator[str]:
    """Names that mean another part than ours, or that need a line in the pipeline."""
    for kind, name in sorted({(entry.kind, entry.name) for entry in registry.entries}):
        try:
            taken = registry.entry(kind, name)
        except PluginError as error:
            yield str(error)
            continue
        if any((e.kind, e.name, e.distribution) == (kind, name, OURS) and e != taken for e in registry.entries):
            yield f"{kind}.{name} is supplied by {taken.source} instead of {OURS}"


def _import_problem(registry: Registry, entry: Entry) -> str:
    try:
        registry.find(entry.kind, f"{entry.distribution}:{entry.name}")
    except PluginError as error:
        return str(error)
    return ""


def _print(report: dict[str, Any]) -> None:
    topics = {name: found for name, found in report.items() if isinstance(found, dict)}
    width = max(len(name) for found in topics.values() for name in found)
    for topic, found in topics.items():
        print(topic)
        for name, value in found.items():
            text = ", ".join(value) if isinstance(value, list) else str(value)
            first, *rest = textwrap.wrap(text, 100, break_long_words=False, break_on_hyphens=False) or [""]
            print(f"  {name.ljust(width)}  {first}", *(f"{' ' * width}    {line}" for line in rest), sep="\n")
    for name in ("notes", "problems"):
        if report[name]:
            print(name, *(f"  {line}" for line in report[name]), sep="\n")
    if not report["problems"]:
        print("no problem found; every installed plugin was imported")


@hookimpl
def command() -> dict[str, type[Command]]:
    """Offer it as ``doctor``."""
    return {"doctor": Doctor}
