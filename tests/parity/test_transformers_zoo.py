"""``architecture.transformers``: what any family's own classes compute, from files that go both ways."""

import inspect
import json
import subprocess
import sys

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import models, pre_tokenizers, processors
from torch.nn import functional

from rtx_core import Batch, InputError, Outputs, Sample, SpecialTokens, weights
from rtx_core.cli import main
from rtx_core.model import make_model
from rtx_plugins.architectures.bert import Bert
from rtx_plugins.architectures.roberta import Roberta
from rtx_plugins.architectures.transformers import Transformers

ROWS = 61
LENGTHS = (2, 5, 9, 9, 17, 11)
SIZES = {
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 20,
}
FAMILIES = {
    "albert": {"embedding_size": 12},
    "bert": {},
    "camembert": {"max_position_embeddings": 22},
    "deberta-v2": {
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "position_buckets": 8,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
    },
    "electra": {"embedding_size": 12},
    "ernie": {},
    "mpnet": {"max_position_embeddings": 22},
    "nomic_bert": {},
    "roberta": {"max_position_embeddings": 22},
    "roformer": {},
    "squeezebert": {"embedding_size": 24},
    "xlm-roberta": {"max_position_embeddings": 22, "type_vocab_size": 1},
}
"""Small models of each family, with what makes them differ: narrow tables, shared layers, other positions."""
TASKS = {
    "masked_lm": "AutoModelForMaskedLM",
    "question_answering": "AutoModelForQuestionAnswering",
    "sequence_classification": "AutoModelForSequenceClassification",
    "token_classification": "AutoModelForTokenClassification",
}
WITHOUT = {("nomic_bert", "question_answering")}
"""What ``transformers`` has no class for."""
OTHER_NAMES_IN_FILES = ("nomic_bert",)
"""Families of which ``transformers`` takes the names of a file to be others than those of its modules."""
each_head_with_its_names = pytest.mark.parametrize(
    ("family", "task"), [(f, t) for f in FAMILIES if f not in OTHER_NAMES_IN_FILES for t in TASKS]
)
LABELS = ("cold", "mild", "warm")

each_family = pytest.mark.parametrize("family", FAMILIES)
each_head = pytest.mark.parametrize(
    ("family", "task"), [pair for pair in ((f, t) for f in FAMILIES for t in TASKS) if pair not in WITHOUT]
)


def of_family(family, **fields):
    """The settings; arrays are tuples, as those of a pipeline are."""
    config = {**SIZES, **FAMILIES[family], **fields}
    arrays = {name: tuple(value) for name, value in config.items() if isinstance(value, list)}
    return Transformers(model_type=family, vocab_size=ROWS, config=config | arrays)


def outputs_of(task):
    size = {"masked_lm": ROWS, "question_answering": 2}.get(task, len(LABELS))
    return Outputs(size=size, labels=LABELS if size == len(LABELS) else None)


def our_model(architecture, task, seed=0):
    head = architecture.native_head(task)
    return make_model(architecture, head, task=task, outputs=outputs_of(task).size, vocab_size=ROWS, seed=seed).eval()


def packed(task="token_classification"):
    """Ragged texts, with targets at the first token of each or at all."""
    draw = np.random.default_rng(5)
    made = [
        Sample(
            input_ids=draw.integers(5, ROWS, length).astype(np.int32),
            token_types=draw.integers(0, 2, length).astype(np.uint8),
            target_positions=np.arange(1 if task == "sequence_classification" else length, dtype=np.int32),
            targets=np.zeros(1 if task == "sequence_classification" else length, dtype=np.int64),
        )
        for length in LENGTHS
    ]
    return Batch.of(made, range(len(made)))


def padded(architecture, model, batch):
    """The same as transformers takes it."""
    ids, mask = batch.padded(architecture.pad_token_id or 0)
    inputs = {"input_ids": ids, "attention_mask": mask.long()}
    types = torch.zeros_like(ids)
    types[batch.sequence_ids, batch.positions] = batch.token_types
    has_types = (
        getattr(model.config, "type_vocab_size", 0) > 1
        and "token_type_ids" in inspect.signature(model.forward).parameters
    )
    return inputs | ({"token_type_ids": types} if has_types else {})


