"""What the loop costs in a step: a model that computes nothing, with the default callbacks, against a bare loop."""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import ClassVar

import attrs
import torch
from torch import nn

from rtx_core import Architecture, Callback, Head, Pipeline, SpecialTokens, hookimpl

STEPS, WARM, BLOCK, BATCH = 1800, 200, 64, 8

PIPELINE = """
[task]
type = "sequence_classification"
text = "text"
label = "label"
[data.train]
type = "jsonl"
files = ["train.jsonl"]
[tokenizer]
type = "wordpiece"
vocab_size = 100
[architecture]
type = "empty"
[head]
type = "empty"
[optimizer]
lr = 1e-3
[training]
duration = "{steps} steps"
batch_size = {batch}
threads = 1
[callbacks.clock]
"""


class Body(nn.Module):
    """One number for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, batch):
        return self.scale.expand(len(batch.input_ids), 1)


class Top(nn.Module):
    """The same number as both logits."""

    def features(self, hidden_states, batch):
        return hidden_states[batch.target_positions]

    def project(self, features):
        return features.expand(-1, 2)


@attrs.frozen(kw_only=True)
class Empty(Architecture):
    """Computes nothing."""

    special_tokens: ClassVar = SpecialTokens("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    hidden_size: int = 1

    def build(self, vocab_size):
        return Body()

    def hf_config(self, task, outputs):
        return {}


@attrs.frozen(kw_only=True)
class EmptyHead(Head):
    """Computes nothing."""

    def build(self, hidden_size, outputs):
        return Top()


@attrs.frozen(kw_only=True)
class Clock(Callback):
    """When each step ended."""

    rows: ClassVar[list] = []

    def on_step_end(self):
        self.rows.append(time.perf_counter())


@hookimpl
def architecture():
    return {"empty": Empty}


@hookimpl
def head():
    return {"empty": EmptyHead}


@hookimpl
def callback():
    return {"clock": Clock}


def ours(folder: Path) -> float:
    """Milliseconds of a step in the middle of a run."""
    import sys

    Clock.rows.clear()
    pipeline = Pipeline.load(folder / "pipeline.toml", plugins=[sys.modules[__name__]])
    pipeline.run(output=folder / "run", overwrite=(folder / "run").exists(), quiet=True)
    return step_time(Clock.rows)


def bare() -> float:
    """Milliseconds of a step that only does what any loop has to: forward, backward, update."""
    body, top = Body(), Top()
    optimizer = torch.optim.AdamW(body.parameters(), lr=1e-3, fused=True)
    hidden = torch.zeros(BATCH, dtype=torch.int64)
    targets = torch.zeros(BATCH, dtype=torch.int64)

    class Packed:
        input_ids = torch.zeros(BATCH * 6, dtype=torch.int64)
        target_positions = hidden

    rows = []
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(top.project(top.features(body(Packed), Packed)), targets)
        loss.backward()
        optimizer.step()
        rows.append(time.perf_counter())
    return step_time(rows)


def step_time(rows: list[float]) -> float:
    """The median over blocks of steps after the warm-up, so that one that was interrupted doesn't count.

    What is done for several steps at once, as packing, is in every block.
    """
    blocks = [(b - a) / BLOCK for a, b in zip(rows[WARM::BLOCK], rows[WARM + BLOCK :: BLOCK], strict=False)]
    return statistics.median(blocks) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "pipeline.toml").write_text(PIPELINE.format(steps=STEPS, batch=BATCH))
        words = ("red", "green", "blue", "round", "flat")
        rows = [{"text": f"{words[i % 5]} {words[i % 3]}", "label": str(i % 2)} for i in range(BATCH * STEPS)]
        (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        pairs = [(ours(folder), bare()) for _ in range(arguments.repeats)]
    for name, values in (
        ("a step of rtx", [a for a, _ in pairs]),
        ("a bare step", [b for _, b in pairs]),
        ("the difference", [a - b for a, b in pairs]),
    ):
        print(f"{name:16} {statistics.median(values):.3f} ms ({min(values):.3f} to {max(values):.3f})")


if __name__ == "__main__":
    main()
