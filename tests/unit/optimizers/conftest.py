"""Weights, gradients and groups for optimizers without a model."""

import numpy as np
import pytest
import torch

from rtx_core import ParameterGroup
from rtx_core.model import initialize, make_model
from rtx_plugins.architectures.bert import Bert


@pytest.fixture
def group():
    """A group of parameters as the core makes one."""

    def make(parameters, *, lr=0.1, weight_decay=0.0, role="matrix"):
        return ParameterGroup(parameters=parameters, lr=lr, weight_decay=weight_decay, layer=None, role=role)

    return make


@pytest.fixture
def gradients():
    """A different gradient for each step, over several orders of magnitude: ``gradients(shape, steps)``."""

    def make(shape, steps=20, dtype=torch.float32):
        generator = torch.Generator().manual_seed(0)
        return [torch.randn(shape, generator=generator, dtype=dtype) * 10.0 ** (-(step % 4)) for step in range(steps)]

    return make


@pytest.fixture
def train():
    """Let an optimizer update a weight by each gradient, at a rate of its own in each step where rates are given."""

    def run(optimizer, weight, gradients, rates=None):
        for step, gradient in enumerate(gradients):
            if rates is not None:
                for options in optimizer.param_groups:
                    options["lr"] = rates[step]
            weight.grad = gradient.clone()
            optimizer.step()

    return run


@pytest.fixture
def follows(group, gradients, train):
    """Check an optimizer in float64 against a formula, at falling rates.

    ``follows(component, formula, shape)``: ``formula(w, gradients, rates)`` gives the weights in numpy at the end.
    """

    def check(component, formula, *, shape=(4, 3), weight_decay=0.0, role="matrix", steps=40, rtol=1e-9, atol=0.0):
        start = torch.linspace(-1, 1, int(np.prod(shape)), dtype=torch.float64).reshape(shape)
        weight = torch.nn.Parameter(start.clone())
        optimizer = component.build([group({"w": weight}, lr=component.lr, weight_decay=weight_decay, role=role)])
        given = gradients(shape, steps, torch.float64)
        rates = [component.lr * (1 - step / (2 * steps)) for step in range(steps)]
        train(optimizer, weight, given, rates)
        expected = formula(start.numpy().copy(), [gradient.numpy() for gradient in given], rates)
        assert not np.allclose(expected, start.numpy(), rtol=1e-3)
        np.testing.assert_allclose(weight.detach().numpy(), expected, rtol=rtol, atol=atol)

    return check


@pytest.fixture
def make_bert():
    """Make a masked language model of one layer, always the same; the decoder is tied to the token table."""

    def make():
        architecture = Bert(
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=16,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        head = architecture.native_head("masked_lm")
        model = make_model(architecture, head, task="masked_lm", outputs=20, vocab_size=20, seed=0)
        initialize(model, model.parameters_by_name().keys(), 0)
        return model, architecture

    return make


@pytest.fixture
def bert(make_bert):
    """A model and its architecture."""
    return make_bert()