def logits_of(model, inputs, task, batch):
    """Logits at our targets."""
    answer = model(**inputs)
    if task == "question_answering":
        logits = torch.stack((answer.start_logits, answer.end_logits), dim=-1)
    else:
        logits = answer.logits
    return logits if task == "sequence_classification" else logits[batch.sequence_ids, batch.positions]


def kept(folder, architecture, model, task):
    """The folder of the kept model."""
    weights.write_model(folder, model.tensors(), architecture.hf_config(task, outputs_of(task)))
    return folder


# --- what is computed -------------------------------------------------------------------------------------------------


@each_head
def test_transformers_computes_the_same_from_what_we_write(tmp_path, randomised, family, task):
    """The family's class loads our folder without anything missing or left over, and gives our logits and gradients."""
    architecture = of_family(family)
    ours = randomised(our_model(architecture, task))
    auto = getattr(transformers, TASKS[task])
    theirs, info = auto.from_pretrained(kept(tmp_path, architecture, ours, task), output_loading_info=True)
    differences = {key: sorted(names) for key, names in info.items() if names}
    only_pooler = {name for names in differences.values() for name in names if "pooler" in name}
    assert set(differences) <= ({"missing_keys"} if only_pooler else set())
    if task == "sequence_classification":
        assert tuple(theirs.config.id2label.values()) == LABELS
    batch = packed(task)
    expected = logits_of(theirs.eval(), padded(architecture, theirs, batch), task, batch)
    logits = ours(batch)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
    classes = torch.arange(len(logits)) % logits.shape[1]
    functional.cross_entropy(logits, classes).backward()
    functional.cross_entropy(expected, classes).backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters(remove_duplicate=False)}
    largest = max(gradient.norm() for gradient in gradients.values() if gradient is not None)
    for name, parameter in ours.parameters_by_name().items():
        if not parameter.requires_grad:
            continue
        difference = (parameter.grad - gradients[name]).norm()
        assert difference <= 2e-5 * gradients[name].norm() + 1e-8 * largest, name


@each_family
def test_hidden_states_are_those_of_the_encoder_alone(tmp_path, randomised, family):
    """``AutoModel`` loads a kept model whose head is another, and gives the same hidden states at every token."""
    architecture = of_family(family)
    ours = randomised(our_model(architecture, "token_classification"))
    tensors = {name: tensor for name, tensor in ours.tensors().items() if not name.startswith("classifier.")}
    weights.write_model(tmp_path, tensors, architecture.hf_config(None, outputs_of("embedding")))
    theirs = transformers.AutoModel.from_pretrained(tmp_path).eval()
    batch = packed()
    with torch.no_grad():
        expected = theirs(**padded(architecture, theirs, batch)).last_hidden_state[batch.sequence_ids, batch.positions]
        torch.testing.assert_close(ours.backbone(batch), expected, rtol=0, atol=1e-5)


@each_family
def test_hidden_states_do_not_depend_on_the_padding(randomised, family):
    """A text alone, and padded beside longer ones, has the same hidden states."""
    backbone = randomised(our_model(of_family(family), "token_classification")).double().backbone
    batch = packed()
    together = backbone(batch).split(LENGTHS)
    draw = packed().input_ids.split(LENGTHS)
    types = packed().token_types.split(LENGTHS)
    for one, ids, kinds in zip(together, draw, types, strict=True):
        nothing = np.zeros(0, dtype=np.int64)
        alone = Sample(
            input_ids=ids.numpy().astype(np.int32),
            token_types=kinds.numpy().astype(np.uint8),
            target_positions=nothing.astype(np.int32),
            targets=nothing,
        )
        torch.testing.assert_close(backbone(Batch.of([alone], [0])), one, rtol=0, atol=1e-10)


