"""Evaluating a language model with a large vocabulary never holds the logits of all its targets."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, resource, sys
import numpy as np
import tokenizers
import torch
from tokenizers import models

from rtx_core import Outputs, Record, Sample
from rtx_core.evaluation import Evaluator
from rtx_core.model import make_model
from rtx_core.store import SampleStore
from rtx_plugins.architectures.bert import Bert
from rtx_plugins.losses.cross_entropy import CrossEntropy
from rtx_plugins.metrics.accuracy import Accuracy
from rtx_plugins.metrics.perplexity import Perplexity
from rtx_plugins.strategies.single import Single
from rtx_plugins.tasks.masked_lm import MaskedLm

WORDS, LENGTH = 30_522, 512
count, batch_size = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
architecture = Bert(hidden_size=64, num_hidden_layers=1, num_attention_heads=2, intermediate_size=128)
special = list(architecture.special_tokens.names)
vocabulary = {word: number for number, word in enumerate([*special, *map(str, range(WORDS - len(special)))])}
tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
tokenizer.add_special_tokens(special)
task = MaskedLm().build(
    tokenizer, Outputs(size=WORDS), max_length=LENGTH, special_tokens=architecture.special_tokens
)
chance, none = np.random.default_rng(0), np.zeros(0)
store = SampleStore(
    Sample(
        chance.integers(len(special), WORDS, LENGTH).astype(np.int32),
        np.zeros(LENGTH, np.uint8),
        none.astype(np.int32),
        none.astype(np.int64),
    )
    for _ in range(count)
)
head = architecture.native_head("masked_lm")
model = make_model(architecture, head, task="masked_lm", outputs=WORDS, vocab_size=WORDS, seed=0).eval()
outputs = Outputs(size=WORDS)
evaluator = Evaluator(
    model=model, loss=CrossEntropy().build(outputs), task=task, outputs=WORDS,
    metrics={"perplexity": Perplexity().build(outputs), "accuracy": Accuracy().build(outputs)},
    strategy=Single().build("cpu"), seed=0, batch_size=batch_size,
)
unit = 1 if sys.platform == "darwin" else 1024
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
with torch.inference_mode():
    values = evaluator.values(store)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
print(json.dumps({"before": before, "peak": peak, **values}))
"""

WORDS = 30_522


def evaluated(count, batch_size):
    """Samples of 512 tokens, so many in all and so many at once: peak memory in bytes, and the values."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(count), str(batch_size)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_a_guess(values):
    """Random tokens can't be predicted: the loss of an untrained model is about ln V, its accuracy about 1 / V."""
    assert values["loss"] == pytest.approx(10.326, abs=0.2)
    assert values["accuracy"] < 0.01


def test_logits_are_made_in_pieces():
    """A batch of 48 samples has 450 MB of logits: evaluating it takes less than 350 MB.

    A piece has 64 MB, and what is computed from it makes at most some copies.
    """
    values = evaluated(48, 48)
    assert_a_guess(values)
    targets = 48 * 512 * 0.15
    assert targets * WORDS * 4 > 450e6 * 0.95
    print(f"{(values['peak'] - values['before']) / 1e6:.0f} MB")
    assert values["peak"] - values["before"] < 350e6


@pytest.mark.nightly
def test_evaluating_a_language_model_stays_below_one_and_a_half_gigabytes():
    """1,000 samples of 512 tokens with 30,522 words: 62 GB of logits, 9.4 GB at the targets, 1.2 GB in each batch."""
    values = evaluated(1000, 128)
    assert_a_guess(values)
    print(f"{values['peak'] / 1e9:.2f} GB in all, {values['before'] / 1e9:.2f} GB before")
    assert values["peak"] < 1.5e9
