"""Weights go to transformers and come from it without a changed bit, whatever their names went through."""

import json
import logging
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from rtx_core import InputError, LoadRules, Outputs, weights
from rtx_plugins.architectures.bert import Bert

LABELS = ("animal", "food", "person", "plant", "thing")
TASKS = {
    "sequence_classification": (transformers.AutoModelForSequenceClassification, "first"),
    "token_classification": (transformers.AutoModelForTokenClassification, "all"),
    "masked_lm": (transformers.AutoModelForMaskedLM, "some"),
}
HEADS = {
    "sequence_classification": {"bert.pooler.dense.weight", "bert.pooler.dense.bias"},
    "token_classification": set(),
    "masked_lm": {
        "cls.predictions.bias",
        *(f"cls.predictions.transform.{name}" for name in ("dense.weight", "dense.bias")),
        *(f"cls.predictions.transform.LayerNorm.{name}" for name in ("weight", "bias")),
    },
}
TABLES = {
    "vocab_size": "vocabulary",
    "max_position_embeddings": "position table",
    "type_vocab_size": "table of token types",
}
CLASSIFIER = {"classifier.weight", "classifier.bias"}


def outputs_of(architecture, task):
    return Outputs(size=architecture.vocab_size) if task == "masked_lm" else Outputs(size=5, labels=LABELS)


def padded(batch):
    """The batch as transformers takes it, and where its real tokens are."""
    input_ids, mask = batch.padded()
    token_types = torch.zeros_like(input_ids)
    token_types[mask] = batch.token_types
    return {"input_ids": input_ids, "attention_mask": mask.long(), "token_type_ids": token_types}, mask


def rename(folder, change):
    """Change the tensors of a file by name; None drops one."""
    file = folder / weights.WEIGHTS
    save_file({change(name): tensor for name, tensor in load_file(file).items() if change(name)}, file)


def differing(model, theirs):
    """The names under which our tensors and transformers' are not the same bits, or not in both."""
    ours, named = model.tensors(), dict(theirs.named_parameters())
    return {name for name in ours.keys() | named.keys() if not _same(ours.get(name), named.get(name))}


def _same(one, other):
    return one is not None and other is not None and one.dtype == other.dtype and torch.equal(one, other)


@pytest.fixture
def their_folder(bert, randomised, tmp_path):
    """A function that saves a random model of transformers' for a task, and gives its folder."""

    def make(task, cls=None, **fields):
        architecture = bert(**fields)
        config = transformers.BertConfig.from_dict(architecture.hf_config(task, outputs_of(architecture, task)))
        theirs = randomised((cls or TASKS[task][0]._model_mapping[type(config)])(config))
        theirs.save_pretrained(tmp_path / "theirs")
        return tmp_path / "theirs", theirs.eval()

    return make


@pytest.fixture
def our_folder(bert, build, randomised, tmp_path):
    """A function that writes a random model of ours for a task, and gives its folder and the model."""

    def make(task, **fields):
        architecture = bert(**fields)
        model = randomised(build(task, **fields))
        folder = tmp_path / "ours"
        folder.mkdir()
        weights.write_model(folder, model.tensors(), architecture.hf_config(task, outputs_of(architecture, task)))
        return folder, model

    return make


@pytest.fixture
def _transformers_is_silent(caplog):
    """Fails where transformers logs a warning."""
    transformers.utils.logging.enable_propagation()
    with caplog.at_level(logging.WARNING, logger="transformers"):
        yield
    transformers.utils.logging.disable_propagation()
    assert [record.getMessage() for record in caplog.records] == []


