"""Which parameter is decayed, once each (case 13)."""

import pytest
import torch

from rtx_core.components import GroupRule
from rtx_core.errors import InputError
from rtx_core.groups import parameter_groups
from rtx_core.model import initialize, make_model
from rtx_plugins.architectures.bert import Bert
from rtx_plugins.optimizers.adamw import AdamW

BERT = Bert(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, max_position_embeddings=16)


@pytest.fixture
def model():
    """A masked LM whose decoder is tied to the token table."""
    made = make_model(BERT, BERT.native_head("masked_lm"), task="masked_lm", outputs=20, vocab_size=20, seed=0)
    initialize(made, made.parameters_by_name().keys(), 0)
    return made


def test_decay_shrinks_matrices_once_and_leaves_norms_and_biases(model):
    """Case 13: lr 0.1, decay 0.1, zero gradients: dense and the tied table × 0.99, LayerNorm 1, biases 0.5."""
    optimizer = AdamW(lr=0.1, weight_decay=0.1)
    built = optimizer.build(parameter_groups(model, BERT.layer_names(), optimizer))
    named = model.parameters_by_name()
    with torch.no_grad():
        for name, parameter in named.items():
            if name.endswith("bias"):
                parameter.fill_(0.5)
            parameter.grad = torch.zeros_like(parameter)
    before = {name: parameter.detach().clone() for name, parameter in named.items()}
    built.step()
    dense = "bert.encoder.layer.0.intermediate.dense.weight"
    table = "bert.embeddings.word_embeddings.weight"
    for name in (dense, table):
        torch.testing.assert_close(named[name], before[name] * 0.99, rtol=1e-6, atol=0)
    assert (named["bert.embeddings.LayerNorm.weight"] == 1).all()
    assert all((parameter == 0.5).all() for name, parameter in named.items() if name.endswith("bias"))


def test_the_optimizer_holds_each_distinct_tensor_once(model):
    """Case 13: the decoder's weight is the token table, and its bias has two names."""
    optimizer = AdamW(lr=0.1)
    groups = parameter_groups(model, BERT.layer_names(), optimizer)
    held = [parameter for group in groups for parameter in group.parameters.values()]
    assert len(held) == len({id(parameter) for parameter in held}) == len(list(model.parameters()))


def test_a_pattern_that_matches_nothing_names_a_near_one(model):
    """A rule without effect is a mistake."""
    optimizer = AdamW(lr=0.1, groups=(GroupRule(match=("*.LayerNrm.*",), lr=0.5),))
    with pytest.raises(InputError, match=r'"\*\.LayerNrm\.\*" matches no parameter; near it is "LayerNorm"'):
        parameter_groups(model, BERT.layer_names(), optimizer)


def test_layer_wise_rates_fall_from_the_head_down(model):
    """With 0.5 the head has the whole rate, the layer half of it, the embeddings a quarter."""
    optimizer = AdamW(lr=0.4, layer_lr_decay=0.5)
    groups = parameter_groups(model, BERT.layer_names(), optimizer)
    rates = {name: group.lr for group in groups for name in group.parameters}
    assert rates["cls.predictions.transform.dense.weight"] == pytest.approx(0.4)
    assert rates["bert.encoder.layer.0.intermediate.dense.weight"] == pytest.approx(0.2)
    assert rates["bert.embeddings.word_embeddings.weight"] == pytest.approx(0.1)