@pytest.mark.parametrize("native", [Bert, Roberta])
@pytest.mark.parametrize("task", ["masked_lm", "sequence_classification", "token_classification", "question_answering"])
def test_the_fast_path_computes_the_same(tmp_path, load, randomised, native, task):
    """A kept model is read by the family's own architecture here: every tensor is taken, and logits agree."""
    architecture = of_family(native.model_type)
    ours = randomised(our_model(architecture, task))
    folder = kept(tmp_path, architecture, ours, task)
    fast = native(**native.from_hf(weights.read_config(folder)))
    theirs = our_model(fast, task, seed=1)
    report = load(theirs, folder)
    assert (report.new, report.unused) == ((), ())
    batch = packed(task)
    torch.testing.assert_close(ours(batch), theirs(batch), rtol=0, atol=1e-5)


def test_training_is_random_and_evaluation_is_not():
    """Dropout is on in training mode alone, in the encoder and in the head."""
    model = our_model(of_family("electra"), "sequence_classification")
    batch = packed("sequence_classification")
    assert torch.equal(model(batch), model(batch))
    assert not torch.equal(model.train()(batch), model(batch))


# --- files ------------------------------------------------------------------------------------------------------------


@each_head_with_its_names
def test_we_load_what_transformers_writes(tmp_path, load, family, task):
    """Every tensor of the class's file arrives bit by bit; only a pooler that no class for tokens uses is left over."""
    config = transformers.CONFIG_MAPPING[family](vocab_size=ROWS, **{**SIZES, **FAMILIES[family]})
    config.num_labels = outputs_of(task).size
    theirs = getattr(transformers, TASKS[task]).from_config(config)
    theirs.save_pretrained(tmp_path)
    found = Transformers.from_folder(tmp_path, weights.read_config(tmp_path))
    found["special_tokens"] = SpecialTokens(**found["special_tokens"])
    architecture = Transformers(**found)
    model = our_model(architecture, task, seed=1)
    report = load(model, tmp_path)
    assert report.new == ()
    assert all("pooler" in name for name in report.unused)
    expected = dict(theirs.named_parameters(remove_duplicate=False))
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.tensors().items())


@each_family
def test_every_key_of_a_config_comes_back(tmp_path, family):
    """What the kept ``config.json`` says of the encoder is what the checkpoint's did."""
    config = transformers.CONFIG_MAPPING[family](vocab_size=ROWS, **{**SIZES, **FAMILIES[family]})
    config.save_pretrained(tmp_path)
    given = weights.read_config(tmp_path)
    architecture = Transformers(**Transformers.from_hf(given))
    written = architecture.hf_config(None, outputs_of("embedding"))
    head = {"architectures", "dtype", "transformers_version"}
    assert {k: v for k, v in written.items() if k not in head} == {k: v for k, v in given.items() if k not in head}


@each_family
def test_the_seed_alone_says_how_it_starts(family):
    """The same seed gives the same bits, another one others; the meta device has the same names and shapes."""
    first, second, other = (our_model(of_family(family), "masked_lm", seed).tensors() for seed in (0, 0, 1))
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())
    assert not all(torch.equal(tensor, other[name]) for name, tensor in first.items())
    with torch.device("meta"):
        planned = our_model(of_family(family), "masked_lm").tensors()
    assert {name: tensor.shape for name, tensor in planned.items()} == {n: t.shape for n, t in first.items()}
    assert all(tensor.isfinite().all() for tensor in first.values())


@each_family
def test_a_head_starts_as_transformers_starts_it(family):
    """Over 10 seeds each of its tensors has the spread of transformers' own, within five standard errors."""
    architecture = of_family(family)
    head = dict(our_model(architecture, "masked_lm").head.model.named_parameters())
    ours = [dict(our_model(architecture, "masked_lm", seed).head.model.named_parameters()) for seed in range(10)]
    config = transformers.CONFIG_MAPPING[family](vocab_size=ROWS, **{**SIZES, **FAMILIES[family]})
    theirs = [dict(transformers.AutoModelForMaskedLM.from_config(config).named_parameters()) for _ in range(10)]
    for name in head.keys() & theirs[0].keys():
        mine, expected = (torch.stack([one[name].detach() for one in side]) for side in (ours, theirs))
        bound = 5 * expected.std() * (2 / expected.numel()) ** 0.5
        assert abs(mine.std() - expected.std()) <= bound, name
        assert abs(mine.mean() - expected.mean()) <= bound, name


