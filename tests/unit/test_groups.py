"""Which parameter is decayed, once each (case 13)."""

import attrs
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


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("*.LayerNrm.*", 'near it is "LayerNorm"'),
        ("bert.encoder.layer.*.atention.self.*", 'near it is "attention"'),
        ("*.bais", 'near it is "bias"'),
        ("bert.embeddings.word_embedding.weight", 'near it is "word_embeddings"'),
        (
            "bert.embeddings.dense.weight",
            'near it are "bert.embeddings.LayerNorm.weight", "bert.embeddings.word_embeddings.weight", ',
        ),
        ("cls.predictions.decoder.weight", 'tied to "bert.embeddings.word_embeddings.weight", which is its name here'),
    ],
)
def test_a_pattern_that_matches_nothing_names_near_ones(model, pattern, hint):
    """A rule without effect is a mistake: the part of the name that is wrong, whole names, or what it is tied to."""
    optimizer = AdamW(lr=0.1, groups=(GroupRule(match=("*.bias",)), GroupRule(match=(pattern,), lr=0.5)))
    with pytest.raises(InputError) as raised:
        parameter_groups(model, BERT.layer_names(), optimizer)
    assert str(raised.value).startswith(f'optimizer.groups.1.match: "{pattern}" matches no parameter; ')
    assert hint in str(raised.value)


def test_the_first_rule_that_matches_wins(model):
    """It may set the rate, the decay or both; what it leaves out stays as it is for the role."""
    rules = (
        GroupRule(match=("*.layer.0.*.bias", "*word_embeddings*"), lr=0.3),
        GroupRule(match=("*.bias",), lr=0.2, weight_decay=0.5),
    )
    groups = parameter_groups(model, BERT.layer_names(), AdamW(lr=0.1, weight_decay=0.01, groups=rules))
    found = {name: (group.lr, group.weight_decay, group.rate_name) for group in groups for name in group.parameters}
    assert found["bert.encoder.layer.0.output.dense.bias"] == (0.3, 0.0, "groups.0")
    assert found["bert.embeddings.word_embeddings.weight"] == (0.3, 0.01, "groups.0")
    assert found["bert.embeddings.LayerNorm.bias"] == (0.2, 0.5, "groups.1")
    assert found["bert.encoder.layer.0.output.dense.weight"] == (0.1, 0.01, None)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (
            [{"match": ("*",), "lr": 0.3}, {"match": ("*.bias",), "lr": 0.2}],
            "optimizer.groups.1: every parameter that it matches has an earlier rule, and the first that matches wins",
        ),
        ([{"match": ("*.bias",)}], "optimizer.groups.0: sets neither lr nor weight_decay, so it does nothing"),
    ],
)
def test_a_rule_that_changes_nothing_is_refused(model, rules, message):
    """The wider rule in front of the narrower, or one without a setting."""
    optimizer = AdamW(lr=0.1, groups=tuple(GroupRule(**rule) for rule in rules))
    with pytest.raises(InputError) as raised:
        parameter_groups(model, BERT.layer_names(), optimizer)
    assert str(raised.value).startswith(message)


def test_a_rule_without_settings_keeps_parameters_from_a_later_one(model):
    """Biases of the layer have the optimizer's rate, all others that of the second rule."""
    rules = (GroupRule(match=("*.layer.0.*.bias",)), GroupRule(match=("*.bias",), lr=0.2))
    groups = parameter_groups(model, BERT.layer_names(), AdamW(lr=0.1, groups=rules))
    rates = {name: group.lr for group in groups for name in group.parameters}
    assert rates["bert.encoder.layer.0.output.dense.bias"] == 0.1
    assert rates["bert.embeddings.LayerNorm.bias"] == 0.2


def test_layer_wise_rates_fall_from_the_head_down():
    """Rate 0.4, factor 0.5, 3 layers: head 0.4, layers 2, 1, 0 at 0.2, 0.1, 0.05, embeddings 0.025; each named."""
    bert = attrs.evolve(BERT, num_hidden_layers=3)
    deep = make_model(bert, bert.native_head("masked_lm"), task="masked_lm", outputs=20, vocab_size=20, seed=0)
    groups = parameter_groups(deep, bert.layer_names(), AdamW(lr=0.4, layer_lr_decay=0.5))
    rates = {name: (group.lr, group.rate_name) for group in groups for name in group.parameters}
    for prefix, lr, named in (
        ("cls.", 0.4, None),
        ("bert.encoder.layer.2.", 0.2, "bert.encoder.layer.2"),
        ("bert.encoder.layer.1.", 0.1, "bert.encoder.layer.1"),
        ("bert.encoder.layer.0.", 0.05, "bert.encoder.layer.0"),
        ("bert.embeddings.", 0.025, "bert.embeddings"),
    ):
        (found,) = {rate for name, rate in rates.items() if name.startswith(prefix)}
        assert found == (pytest.approx(lr), named)
