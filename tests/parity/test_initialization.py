"""Models start as transformers' do, with every head: zeros and ones exactly, the rest in distribution.

No tolerance is by eye. Of n draws of a normal with mean 0 the sum of squares over σ² is χ² with n degrees of freedom.
So the ratio of two samples' mean squares is F(n, n), and the difference of their means normal with variance 2 σ² / n.
Of a normal that is cut off both scatter less, so the bounds hold for it too.
"""

import math

import attrs
import pytest
import torch
import transformers
from scipy import stats

from rtx_core import Outputs
from rtx_core.model import make_model
from rtx_plugins.architectures.bert import Bert
from rtx_plugins.architectures.distilbert import DistilBert
from rtx_plugins.architectures.modernbert import ModernBert
from rtx_plugins.architectures.roberta import Roberta

SEEDS = range(20)
UNLIKELY = 1e-6
"""How likely one comparison is to fail where nothing is wrong; there are some thousands of them, on fixed seeds."""
COMPARED = 50_000
"""Draws of a model that are compared by shape; more would only take longer."""
VOCABULARY, LABELS = 61, ("animal", "food", "person", "plant", "thing")


@attrs.frozen
class Family:
    """A component, transformers' names for its config and classes, and a small size of it."""

    component: type
    config: type
    classes: str
    causal: str | None
    sizes: dict


SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 34,
    "initializer_range": 0.05,
}
FAMILIES = {
    "bert": Family(Bert, transformers.BertConfig, "Bert", "BertLMHeadModel", SIZES),
    "roberta": Family(Roberta, transformers.RobertaConfig, "Roberta", "RobertaForCausalLM", SIZES),
    "distilbert": Family(
        DistilBert,
        transformers.DistilBertConfig,
        "DistilBert",
        None,
        {
            "dim": 48,
            "n_layers": 2,
            "n_heads": 4,
            "hidden_dim": 64,
            "max_position_embeddings": 34,
            "initializer_range": 0.05,
        },
    ),
    "modernbert": Family(
        ModernBert,
        transformers.ModernBertConfig,
        "ModernBert",
        None,
        {**SIZES, **dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), True)},
    ),
}
HEADS = {
    "sequence_classification": "ForSequenceClassification",
    "token_classification": "ForTokenClassification",
    "masked_lm": "ForMaskedLM",
    "question_answering": "ForQuestionAnswering",
    "causal_lm": None,
}
"""The end of transformers' class; that of a causal model is the family's."""
UNTIED = {"tie_word_embeddings": False}


def cases():
    """Each family with each of its heads, with a decoder of its own, and ModernBERT cut off closer to 0."""
    for name, family in FAMILIES.items():
        for task in HEADS:
            fields = {"is_decoder": True} if task == "causal_lm" else {}
            if task != "causal_lm" or family.causal is not None:
                yield pytest.param(family, task, fields, id=f"{name}, {task}")
        yield pytest.param(family, "masked_lm", UNTIED, id=f"{name}, masked_lm untied")
    for task in ("masked_lm", "sequence_classification"):
        fields = {"initializer_cutoff_factor": 0.7, **UNTIED}
        yield pytest.param(FAMILIES["modernbert"], task, fields, id=f"modernbert, {task} cut off at 0.7 σ")


def draws(models):
    """Each parameter by name, stacked over models."""
    stacks = {}
    for parameters in models:
        for name, parameter in parameters.items():
            stacks.setdefault(name, []).append(parameter.detach())
    return {name: torch.stack(tensors) for name, tensors in stacks.items()}


def ours(architecture, task, outputs):
    """Our model of each seed."""
    for seed in SEEDS:
        yield make_model(
            architecture,
            architecture.native_head(task),
            task=task,
            outputs=outputs.size,
            vocab_size=VOCABULARY,
            seed=seed,
        ).parameters_by_name()


def theirs(cls, config):
    """Transformers' model of each seed."""
    for seed in SEEDS:
        torch.manual_seed(seed)
        yield dict(cls(config).named_parameters())