# --- names ------------------------------------------------------------------------------------------------------------


@each_family
def test_each_parameter_of_the_encoder_lies_in_one_layer(family):
    """The token table in the first, the last layer behind the others, and no parameter of a head in any."""
    architecture = of_family(family)
    layers = architecture.layer_names()
    model = our_model(architecture, "token_classification")
    table = model.public_name("backbone.model.") + next(
        name for name, p in model.backbone.model.named_parameters() if p is model.backbone.input_embeddings
    )
    places = {
        name: [number for number, layer in enumerate(layers) if name.startswith(layer)]
        for name in model.parameters_by_name()
    }
    assert places[table] == [0]
    heads = {name for name in places if name.startswith("classifier.")}
    assert {name for name, found in places.items() if len(found) != 1} == heads
    numbers = [layer for layer in layers if layer.removesuffix(".").rpartition(".")[2].isdecimal()]
    assert len(numbers) == (1 if family == "albert" else 3)


@pytest.mark.parametrize(
    ("family", "fields", "usable"),
    [
        ("roberta", {"max_position_embeddings": 514}, 512),
        ("xlm-roberta", {"max_position_embeddings": 514}, 512),
        ("mpnet", {"max_position_embeddings": 514}, 512),
        ("longformer", {"max_position_embeddings": 4098}, 4096),
        ("electra", {"max_position_embeddings": 512}, 512),
        ("deberta-v2", {"max_position_embeddings": 512, "position_biased_input": False}, None),
        ("electra", {}, None),
    ],
)
def test_usable_positions(family, fields, usable):
    """Of families like RoBERTa rows − pad − 1; none where positions are relative alone, or where nothing says it."""
    assert Transformers(model_type=family, config=fields | {"hidden_size": 24}).usable_positions == usable


def test_a_text_beyond_the_familys_default_positions_is_refused():
    """What only transformers knows is said by the model itself, with the setting to write."""
    config = {name: size for name, size in SIZES.items() if name != "max_position_embeddings"}
    architecture = Transformers(model_type="roberta", vocab_size=ROWS, config=config)
    long = Sample(
        input_ids=np.full(511, 7, dtype=np.int32),
        token_types=np.zeros(511, dtype=np.uint8),
        target_positions=np.zeros(1, dtype=np.int32),
        targets=np.zeros(1, dtype=np.int64),
    )
    model = our_model(architecture, "sequence_classification")
    with pytest.raises(InputError, match=r"511 tokens, but roberta only 510 positions; write task.max_length = 510"):
        model(Batch.of([long], [0]))


def test_what_a_family_refuses_of_a_batch_names_the_settings():
    """A setting that fits some lengths alone is no bug of ours: transformers' reason, in a line."""
    model = our_model(of_family("electra", chunk_size_feed_forward=4), "token_classification")
    with pytest.raises(InputError, match=r"electra refuses a batch: .* multiple of the chunk size 4"):
        model(packed())


