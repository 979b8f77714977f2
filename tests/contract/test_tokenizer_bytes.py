"""Each tokenizer that trains is a pure function of its text: fresh processes give the same bytes."""

import hashlib
import os
import subprocess
import sys
from importlib import metadata

import attrs
import pytest

# The text has many pairs of equal frequency, so that an order taken from a hash table would show.
PROGRAM = """
import sys
import numpy as np
from rtx_core import SpecialTokens
from importlib import metadata
(entry,) = metadata.entry_points(group="rtx.v1", name=sys.argv[1])
(component,) = entry.load().tokenizer().values()
chance = np.random.default_rng(5)
letters = np.array(list("abcdefghijklmnopqrstuvwxyzäöüß0123456789字汉😀"))
words = ["".join(chance.choice(letters, chance.integers(1, 9))) for _ in range(2000)]
texts = [" ".join(chance.choice(words, 20)) for _ in range(300)]
special_tokens = SpecialTokens(pad="[PAD]", unk="[UNK]", cls="[CLS]", sep="[SEP]", mask="[MASK]")
sys.stdout.buffer.write(component(vocab_size=600).build(iter(texts), special_tokens).to_str().encode())
"""


def trainable():
    """Names of our tokenizers that need no setting: those that are trained."""
    for entry in metadata.entry_points(group="rtx.v1"):
        if entry.name.startswith("tokenizer.") and entry.dist.name == "rtx-transformers":
            (component,) = entry.load().tokenizer().values()
            if all(field.default is not attrs.NOTHING for field in attrs.fields(component)):
                yield entry.name


@pytest.mark.parametrize("name", list(trainable()))
def test_two_fresh_processes_train_the_same_bytes(name):
    """Neither the hash seed nor the number of threads changes a byte of the tokenizer."""
    digests = set()
    for hash_seed, threads in (("1", "1"), ("2", "1"), ("3", "2")):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "RAYON_NUM_THREADS": threads}
        command = [sys.executable, "-c", PROGRAM, name]
        output = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
        assert len(output) > 1000
        digests.add(hashlib.sha256(output).hexdigest())
    assert len(digests) == 1
