"""What parts that were made to save memory take of it, each measured in a process of its own."""

import json
import os
import subprocess
import sys

import pytest

MEMORY = """
import contextlib, json, sys
from pathlib import Path
import numpy as np, psutil, pyarrow, torch
from rtx_core.samples import Sample
from rtx_core.store import SampleStore, StoreWriter

def used():
    memory = psutil.Process().memory_info()
    return {"private": memory.rss - memory.shared, "resident": memory.rss}

def growth(before):
    return {name: value - before[name] for name, value in used().items()}

chance, before, most = np.random.default_rng(0), used(), 0
with contextlib.closing(StoreWriter(Path(sys.argv[1]))) as writer:
    for _ in range(100):
        ids = chance.integers(30_000, size=(1000, 100), dtype=np.int32)
        types, one = np.zeros(100, np.uint8), np.ones(1, np.int64)
        writer.add([Sample(row, types, one.astype(np.int32), one) for row in ids])
        most = max(most, growth(before)["private"])
    file = writer.finish({})
written = max(most, growth(before)["private"])
before = used()
store = SampleStore.open(file)
for _ in range(200):
    batch = store.batches([chance.integers(len(store), size=32)])[0]
print(json.dumps({"tokens": store.tokens, "size": file.stat().st_size, "written": written, **growth(before)}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs the figures of /proc")
def test_ten_million_tokens_cost_little_memory(tmp_path):
    """2 bytes each on the disk; written in less than 20 MB, and read at random, the file's pages included, in 50."""
    done = subprocess.run([sys.executable, "-c", MEMORY, tmp_path], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["tokens"] == 10**7
    assert 20e6 < found["size"] < 24e6
    assert found["written"] < 20e6
    assert found["private"] < 10e6
    assert found["resident"] < 50e6


PEAKS = """
import resource, sys, torch
from rtx_core import Outputs
from rtx_plugins.losses.cross_entropy import CrossEntropy

N, H, K = 4096, 16, 16384
targets, weight = torch.arange(N) % K, torch.zeros(K, H, requires_grad=True)

def peak(chunk_size):
    part = CrossEntropy(chunk_size=chunk_size).build(Outputs(size=K))
    features = torch.ones(N, H, requires_grad=True)
    project = lambda rows: rows @ weight.T
    if chunk_size is None:
        part.of_logits(project(features), targets).backward()
    else:
        part.of_features(features, project, targets).backward()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

part = CrossEntropy(chunk_size=1).build(Outputs(size=2))
part.of_features(torch.ones(2, 2, requires_grad=True), lambda rows: rows, torch.zeros(2, dtype=torch.int64)).backward()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
chunked = peak(32) - before
print(chunked / (peak(None) - before))
"""


def test_chunks_need_a_small_part_of_the_memory():
    """Of 4,096 targets and 16,384 classes in chunks of 32 the process grows by less than a twentieth of what all at
    once takes, over forward and backward pass.
    """
    # glibc raises this threshold as it goes, and then keeps what was freed, as much as chance has it.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run([sys.executable, "-c", PEAKS], capture_output=True, text=True, check=True, env=environment)
    assert float(done.stdout) < 0.05