REFUSED = {
    "a decoder": ({"model_type": "gpt2", "config": {"n_embd": 24}}, '"gpt2" is a decoder'),
    "a BERT that is one": ({"model_type": "bert", "config": {"is_decoder": True}}, '"bert" is a decoder'),
    "both": ({"model_type": "t5", "config": {"d_model": 24}}, '"t5" is an encoder with a decoder'),
    "images": ({"model_type": "vit", "config": {"hidden_size": 24}}, '"vit" reads no text (pixel_values)'),
    "sound": ({"model_type": "wav2vec2", "config": {"hidden_size": 24}}, '"wav2vec2" reads no text (input_values)'),
    "characters": ({"model_type": "canine"}, '"canine" reads characters, and has no token table'),
    "places on a page": ({"model_type": "layoutlm"}, '"layoutlm" reads more than the tokens of a text'),
    "no mask": ({"model_type": "fnet", "config": {"hidden_size": 24}}, '"fnet" takes padding for text'),
    "a misspelt family": ({"model_type": "elektra"}, 'knows no "elektra"; did you mean "electra"?'),
    "a misspelt field": (
        {"config": {"hidden_size": 24, "num_hidden_layer": 2}},
        'num_hidden_layer: ElectraConfig has no such field; did you mean "num_hidden_layers"?',
    ),
    "a wrong value": ({"config": {"hidden_size": 24, "num_hidden_layers": "two"}}, "ElectraConfig refuses it: "),
    "sizes that don't fit": ({"model_type": "bert", "config": {"hidden_size": 26}}, "BertModel refuses it: "),
    "an activation that isn't there": ({"config": {"hidden_size": 24, "hidden_act": "gleu"}}, "it knows no 'gleu'"),
    "a negative size": ({"config": {"hidden_size": 24, "intermediate_size": -1}}, "ElectraModel refuses it: "),
    "heads that can't share": (
        {"config": {"hidden_size": 24, "num_attention_heads": 5}},
        "5 attention heads can't share a width of 24 equally",
    ),
    "a padding token that isn't there": ({"vocab_size": 7, "pad_token_id": 7}, "ElectraModel refuses it: Padding_idx"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_encoder_is_refused_in_one_line(case):
    """With the reason, and what was probably meant."""
    fields, expected = REFUSED[case]
    architecture = Transformers(**({"model_type": "electra", "config": {"hidden_size": 24}} | fields))
    with torch.device("meta"), pytest.raises(InputError) as error:
        architecture.build(7)
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("family", "task"),
    [
        ("splinter", "question_answering"),
        ("longformer", "regression"),
        ("esm", "question_answering"),
        ("funnel", "regression"),
        ("deberta-v2", "masked_lm"),
    ],
)
def test_a_class_that_reads_more_is_refused(family, task):
    """It would compute something else than here, or there is none: the message names another head."""
    fields = {
        "longformer": SIZES | {"attention_window": 4},
        "funnel": {"d_model": 24},
        "deberta-v2": SIZES | {"legacy": False},
    }.get(family, SIZES)
    architecture = Transformers(model_type=family, vocab_size=ROWS, pad_token_id=0, config=fields)
    with pytest.raises(InputError, match=r'\[head\] type = "linear"'):
        architecture.native_head(task).build(24, 2)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({}, "config"),
        ({"config": {"hidden_size": 24, "vocab_size": 7}}, "config.vocab_size"),
        ({"config": {"hidden_size": 24, "num_labels": 7}}, "config.num_labels"),
        ({"config": {"hidden_size": 24, "add_cross_attention": True}}, "config.add_cross_attention"),
        ({"config": {"hidden_size": 24.0}}, "config"),
        ({"config": {"hidden_size": 24}, "vocab_size": 3, "pad_token_id": 3}, "pad_token_id"),
        ({"model_type": "mpnet", "config": {"hidden_size": 24}, "pad_token_id": 0}, "pad_token_id"),
        ({"model_type": "roberta", "config": {"hidden_size": 24, "max_position_embeddings": 2}}, "config"),
    ],
)
def test_check_knows_what_needs_no_library(fields, wrong):
    """What can be told from the file alone is reported under the key that is wrong."""
    architecture = Transformers(**({"model_type": "electra"} | fields))
    assert [field for field, _ in architecture.check()] == [wrong]


CODE = {"model_type": "nomic_bert", "auto_map": {"AutoModel": "modeling_x.XModel"}}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (CODE, "code of its own (auto_map: modeling_x.XModel), which is never run"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "is_encoder_decoder true"),
        ({"model_type": "bert", "is_decoder": True}, "is_decoder true"),
        ({"model_type": "bert", "own": {"sizes": [1, None]}}, "null in an array of own"),
    ],
)
def test_a_config_of_something_else_is_refused(config, expected):
    """Before transformers is loaded: code out of the folder, and decoders."""
    with pytest.raises(ValueError, match="config.json") as error:
        Transformers.from_hf(config)
    assert expected in str(error.value)


# --- a run ------------------------------------------------------------------------------------------------------------

