"""A process that starts runs quickly, and a pipeline with everything that a resume could lose."""

import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import attrs
import pytest

TESTS = Path(__file__).parents[1]
ACME = TESTS / "third_party" / "acme-rtx"
NOVEL = TESTS.parent / "pipelines" / "data" / "moby_dick" / "train.txt"

PIPELINE = """\
[task]
type = "masked_lm"
max_length = 24
[data]
type = "text"
[data.train]
files = ["train.txt"]
[data.eval]
files = ["eval.txt"]
[data.test]
files = ["eval.txt"]
[tokenizer]
type = "wordpiece"
vocab_size = 300
[architecture]
type = "bert"
hidden_size = 16
num_hidden_layers = 2
num_attention_heads = 2
intermediate_size = 32
hidden_dropout_prob = 0.2
attention_probs_dropout_prob = 0.2
max_position_embeddings = 32
[optimizer]
type = "prodigy"
lr = 1.0
weight_decay = 0.01
[training]
duration = "60 steps"
batch_size = 16
micro_batch_size = 5
eval_every = "4 steps"
threads = 1
[callbacks.spike_guard]
threshold = 1.01
momentum = 0.8
[callbacks.checkpoint]
every = "3 steps"
[callbacks.early_stopping]
patience = 4
min_delta = 0.2
"""


@attrs.frozen
class Nursery:
    """A process that starts runs; see nursery.py."""

    process: subprocess.Popen

    def order(self, **order):
        """Start one, wait for its end: its exit status and seconds."""
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="session")
def nursery():
    paths = os.pathsep.join(filter(None, [str(ACME), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": paths}
    command = [sys.executable, "-W", "error", str(Path(__file__).with_name("nursery.py"))]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert json.loads(process.stdout.readline()) == {"ready": process.pid}
        yield Nursery(process)
        process.stdin.close()
        assert process.wait(10) == 0


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """A folder with the pipeline and its data: pipeline.toml."""
    folder = tmp_path_factory.mktemp("home")
    with NOVEL.open(encoding="utf-8") as novel:
        lines = list(islice((line for line in novel if line.strip()), 140))
    (folder / "train.txt").write_text("".join(lines[:100]))
    (folder / "eval.txt").write_text("".join(lines[100:]))
    (folder / "pipeline.toml").write_text(PIPELINE)
    return folder


@pytest.fixture(scope="session")
def plugin_files():
    """What the pipeline needs as ``--plugin``: the optimizer and the callback of an outside package."""
    return [ACME / "acme_rtx" / "prodigy.py", ACME / "acme_rtx" / "spike_guard.py"]