# --- to transformers --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_transformers_is_silent")
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("task", TASKS)
def test_transformers_loads_what_we_write(our_folder, batch, task, tied):
    """Every tensor arrives bit by bit under its name, nothing is missing or left over, no warning, equal logits."""
    auto, where = TASKS[task]
    folder, model = our_folder(task, tie_word_embeddings=tied)

    theirs, info = auto.from_pretrained(folder, output_loading_info=True)

    assert {name: list(found) for name, found in info.items() if found} == {}
    assert differing(model, theirs) == set()
    assert list(theirs.config.architectures) == [type(theirs).__name__]
    ragged = batch(where)
    inputs, mask = padded(ragged)
    with torch.no_grad():
        expected = theirs(**inputs).logits
    if where != "first":
        expected = expected[mask][ragged.target_positions]
    torch.testing.assert_close(model(ragged), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("task", ["sequence_classification", "token_classification"])
def test_transformers_knows_the_labels(bert, task):
    """The config gives each class its name, in our order, and the number of classes follows."""
    config = transformers.BertConfig.from_dict(bert().hf_config(task, Outputs(size=5, labels=LABELS)))
    assert config.id2label == dict(enumerate(LABELS))
    assert config.label2id == {label: index for index, label in enumerate(LABELS)}
    assert config.num_labels == 5


@pytest.mark.parametrize(
    ("task", "problem_type", "targets"),
    [
        ("sequence_classification", "single_label_classification", torch.tensor([1, 2])),
        ("multi_label_classification", "multi_label_classification", torch.ones(2, 5)),
        ("regression", "regression", torch.ones(2, 5)),
    ],
)
def test_transformers_takes_the_tasks_loss(bert, task, problem_type, targets):
    """``problem_type`` is the task's, whatever transformers would guess from the labels; the loss is computed by it."""
    config = transformers.BertConfig.from_dict(bert().hf_config(task, Outputs(size=5)))
    assert config.problem_type == problem_type
    theirs = transformers.BertForSequenceClassification(config)
    assert torch.isfinite(theirs(torch.ones(2, 3, dtype=torch.long), labels=targets).loss)


def test_every_field_arrives_in_transformers_config(bert):
    """Each of our fields stands in BertConfig under the same name with the same value, and comes back from there."""
    fields = {
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.2,
        "attention_probs_dropout_prob": 0.3,
        "classifier_dropout": 0.4,
        "type_vocab_size": 3,
        "initializer_range": 0.05,
        "layer_norm_eps": 1e-6,
        "pad_token_id": 4,
        "tie_word_embeddings": False,
    }
    architecture = bert(**fields)
    config = transformers.BertConfig.from_dict(architecture.hf_config("masked_lm", Outputs(size=61)))
    for name, value in fields.items():
        assert getattr(config, name) == value, name
    assert config.dtype == torch.float32
    assert Bert(**Bert.from_hf(json.loads(config.to_json_string()))) == architecture


def test_defaults_are_transformers():
    """A BERT without a field is BertConfig() with the tokenizer's vocabulary."""
    config = transformers.BertConfig().to_dict()
    assert Bert(**Bert.from_hf(config)) == Bert(vocab_size=30522)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "roberta"),
        ("add_cross_attention", True),
        ("position_embedding_type", "relative_key"),
    ],
)
def test_another_model_is_not_taken_for_bert(key, value):
    """A config.json of something that this architecture can't compute is refused, with the key and its value."""
    with pytest.raises(ValueError, match=f"{key} {json.dumps(value)}; bert takes"):
        Bert.from_hf(transformers.BertConfig().to_dict() | {key: value})


# --- from transformers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("task", TASKS)
def test_we_load_what_transformers_writes(build, load, their_folder, task, tied):
    """Every tensor arrives bit by bit, nothing is new or unused."""
    folder, theirs = their_folder(task, tie_word_embeddings=tied)
    model = build(task, **Bert.from_hf(weights.read_config(folder)))
    report = load(model, folder)
    assert (report.new, report.unused) == ((), ())
    assert set(report.loaded) == model.parameters_by_name().keys()
    assert differing(model, theirs) == set()


def test_we_load_transformers_shards(build, load, their_folder):
    """A checkpoint in several files with an index is the same checkpoint."""
    folder, theirs = their_folder("sequence_classification")
    shutil.rmtree(folder)
    theirs.save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    model = build("sequence_classification")
    assert load(model, folder).new == ()
    assert differing(model, theirs) == set()