WORDS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>", "ant", "bee", "cow", "dog", "red", "blue", "thing")
JOB = """
[run]
device = "cpu"
[task]
type = "sequence_classification"
text = ["text", "other"]
max_length = 16
[data]
type = "jsonl"
[data.train]
files = ["train.jsonl"]
[architecture]
type = "transformers"
from_pretrained = "weights"
[optimizer]
lr = 1e-2
layer_lr_decay = 0.9
[training]
duration = "3 steps"
batch_size = 8
threads = 1
"""


def write_weights(folder, family="xlm-roberta", **fields):
    """A masked language model of the family with a tokenizer like RoBERTa's, as transformers saves them."""
    names = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
    tokens = {f"{role}_token": token for role, token in names.items()}
    numbers = {word: number for number, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(numbers, unk_token=names["unk"]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(WORDS[:5]))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens).save_pretrained(folder)
    sizes = SIZES | {"max_position_embeddings": 22, "type_vocab_size": 1, "pad_token_id": 1, "initializer_range": 0.2}
    config = transformers.CONFIG_MAPPING[family](vocab_size=len(WORDS), **sizes, **fields)
    torch.manual_seed(0)
    transformers.AutoModelForMaskedLM.from_config(config).save_pretrained(folder)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory with weights, data and a pipeline."""
    monkeypatch.chdir(tmp_path)
    write_weights(tmp_path / "weights")
    rows = [
        {"text": f"{animal} {colour}", "other": "thing " * (i % 4) + animal, "label": label}
        for animal in WORDS[5:9]
        for colour, label in (("red", "warm"), ("blue", "cold"))
        for i in range(5)
    ]
    (tmp_path / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path


@pytest.fixture
def line(capfd):
    """What a command that is refused says: its one line on stderr."""

    def call(*arguments):
        capfd.readouterr()
        assert main(list(arguments)) == 2
        return capfd.readouterr().err.removesuffix("\n")

    return call


def test_a_run_from_a_checkpoint_of_another_family(place, capfd):
    """Three steps, a folder that transformers opens with head and labels, the same answers there and by predict."""
    assert main(["run", "job.toml", "--quiet"]) == 0
    model = place / "runs" / "job" / "model"
    theirs, info = transformers.AutoModelForSequenceClassification.from_pretrained(model, output_loading_info=True)
    assert {name: found for name, found in info.items() if found} == {}
    assert theirs.config.id2label == {0: "cold", 1: "warm"}
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    inputs = tokenizer("ant red", "thing ant", return_tensors="pt")
    assert tokenizer.convert_ids_to_tokens(inputs["input_ids"][0]) == [
        *("<s>", "ant", "red", "</s>", "</s>", "thing", "ant", "</s>")
    ]
    expected = theirs.eval()(**inputs).logits.softmax(-1)[0].tolist()
    (place / "new.jsonl").write_text('{"text": "ant red", "other": "thing ant"}\n')
    capfd.readouterr()
    assert main(["predict", "runs/job", "new.jsonl", "--scores"]) == 0
    answer = json.loads(capfd.readouterr().out)
    scores = next(value for value in answer.values() if isinstance(value, dict))
    assert [scores["cold"], scores["warm"]] == pytest.approx(expected, abs=1e-5)


def test_a_kept_model_is_the_next_ones_start(place):
    """``run:`` finds family, sizes and special tokens again, and every tensor of encoder and head."""
    assert main(["run", "job.toml", "--quiet"]) == 0
    sets = ["--set", "architecture.from_pretrained=run:job", "--set", "training.duration=1 step"]
    assert main(["run", "job.toml", "--quiet", "--output", "second", *sets]) == 0
    log = (place / "second" / "log.txt").read_text(encoding="utf-8")
    assert "model    transformers (xlm-roberta), " in log
    stored = len(load_file(place / "runs" / "job" / "model" / "model.safetensors"))
    assert f"weights  {stored} tensors from run:job, 0 new, 0 unused" in log


@pytest.mark.parametrize("task", ["sequence_classification", "masked_lm"])
def test_a_resumed_run_has_the_same_bits(place, task):
    """Three steps at once, and two and one more: the same weights."""
    if task == "masked_lm":
        text = JOB.replace('"sequence_classification"', '"masked_lm"').replace('["text", "other"]', '"text"')
        (place / "job.toml").write_text(text)
    assert main(["run", "job.toml", "--quiet", "--output", "whole"]) == 0
    assert main(["run", "job.toml", "--quiet", "--output", "parts", "--steps", "2"]) == 0
    assert main(["run", "job.toml", "--quiet", "--output", "parts", "--resume"]) == 0
    whole, parts = (load_file(place / name / "model" / "model.safetensors") for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(torch.equal(tensor, parts[name]) for name, tensor in whole.items())


def test_a_run_from_scratch(place):
    """With a family's name and sizes alone: a vocabulary of the run, and what transformers' defaults say else."""
    architecture = """