@pytest.mark.parametrize(("family", "task", "fields"), list(cases()))
def test_the_start_is_transformers(family, task, fields):
    """Over 20 seeds: the same constants in the same places; of what is drawn the same mean, spread and distribution."""
    architecture = family.component(vocab_size=VOCABULARY, **{**family.sizes, **fields})
    outputs = {
        "masked_lm": Outputs(size=VOCABULARY),
        "causal_lm": Outputs(size=VOCABULARY),
        "question_answering": Outputs(size=2),
    }.get(task, Outputs(size=len(LABELS), labels=LABELS))
    cls = getattr(transformers, family.causal if task == "causal_lm" else f"{family.classes}{HEADS[task]}")
    config = family.config.from_dict(architecture.hf_config(task, outputs))
    found, expected = draws(ours(architecture, task, outputs)), draws(theirs(cls, config))

    assert found.keys() == expected.keys()
    standard = []
    for name, wanted in expected.items():
        is_drawn = (wanted != wanted[0]).any(dim=0)
        assert torch.equal(found[name][:, ~is_drawn], wanted[:, ~is_drawn]), name
        if is_drawn.any():
            one, other = found[name][:, is_drawn].double(), wanted[:, is_drawn].double()
            assert_same_spread(one, other, name)
            assert all(not torch.equal(one[0], one[seed]) for seed in SEEDS[1:]), name
            standard.append((one.flatten() / other.std(), other.flatten() / other.std()))
    assert len(standard) >= 10
    one, other = (
        torch.cat(column)[:: max(1, sum(map(len, column)) // COMPARED)] for column in zip(*standard, strict=True)
    )
    assert stats.ks_2samp(one, other, method="asymp").pvalue > UNLIKELY


def assert_same_spread(one, other, name):
    """That two samples of the same number of draws have the same mean and the same mean square."""
    count, squares = one.numel(), (one.square().mean().item(), other.square().mean().item())
    ratio = squares[0] / squares[1]
    assert stats.f.isf(1 - UNLIKELY / 2, count, count) < ratio < stats.f.isf(UNLIKELY / 2, count, count), name
    bound = stats.norm.isf(UNLIKELY / 2) * math.sqrt(sum(squares) / count)
    assert abs(one.mean() - other.mean()) < bound, name


@pytest.mark.parametrize("cutoff", [0.5, 2.0, 3.0])
def test_modernberts_modules_have_spreads_of_their_own(cutoff):
    """What reads the hidden states σ, what adds to them σ / √(2 · layers), the classifier H ** -0.5; each cut off."""
    family = FAMILIES["modernbert"]
    architecture = ModernBert(vocab_size=VOCABULARY, **family.sizes, initializer_cutoff_factor=cutoff)
    found = draws(ours(architecture, "sequence_classification", Outputs(size=len(LABELS), labels=LABELS)))
    narrow = 0.05 / math.sqrt(2 * 2)
    stds = {
        "embeddings.tok_embeddings": 0.05,
        "layers.1.attn.Wqkv": 0.05,
        "layers.1.mlp.Wi": 0.05,
        "layers.1.attn.Wo": narrow,
        "layers.1.mlp.Wo": narrow,
        "head.dense": narrow,
        "classifier": 48**-0.5,
    }
    for module, std in stds.items():
        values = next(found[name] for name in found if name.removeprefix("model.") == f"{module}.weight").double()
        expected = stats.truncnorm(-cutoff, cutoff, scale=std)
        assert values.abs().max() <= cutoff * std, module
        share = values.square().mean().item() * values.numel() / expected.var()
        bounds = stats.chi2.isf((1 - UNLIKELY / 2, UNLIKELY / 2), values.numel())
        assert bounds[0] < share < bounds[1], module
        assert stats.kstest(values.flatten()[:COMPARED], expected.cdf, method="asymp").pvalue > UNLIKELY, module