@pytest.mark.parametrize("task", TASKS)
def test_the_encoder_alone_leaves_the_head_new(build, load, their_folder, task):
    """BertModel's file has no prefix, no head, and a pooler that only one of our heads takes."""
    folder, theirs = their_folder("embedding", cls=transformers.BertModel)
    model = build(task)
    report = load(model, folder)
    classifier = set() if task == "masked_lm" else CLASSIFIER
    head = HEADS[task] | classifier
    pooler = {"bert.pooler.dense.weight", "bert.pooler.dense.bias"}
    assert set(report.new) == head - pooler
    assert set(report.unused) == (set() if head & pooler else {name.removeprefix("bert.") for name in pooler})
    named = dict(theirs.named_parameters())
    for name in report.loaded:
        assert torch.equal(model.tensors()[name], named[name.removeprefix("bert.")]), name


def test_a_pretraining_checkpoint_serves_every_task(build, load, their_folder):
    """BertForPreTraining's other heads are unused where ours is another, and its own are found."""
    folder, theirs = their_folder("masked_lm", cls=transformers.BertForPreTraining)
    model = build("masked_lm")
    report = load(model, folder)
    assert report.new == ()
    assert set(report.unused) == {
        "bert.pooler.dense.bias", "bert.pooler.dense.weight", "cls.seq_relationship.bias", "cls.seq_relationship.weight"
    }  # fmt: skip
    assert torch.equal(model.head.dense.weight, theirs.cls.predictions.transform.dense.weight)
    classifier = build("sequence_classification")
    assert set(load(classifier, folder).new) == CLASSIFIER
    assert torch.equal(classifier.head.pooler.dense.weight, theirs.bert.pooler.dense.weight)


# --- names ------------------------------------------------------------------------------------------------------------


def old_norms(name):
    """LayerNorm's parameters as in the first releases of BERT."""
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


@pytest.mark.parametrize(
    "change",
    [
        lambda name: name,
        lambda name: name.removeprefix("bert."),
        lambda name: f"module.{name}",
        lambda name: f"module.{name.removeprefix('bert.')}",
        old_norms,
        lambda name: old_norms(name.removeprefix("bert.")),
    ],
    ids=["bert.", "no prefix", "module.bert.", "module.", "gamma and beta", "gamma and beta without prefix"],
)
def test_names_of_the_encoder_may_vary(build, load, their_folder, batch, change):
    """Case 21: however the file spells the encoder, the hidden states are equal and only the head is new."""
    folder, theirs = their_folder("sequence_classification")
    rename(folder, lambda name: None if name in CLASSIFIER else change(name))
    model = build("sequence_classification")
    report = load(model, folder)
    assert set(report.new) == CLASSIFIER
    assert report.unused == ()
    named = dict(theirs.named_parameters())
    assert all(torch.equal(model.tensors()[name], named[name]) for name in report.loaded)
    with torch.no_grad():
        ragged = batch()
        inputs, mask = padded(ragged)
        expected = theirs.bert(**inputs).last_hidden_state[mask]
        torch.testing.assert_close(model.backbone(ragged), expected, rtol=0, atol=1e-5)


def test_renamed_keys_are_refused(build, load, their_folder):
    """Case 21: a file with none of our names is an error that names them, and the model is as it was."""
    folder, _ = their_folder("sequence_classification")
    rename(folder, lambda name: f"other.{name}")
    model = build("sequence_classification")
    before = {name: tensor.clone() for name, tensor in model.tensors().items()}
    with pytest.raises(InputError, match=r"53 of the model's.*bert\.embeddings\.word_embeddings\.weight.* and 50 more"):
        load(model, folder)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.tensors().items())


def test_position_ids_are_passed_over(build, load, their_folder):
    """A buffer of old files is neither loaded nor reported."""
    folder, _ = their_folder("sequence_classification")
    file = folder / weights.WEIGHTS
    save_file(load_file(file) | {"bert.embeddings.position_ids": torch.arange(17)[None]}, file)
    assert load(build("sequence_classification"), folder).unused == ()