[tokenizer]
type = "wordpiece"
vocab_size = 60
[architecture]
type = "transformers"
model_type = "electra"
[architecture.config]
embedding_size = 12
hidden_size = 24
num_hidden_layers = 2
num_attention_heads = 4
intermediate_size = 40
max_position_embeddings = 20
"""
    text = JOB.replace('[architecture]\ntype = "transformers"\nfrom_pretrained = "weights"\n', architecture)
    (place / "job.toml").write_text(text)
    assert main(["run", "job.toml", "--quiet"]) == 0
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(place / "runs" / "job" / "model")
    assert type(theirs) is transformers.ElectraForSequenceClassification
    assert theirs.config.embedding_size == 12


def test_plan_counts_on_the_meta_device(place, capfd):
    """As many parameters as transformers' class has."""
    capfd.readouterr()
    assert main(["plan", "job.toml", "--json"]) == 0
    model = json.loads(capfd.readouterr().out)["model"]
    config = transformers.AutoConfig.from_pretrained(place / "weights", num_labels=2)
    theirs = transformers.AutoModelForSequenceClassification.from_config(config)
    assert model["encoder"] == sum(parameter.numel() for parameter in theirs.base_model.parameters())
    assert model["total"] == sum(parameter.numel() for parameter in theirs.parameters())


def test_check_loads_neither_torch_nor_transformers(place):
    """A file with this architecture is checked without either, and from scratch too."""
    script = (
        "import sys\n"
        "from rtx_core.cli import main\n"
        "status = main(['check', 'job.toml'])\n"
        "print(status, [name for name in ('torch', 'transformers') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=place)
    assert done.stdout.splitlines()[-1] == "0 []"


def test_a_family_without_its_own_architecture_names_this_one(place, line):
    """Without ``type`` nothing slow is chosen in silence: the line says what to write."""
    (place / "job.toml").write_text(JOB.replace('type = "transformers"\n', ""))
    assert line("check", "job.toml").splitlines()[0] == (
        'job.toml:13:19: architecture.from_pretrained: config.json has model_type "xlm-roberta", and no such '
        'architecture is installed; type = "transformers" builds any encoder, more slowly'
    )


def test_without_the_library_the_extra_is_named(place, line, monkeypatch):
    """One line, at ``check``."""
    find = sys.modules["importlib.util"].find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "transformers" else find(name))
    assert 'is not installed: pip install "rtx-transformers[transformers]"' in line("check", "job.toml")


def test_code_in_the_folder_is_never_run(place, line):
    """A config.json that names some is refused at ``check``, and no key of the file can allow it."""
    file = place / "weights" / "config.json"
    (place / "weights" / "modeling_x.py").write_text("raise SystemExit('this was run')\n")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"auto_map": {"AutoModel": "modeling_x.XModel"}}))
    assert "code of its own (auto_map: modeling_x.XModel), which is never run" in line("check", "job.toml")
    assert "unknown key" in line("check", "job.toml", "--set", "architecture.trust_remote_code=true")


def test_the_special_tokens_are_the_checkpoints(place, line):
    """Names, separators and token types come from its tokenizer; a file may change one of them."""
    found = Transformers.from_folder(place / "weights", {"model_type": "electra", "hidden_size": 24})
    assert SpecialTokens(**found["special_tokens"]) == SpecialTokens(
        pad="<pad>", unk="<unk>", cls="<s>", sep="</s>", mask="<mask>", pair_separators=2, pair_token_type=0
    )
    assert main(["check", "job.toml", "--set", "architecture.special_tokens.mask=<unk>"]) == 0
    assert "did you mean" in line("check", "job.toml", "--set", "architecture.special_tokens.maks=<unk>")


