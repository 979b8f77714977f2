"""What ``from_pretrained`` makes of a ``config.json`` that is incomplete or odd: one line each, or the right model."""

from __future__ import annotations

import json

import pytest

PIPELINE = """\
[task]
type = "sequence_classification"
[data]
type = "jsonl"
[data.train]
files = ["train.jsonl"]
[architecture]
from_pretrained = "models/small"
{more}
[optimizer]
lr = 5e-4
[training]
duration = "3 epochs"
batch_size = 8
"""
AT = "pipeline.toml:8:19: architecture.from_pretrained: config.json "
OF = "config.json of models/small: architecture."
INSTEAD = "; a value in [architecture] takes its place"
MINE = 'type = "bert"'


@pytest.fixture
def with_config(pretrained, folder):
    """A function that takes keys out of the small BERT's config.json and puts others into it, and gives a pipeline."""

    def change(*without, more="", **values):
        file = folder / "models/small" / "config.json"
        if not file.exists():
            pretrained()
        kept = {key: value for key, value in json.loads(file.read_text()).items() if key not in without}
        file.write_text(json.dumps(kept | values), encoding="utf-8")
        return PIPELINE.format(more=more)

    return change


@pytest.mark.parametrize("values", [{}, {"model_type": None}, {"model_type": 3}, {"model_type": ["bert"]}])
def test_without_a_model_type_the_type_must_be_written(lines, loaded, with_config, values):
    """The line names what it can be; written, or null in the file beside it, the weights are taken for that."""
    text = with_config("model_type", **values)
    (line,) = lines(text)
    assert line.startswith(f"{AT}names no model_type, so the type must be written; type can be bert, distilbert, ")
    if values in ({}, {"model_type": None}):
        assert loaded(with_config(more=MINE)).architecture.hidden_size == 16


def test_another_family_than_the_written_one_is_refused(lines, with_config):
    """With what the file says, and the two ways on."""
    (line,) = lines(with_config(model_type="distilbert", more=MINE))
    assert (
        line == f'{AT}has model_type "distilbert"; bert takes "bert" only; write type = "distilbert", or leave it out'
    )
    (line,) = lines(with_config(model_type="gpt2", more=MINE))
    assert line == f'{AT}has model_type "gpt2"; bert takes "bert" only'


@pytest.mark.parametrize("without", ["architectures", "vocab_size", "layer_norm_eps", "type_vocab_size"])
def test_what_has_one_usual_value_may_be_missing(loaded, with_config, without):
    """As in transformers it has its default; the names of the tensors tell which class they are of."""
    assert loaded(with_config(without)).architecture.num_hidden_layers == 3


@pytest.mark.parametrize("keys", [("num_attention_heads",), ("num_hidden_layers", "intermediate_size")])
def test_a_missing_size_is_no_other_models_size(lines, loaded, with_config, keys):
    """The base model's 12 heads would fit other weights too, without a word; written in the pipeline they are known."""
    text = with_config(*keys)
    (line,) = lines(text)
    assert line == f"{AT}has no {', '.join(keys)}; write in [architecture] what the weights were trained with"
    written = "\n".join(f"{key} = 4" for key in keys)
    assert getattr(loaded(with_config(more=written)).architecture, keys[0]) == 4
    assert loaded(with_config(more='preset = "tiny"')).architecture.num_hidden_layers == 2


def test_an_empty_object_is_no_model(lines, with_config):
    """Neither are all defaults what the weights are, even if the type is written."""
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
    (line,) = lines(with_config("model_type", *sizes, more=MINE))
    assert line == f"{AT}has no {', '.join(sizes)}; write in [architecture] what the weights were trained with"


WRONG = {
    "text": ({"hidden_size": "16"}, 'hidden_size: expected an integer, got "16"; write 16'),
    "a float": ({"hidden_size": 16.0}, "hidden_size: expected an integer, got 16.0; write 16"),
    "a boolean": ({"num_hidden_layers": True}, "num_hidden_layers: expected an integer, got true"),
    "null": ({"hidden_size": None}, "hidden_size: expected an integer, got nothing"),
    "negative": ({"intermediate_size": -24}, "intermediate_size: must be >= 1, got -24"),
    "zero": ({"num_hidden_layers": 0}, "num_hidden_layers: must be >= 1, got 0"),
    "beyond 64 bits": ({"intermediate_size": 10**30}, "intermediate_size: is too large for an integer of 64 bits"),
    "a share above 1": ({"hidden_dropout_prob": 1.5}, "hidden_dropout_prob: must be < 1.0, got 1.5"),
    "not a number": ({"layer_norm_eps": float("nan")}, "layer_norm_eps: expected a finite number, got nan"),
    "an unknown activation": (
        {"hidden_act": "softplus"},
        (
            'hidden_act: expected "gelu" or "gelu_new" or "gelu_pytorch_tanh" or "quick_gelu" or "relu" or "silu" or '
            '"swish" or "tanh", got "softplus"'
        ),
    ),
    "heads that share unequally": (
        {"num_attention_heads": 5},
        "hidden_size: 16 can't be shared equally by 5 attention heads",
    ),
    "padding outside the table": ({"pad_token_id": 9, "vocab_size": 9}, "pad_token_id: 9 is not below vocab_size, 9"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_value_is_a_line_with_file_key_and_way_out(lines, with_config, case):
    """What config.json says is checked as if it were written; nothing is taken for something like it."""
    values, message = WRONG[case]
    assert lines(with_config(**values)) == [f"{OF}{message}{INSTEAD}"]


def test_the_way_out_works(loaded, with_config):
    """A value in the pipeline takes the place of a wrong one."""
    text = with_config(hidden_size="16", hidden_act="softplus", more='hidden_size = 16\nhidden_act = "relu"')
    assert (loaded(text).architecture.hidden_size, loaded(text).architecture.hidden_act) == (16, "relu")


def test_config_json_can_not_loosen_what_loading_refuses(loaded, with_config):
    """Which tensors may be missing, where the weights are and which preset is meant, the pipeline alone says."""
    text = with_config(preset="base", from_pretrained="elsewhere", load={"allow_new": ["*"], "allow_unused": ["*"]})
    architecture = loaded(text).architecture
    assert (architecture.load.allow_new, architecture.load.allow_unused) == ((), ())
    assert (architecture.preset, architecture.hidden_size) == (None, 16)
    assert str(architecture.from_pretrained).endswith("models/small")