def test_a_shallower_model_is_refused_unless_allowed(build, load, their_folder):
    """Layers of the file that the model lacks are an error that names them; a rule lets them go."""
    folder, _ = their_folder("sequence_classification")
    model = build("sequence_classification", num_hidden_layers=2)
    with pytest.raises(InputError, match=r"16 of the file's.*bert\.encoder\.layer\.2\..*allow_unused"):
        load(model, folder)
    report = load(model, folder, LoadRules(allow_unused=("bert.encoder.layer.2.*",)))
    assert len(report.unused) == 16


def test_a_deeper_model_is_refused_unless_allowed(build, load, their_folder):
    """Layers of the model that the file lacks are an error that names them; a rule starts them anew."""
    folder, _ = their_folder("sequence_classification")
    model = build("sequence_classification", num_hidden_layers=4)
    with pytest.raises(InputError, match=r"16 of the model's.*bert\.encoder\.layer\.3\..*allow_new"):
        load(model, folder)
    report = load(model, folder, LoadRules(allow_new=("bert.encoder.layer.3.*",)))
    assert len(report.new) == 16


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", TABLES)
@pytest.mark.parametrize("more", [1, -1])
def test_tables_of_other_sizes_are_refused(build, load, their_folder, field, more):
    """The message says which table it is, both numbers of rows, and the setting."""
    folder, _ = their_folder("sequence_classification")
    rows = weights.read_config(folder)[field]
    model = build("sequence_classification", **{field: rows + more})
    message = rf"{TABLES[field]} has {rows} rows in the file and {rows + more} .*{field}"
    with pytest.raises(InputError, match=message):
        load(model, folder)


def test_a_vocabulary_larger_than_the_table_is_refused():
    """Case 22: 32 entries and a table with 30 rows are an error with both numbers; the reverse works."""
    with pytest.raises(InputError, match=r"30 rows.* 32 entries"):
        Bert(vocab_size=30, **Bert.presets["tiny"]).build(32)
    backbone = Bert(vocab_size=32, **Bert.presets["tiny"]).build(30)
    assert backbone.input_embeddings.shape == (32, 128)


# --- the tied table ---------------------------------------------------------------------------------------------------


def test_a_tied_table_stands_once_in_the_file(build, load, our_folder, batch):
    """Case 20: one copy in the file, equal logits after export and import, and still one tensor after a step."""
    folder, model = our_folder("masked_lm")
    tables = [name for name, tensor in load_file(folder / weights.WEIGHTS).items() if tensor.shape == (61, 24)]
    assert tables == ["bert.embeddings.word_embeddings.weight"]

    again = build("masked_lm", seed=1)
    load(again, folder)
    ragged = batch("some")
    assert torch.equal(again(ragged), model(ragged))
    optimizer = torch.optim.SGD(again.parameters(), lr=0.1)
    torch.nn.functional.cross_entropy(again(ragged), ragged.targets).backward()
    optimizer.step()
    assert again.head.decoder.weight is again.backbone.input_embeddings
    assert not torch.equal(again.head.decoder.weight, model.head.decoder.weight)


def test_a_decoder_that_equals_the_table_is_fine_and_another_is_refused(build, load, their_folder):
    """Old files hold the tied decoder too: equal it is one tensor, different it is an error that names both."""
    folder, _ = their_folder("masked_lm")
    file = folder / weights.WEIGHTS
    tensors = load_file(file)
    table = tensors["bert.embeddings.word_embeddings.weight"]
    tensors |= {
        "cls.predictions.decoder.weight": table.clone(),
        "cls.predictions.decoder.bias": tensors["cls.predictions.bias"].clone(),
    }
    save_file(tensors, file)
    model = build("masked_lm")
    report = load(model, folder)
    assert (report.new, report.unused) == ((), ())
    assert torch.equal(model.head.decoder.weight, table)

    tensors["cls.predictions.decoder.weight"][60, 23] += 1
    save_file(tensors, file)
    with pytest.raises(InputError, match=r"word_embeddings.*decoder\.weight differ.*tie_word_embeddings = false"):
        load(model, folder)