def test_old_files_of_a_tokenizer_say_it_too(tmp_path):
    """Tokens as objects with their content, from before there was a tokenizer.json; else what the family uses."""
    assert Transformers.from_folder(tmp_path, {"model_type": "albert"})["special_tokens"]["pad"] == "<pad>"
    (tmp_path / "special_tokens_map.json").write_text('{"cls_token": {"content": "[A]"}, "eos_token": "[B]"}')
    tokens = Transformers.from_folder(tmp_path, {"model_type": "electra"})["special_tokens"]
    assert (tokens["cls"], tokens["sep"], tokens["mask"], tokens["pair_separators"]) == ("[A]", "[B]", "[MASK]", 1)
    (tmp_path / "special_tokens_map.json").write_text("[]")
    with pytest.raises(ValueError, match="holds no JSON object"):
        Transformers.from_folder(tmp_path, {"model_type": "electra"})


def test_rules_for_loading_hold_for_any_family(place):
    """Fewer layers, a larger vocabulary and a longer position table than the checkpoint's, and its head left unused."""
    sets = [
        "architecture.config.num_hidden_layers=2",
        "architecture.load.first_layers=true",
        "architecture.vocab_size=14",
        "architecture.load.resize=true",
        "architecture.config.max_position_embeddings=30",
        'architecture.load.positions="repeat"',
        "task.max_length=28",
    ]
    assert main(["run", "job.toml", "--quiet", *(word for text in sets for word in ("--set", text))]) == 0
    log = (place / "runs" / "job" / "log.txt").read_text(encoding="utf-8")
    assert "2 resized (roberta.embeddings.word_embeddings.weight, roberta.embeddings.position_embeddings.weight)" in log
    config = json.loads((place / "runs" / "job" / "model" / "config.json").read_text())
    assert [config[name] for name in ("num_hidden_layers", "vocab_size", "max_position_embeddings")] == [2, 14, 30]


@pytest.mark.parametrize("tied", [True, False])
def test_a_decoder_is_the_token_table_if_the_config_says_so(place, tied):
    """A trained language model has one tensor for both, or two that differ, as transformers reads them."""
    write_weights(place / "weights", tie_word_embeddings=tied)
    text = JOB.replace('"sequence_classification"', '"masked_lm"').replace('["text", "other"]', '"text"')
    (place / "job.toml").write_text(text)
    assert main(["run", "job.toml", "--quiet"]) == 0
    assert "0 new, 0 unused" in (place / "runs" / "job" / "log.txt").read_text(encoding="utf-8")
    theirs, info = transformers.AutoModelForMaskedLM.from_pretrained(
        place / "runs" / "job" / "model", output_loading_info=True
    )
    assert {name: found for name, found in info.items() if found} == {}
    table, decoder = theirs.get_input_embeddings().weight, theirs.get_output_embeddings().weight
    assert torch.equal(table, decoder) == tied
    assert theirs.config.tie_word_embeddings == tied


def test_vectors_of_texts(place):
    """A task without a class in transformers takes its own head; AutoModel opens what is kept."""
    rows = [{"anchor": f"{one} red", "positive": f"{one} thing"} for one in WORDS[5:9]]
    (place / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (place / "job.toml").write_text(JOB.replace('"sequence_classification"\ntext = ["text", "other"]', '"embedding"'))
    assert main(["run", "job.toml", "--quiet"]) == 0
    theirs, info = transformers.AutoModel.from_pretrained(
        place / "runs" / "job" / "model", output_loading_info=True, add_pooling_layer=False
    )
    assert type(theirs) is transformers.XLMRobertaModel
    assert {name: found for name, found in info.items() if found} == {}


@pytest.mark.nightly
def test_a_run_can_be_proved_to_resume(place):
    """``verify-resume``, with dropout of transformers' own modules."""
    assert main(["verify-resume", "job.toml", "--steps", "1", "--more", "2"]) == 0
