"""Pairs of models with the same weights: one of ours, one of transformers'."""

import numpy as np
import pytest
import torch

from rtx_core import Batch, LoadRules, Sample, weights
from rtx_core.model import initialize, make_model
from rtx_plugins.architectures.bert import Bert

VOCABULARY = 61
CLASSES = 5
LENGTHS = (2, 5, 9, 9, 10, 17, 11)


@pytest.fixture(autouse=True)
def one_thread():
    """Sums in one order, so that tolerances needn't allow for another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def bert():
    """A function that gives a small BERT with these fields on top; sizes are odd where they may be."""

    def settings(**fields):
        sizes = {
            "vocab_size": VOCABULARY,
            "hidden_size": 24,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "intermediate_size": 40,
            "max_position_embeddings": 17,
        }
        return Bert(**(sizes | fields))

    return settings


@pytest.fixture
def build(bert):
    """A function that builds our model of a task, in evaluation mode, from a seed; the fields are the BERT's."""

    def make(task, *, head=None, seed=0, outputs=CLASSES, **fields):
        architecture = bert(**fields)
        rows = architecture.vocab_size
        model = make_model(
            architecture,
            head or architecture.native_head(task),
            task=task,
            outputs=rows if task in ("masked_lm", "causal_lm") else outputs,
            vocab_size=rows,
            seed=seed,
        )
        initialize(model, model.parameters_by_name().keys(), seed)
        return model.eval()

    return make


@pytest.fixture
def samples():
    """A function that gives samples of ragged length with targets: the first token, every token or a few of them."""

    def make(where, outputs=CLASSES, lengths=LENGTHS):
        draw = np.random.default_rng(7)
        return [_sample(draw, length, where, outputs) for length in lengths]

    return make


@pytest.fixture
def batch(samples):
    """A function that gives the samples of :func:`samples` as one batch."""

    def make(where="first", outputs=CLASSES):
        made = samples(where, outputs)
        return Batch.of(made, range(len(made)))

    return make


def _sample(draw, length, where, outputs):
    positions = {
        "first": np.zeros(1),
        "all": np.arange(length),
        "some": np.sort(draw.choice(length, size=length // 3, replace=False)),
    }[where]
    return Sample(
        input_ids=draw.integers(1, VOCABULARY, length).astype(np.int32),
        token_types=draw.integers(0, 2, length).astype(np.uint8),
        target_positions=positions.astype(np.int32),
        targets=draw.integers(0, outputs, len(positions)),
    )


@pytest.fixture
def randomised():
    """A function that gives every parameter of a model values that matter: biases and norms too."""

    def randomise(model):
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for name, parameter in sorted(model.named_parameters()):
                parameter.normal_(std=0.1, generator=generator)
                if name.endswith(("LayerNorm.weight", "norm.weight")):
                    parameter.add_(1.0)
        return model

    return randomise


@pytest.fixture
def load():
    """A function that fills a model from a folder, as a run with ``from_pretrained`` does."""

    def fill(model, folder, rules=None):
        parameters = model.parameters_by_name()
        backbone = {model.public_name(f"backbone.{name}") for name, _ in model.backbone.named_parameters()}
        context = weights.LoadContext(
            base_prefix=model.public_name("backbone."),
            head=parameters.keys() - backbone,
            tied=model.tied_names(),
            rules=rules or LoadRules(),
        )
        return weights.load(folder, parameters, context)

    return fill
