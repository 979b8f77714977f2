"""RoBERTa and DistilBERT compute what transformers' do, with every head; their files go both ways."""

import json
import logging

import attrs
import numpy as np
import pytest
import torch
import transformers
from torch.nn import functional

from rtx_core import Batch, Outputs, Record, inference, weights
from rtx_core.cli import main
from rtx_core.model import initialize, make_model
from rtx_core.registry import Registry
from rtx_plugins.architectures.distilbert import DistilBert
from rtx_plugins.architectures.roberta import Roberta
from rtx_plugins.losses.span_cross_entropy import SpanCrossEntropy

VOCABULARY = 61
LABELS = ("animal", "food", "person", "plant", "thing")
DTYPES = [torch.float32, torch.float64]
ABSOLUTE = {torch.float32: 1e-5, torch.float64: 1e-10}
RELATIVE = {torch.float32: 2e-5, torch.float64: 1e-10}
OF_LARGEST = {torch.float32: 1e-8, torch.float64: 1e-14}
"""A key's bias has no gradient but rounding, and its norm next to the largest is what it is measured by."""

TASKS = {
    "sequence_classification": ("SequenceClassification", "first"),
    "token_classification": ("TokenClassification", "all"),
    "masked_lm": ("MaskedLM", "some"),
    "question_answering": ("QuestionAnswering", "all"),
}
"""The end of transformers' class for the task, and which tokens are targets."""


@attrs.frozen
class Family:
    """A component, transformers' config and beginning of a class's name, and three sets of fields to try."""

    component: type
    config: type
    name: str
    sizes: dict
    settings: dict
    head: dict
    """The head's parameters by task, as transformers names them."""


CLASSIFIER = {"classifier.weight", "classifier.bias"}
QA = {"qa_outputs.weight", "qa_outputs.bias"}
FAMILIES = {
    "roberta": Family(
        component=Roberta,
        config=transformers.RobertaConfig,
        name="Roberta",
        sizes={
            "hidden_size": 24,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "intermediate_size": 40,
            "max_position_embeddings": 34,
            "type_vocab_size": 1,
        },
        settings={
            "published": {"layer_norm_eps": 1e-5},
            "one head, tanh GELU, no tie, pad id 3": {
                "num_attention_heads": 1,
                "hidden_act": "gelu_new",
                "tie_word_embeddings": False,
                "pad_token_id": 3,
            },
            "many heads, ReLU, pad id 0, two types": {
                "num_attention_heads": 12,
                "num_hidden_layers": 1,
                "hidden_act": "relu",
                "layer_norm_eps": 1e-3,
                "pad_token_id": 0,
                "type_vocab_size": 2,
            },
        },
        head={
            "sequence_classification": {
                f"classifier.{name}.{kind}" for name in ("dense", "out_proj") for kind in ("weight", "bias")
            },
            "token_classification": CLASSIFIER,
            "masked_lm": {
                "lm_head.bias",
                *(f"lm_head.{name}.{kind}" for name in ("dense", "layer_norm") for kind in ("weight", "bias")),
            },
            "question_answering": QA,
        },
    ),
    "distilbert": Family(
        component=DistilBert,
        config=transformers.DistilBertConfig,
        name="DistilBert",
        sizes={"dim": 24, "n_layers": 3, "n_heads": 4, "hidden_dim": 40, "max_position_embeddings": 17},
        settings={
            "default": {},
            "one head, tanh GELU, no tie, pad id 3": {
                "n_heads": 1,
                "activation": "gelu_new",
                "tie_word_embeddings": False,
                "pad_token_id": 3,
            },
            "many heads, ReLU, no padding token": {
                "n_heads": 12,
                "n_layers": 1,
                "activation": "relu",
                "pad_token_id": None,
            },
        },
        head={
            "sequence_classification": {"pre_classifier.weight", "pre_classifier.bias", *CLASSIFIER},
            "token_classification": CLASSIFIER,
            "masked_lm": {
                "vocab_projector.bias",
                *(f"{name}.{kind}" for name in ("vocab_transform", "vocab_layer_norm") for kind in ("weight", "bias")),
            },
            "question_answering": QA,
        },
    ),
}
CASES = [
    pytest.param(family, fields, id=f"{name}: {setting}")
    for name, family in FAMILIES.items()
    for setting, fields in family.settings.items()
]
EACH = [pytest.param(family, id=name) for name, family in FAMILIES.items()]
each_family = pytest.mark.parametrize("family", EACH)
each_case = pytest.mark.parametrize(("family", "fields"), CASES)
each_task = pytest.mark.parametrize("task", TASKS)
each_dtype = pytest.mark.parametrize("dtype", DTYPES)


def of_family(family, **fields):
    """A small architecture of the family."""
    return family.component(**{"vocab_size": VOCABULARY, **family.sizes, **fields})


def outputs_of(task):
    """What the task predicts."""
    if task in ("masked_lm", "causal_lm"):
        return Outputs(size=VOCABULARY)
    return Outputs(size=2) if task == "question_answering" else Outputs(size=5, labels=LABELS)


def our_model(architecture, task, seed=0):
    """Our model of a task with its own head, in evaluation mode."""
    model = make_model(
        architecture,
        architecture.native_head(task),
        task=task,
        outputs=outputs_of(task).size,
        vocab_size=architecture.vocab_size,
        seed=seed,
    )
    initialize(model, model.parameters_by_name().keys(), seed)
    return model.eval()


def their_class(family, task):
    """Transformers' class for the task; without one the encoder's."""
    end = f"For{TASKS[task][0]}" if task in TASKS else "Model"
    return getattr(transformers, f"{family.name}{end}")


def their_config(family, architecture, task):
    """Transformers' config of the model that we would keep."""
    return family.config.from_dict(architecture.hf_config(task, outputs_of(task)))


def their_model(family, architecture, task):
    """Transformers' model of a task, in evaluation mode."""
    return their_class(family, task)(their_config(family, architecture, task)).eval()


def twins(family, architecture, task, randomised, dtype=torch.float32):
    """Our model and transformers', with the same random weights."""
    ours = our_model(architecture, task).to(dtype)
    theirs = randomised(their_model(family, architecture, task)).to(dtype)
    with torch.no_grad():
        named = dict(theirs.named_parameters())
        for name, parameter in ours.parameters_by_name().items():
            parameter.copy_(named.pop(name))
    assert not named
    return ours, theirs


@pytest.fixture
def fitting(samples):
    """A function that gives ragged samples for an architecture: without its padding token, and with its token types."""

    def make(architecture, task, **options):
        made = samples(TASKS[task][1], outputs_of(task).size, **options)
        types = getattr(architecture, "type_vocab_size", 1)
        for sample in made:
            sample.input_ids[sample.input_ids == architecture.pad_token_id] = 60
            sample.token_types[:] = np.minimum(sample.token_types, types - 1)
        return made

    return make


def their_inputs(architecture, batch):
    """The batch as transformers takes it, padded, and where its real tokens are."""
    input_ids, mask = batch.padded(architecture.pad_token_id or 0)
    inputs = {"input_ids": input_ids, "attention_mask": mask.long()}
    if hasattr(architecture, "type_vocab_size"):
        token_types = torch.zeros_like(input_ids)
        token_types[mask] = batch.token_types
        inputs["token_type_ids"] = token_types
    return inputs, mask


def labels_of(batch, task):
    """The targets as transformers takes them: one for each sequence, or one for each token with -100 for none."""
    if task == "sequence_classification":
        return batch.targets
    packed = torch.full((len(batch.input_ids),), -100)
    packed[batch.target_positions] = batch.targets
    _, mask = batch.padded()
    labels = torch.full(mask.shape, -100)
    labels[mask] = packed
    return labels


def at_targets(output, batch, task):
    """Transformers' logits at our targets, ``[N, K]``."""
    _, mask = batch.padded()
    if task == "question_answering":
        return torch.stack([output.start_logits[mask], output.end_logits[mask]], dim=1)
    return output.logits if task == "sequence_classification" else output.logits[mask][batch.target_positions]


def assert_same_gradients(ours, theirs, dtype, of_all_tokens=()):
    """Each parameter's gradient by its norm, relative to it and to the largest.

    :param of_all_tokens: parameters that raise all of a text's logits alike, which the loss takes no notice of: their
        gradient is the rounding of a sum over every token, ten times that of the others.
    """
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters() if parameter.grad is not None}
    largest = max(gradient.norm() for gradient in gradients.values())
    trained = {name: parameter for name, parameter in ours.parameters_by_name().items() if parameter.requires_grad}
    assert trained.keys() == gradients.keys()
    for name, parameter in trained.items():
        difference = (parameter.grad - gradients[name]).norm()
        rounding = OF_LARGEST[dtype] * largest * (10 if name in of_all_tokens else 1)
        assert difference <= RELATIVE[dtype] * gradients[name].norm() + rounding, name


def differing(model, theirs):
    """The names under which our tensors and transformers' are not the same bits, or not in both."""
    ours, named = model.tensors(), dict(theirs.named_parameters())
    return {name for name in ours.keys() | named.keys() if not _same(ours.get(name), named.get(name))}


def _same(one, other):
    return one is not None and other is not None and one.dtype == other.dtype and torch.equal(one, other)


# --- numbers ----------------------------------------------------------------------------------------------------------


@each_dtype
@each_case
@pytest.mark.parametrize("task", [task for task in TASKS if task != "question_answering"])
def test_numbers_are_transformers(fitting, randomised, family, fields, task, dtype):
    """Hidden states at every token, logits, loss, and each gradient by its norm agree on a ragged batch."""
    architecture = of_family(family, **fields)
    ours, theirs = twins(family, architecture, task, randomised, dtype)
    made = fitting(architecture, task)
    batch = Batch.of(made, range(len(made)))
    inputs, mask = their_inputs(architecture, batch)

    expected = theirs(**inputs, labels=labels_of(batch, task), output_hidden_states=True)
    logits = ours(batch)
    loss = functional.cross_entropy(logits, batch.targets)

    tolerance = {"rtol": 0, "atol": ABSOLUTE[dtype]}
    torch.testing.assert_close(ours.backbone(batch), expected.hidden_states[-1][mask], **tolerance)
    torch.testing.assert_close(logits, at_targets(expected, batch, task), **tolerance)
    torch.testing.assert_close(loss, expected.loss, **tolerance)
    loss.backward()
    expected.loss.backward()
    assert_same_gradients(ours, theirs, dtype)


@each_dtype
@each_case
def test_answers_are_transformers(fitting, randomised, family, fields, dtype):
    """Logits at every token of a ragged batch; the mean loss of its sequences, unpadded; gradients."""
    architecture = of_family(family, **fields)
    ours, theirs = twins(family, architecture, "question_answering", randomised, dtype)
    made = fitting(architecture, "question_answering")
    batch = Batch.of(made, range(len(made)))
    chance = np.random.default_rng(5)
    marks = [np.sort(chance.integers(len(sample.input_ids), size=2)) for sample in made]
    rows = torch.zeros(len(batch.input_ids), 5, dtype=torch.int64)
    rows[:, 0] = batch.positions
    for offset, mark in zip(batch.cu_seqlens.tolist(), marks, strict=False):
        rows[offset + mark[0], 1] = rows[offset + mark[1], 2] = 1

    logits = ours(batch)
    part = SpanCrossEntropy().build(Outputs(size=2))
    loss = part.of_logits(logits, rows) / part.weight(rows)
    inputs, _ = their_inputs(architecture, batch)
    losses = [
        theirs(
            **their_inputs(architecture, Batch.of([sample], [0]))[0],
            start_positions=torch.tensor(mark[:1]),
            end_positions=torch.tensor(mark[1:]),
        ).loss
        for sample, mark in zip(made, marks, strict=True)
    ]
    mean = torch.stack(losses).mean()

    tolerance = {"rtol": 0, "atol": ABSOLUTE[dtype]}
    torch.testing.assert_close(logits, at_targets(theirs(**inputs), batch, "question_answering"), **tolerance)
    torch.testing.assert_close(loss, mean, **tolerance)
    loss.backward()
    mean.backward()
    last = architecture.layer_names()[-1]
    shifts = {"qa_outputs.bias", f"{last}output.LayerNorm.bias", f"{last}output_layer_norm.bias"}
    assert_same_gradients(ours, theirs, dtype, of_all_tokens=shifts)


@each_dtype
@pytest.mark.parametrize("tied", [True, False])
def test_robertas_decoder_is_transformers(fitting, randomised, dtype, tied):
    """Logits of a causal model at every token that predicts one, and gradients of their loss."""
    family = FAMILIES["roberta"]
    architecture = of_family(family, is_decoder=True, tie_word_embeddings=tied)
    config = their_config(family, architecture, "causal_lm")
    assert config.architectures == ["RobertaForCausalLM"]
    theirs = randomised(transformers.RobertaForCausalLM(config).eval()).to(dtype)
    ours = our_model(architecture, "causal_lm").to(dtype)
    with torch.no_grad():
        named = dict(theirs.named_parameters())
        for name, parameter in ours.parameters_by_name().items():
            parameter.copy_(named.pop(name))
    assert not named
    made = fitting(architecture, "masked_lm")
    batch = Batch.of(made, range(len(made)))
    inputs, _ = their_inputs(architecture, batch)
    expected = at_targets(theirs(**inputs), batch, "causal_lm")
    logits = ours(batch)
    torch.testing.assert_close(logits, expected, rtol=0, atol=ABSOLUTE[dtype])
    functional.cross_entropy(logits, batch.targets).backward()
    functional.cross_entropy(expected, batch.targets).backward()
    assert_same_gradients(ours, theirs, dtype)


@each_family
@each_task
def test_dropout_is_where_transformers_has_it(fitting, randomised, monkeypatch, family, task):
    """The same probabilities in the same order on tensors of the same size, in one forward pass in training."""
    shares = (
        {"hidden_dropout_prob": 0.2, "classifier_dropout": 0.3}
        if family.component is Roberta
        else {"dropout": 0.2, "seq_classif_dropout": 0.3, "qa_dropout": 0.4}
    )
    architecture = of_family(family, **shares)
    ours, theirs = twins(family, architecture, task, randomised)
    made = fitting(architecture, task, lengths=(6, 6, 6))
    batch = Batch.of(made, range(3))
    drawn = []
    dropout = functional.dropout

    def record(tensor, p=0.5, *args, **kwargs):
        drawn.append((p, tensor.numel()))
        return dropout(tensor, p, *args, **kwargs)

    monkeypatch.setattr(functional, "dropout", record)
    theirs.train()(**their_inputs(architecture, batch)[0])
    expected = drawn.copy()
    drawn.clear()
    ours.train()(batch)
    assert drawn == expected
    assert len(drawn) > 3


@each_family
def test_attention_weights_are_dropped_in_training(fitting, family):
    """That probability alone makes training random, and its absence leaves training equal to evaluation."""
    off, share = (
        ({"hidden_dropout_prob": 0.0}, "attention_probs_dropout_prob")
        if family.component is Roberta
        else ({"dropout": 0.0, "seq_classif_dropout": 0.0}, "attention_dropout")
    )
    architecture = of_family(family, **off, **{share: 0.0})
    made = fitting(architecture, "sequence_classification")
    batch = Batch.of(made, range(len(made)))
    still = our_model(architecture, "sequence_classification")
    assert torch.equal(still(batch), still.train()(batch))
    random = our_model(of_family(family, **off, **{share: 0.5}), "sequence_classification").train()
    assert not torch.equal(random(batch), random(batch))


# --- sizes and settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("component", "preset", "rows", "parameters"),
    [(Roberta, "base", 50_265, 124_645_632), (DistilBert, "base", 30_522, 66_362_880)],
)
def test_presets_have_the_published_sizes(component, preset, rows, parameters):
    """As many parameters as published; RoBERTa's number has a pooler, whose size is that of its head's dense layer."""
    architecture = component(**component.presets[preset])
    with torch.device("meta"):
        backbone = architecture.build(rows)
        head = architecture.native_head("sequence_classification").build(architecture.hidden_size, 2)
    pooler = head.dense.parameters() if component is Roberta else ()
    assert sum(parameter.numel() for parameter in (*backbone.parameters(), *pooler)) == parameters
    assert not list(backbone.buffers())


@pytest.mark.parametrize(
    ("family", "preset", "rows"), [("roberta", "base", 50_265), ("roberta", "large", 50_265), ("distilbert", "base", 7)]
)
def test_presets_build_what_transformers_builds(family, preset, rows):
    """Names and shapes of the encoder are those of transformers' class for the same config."""
    family = FAMILIES[family]
    architecture = family.component(vocab_size=rows, **family.component.presets[preset])
    with torch.device("meta"):
        ours = dict(architecture.build(rows).named_parameters())
        theirs = dict(their_class(family, None)(their_config(family, architecture, None)).named_parameters())
    pooler = {name for name in theirs if name.startswith("pooler.")}
    assert {name: tensor.shape for name, tensor in ours.items()} == {
        name: tensor.shape for name, tensor in theirs.items() if name not in pooler
    }


@each_family
def test_defaults_are_transformers(family):
    """A component without a field is transformers' config with the tokenizer's vocabulary."""
    config = family.config().to_dict()
    assert family.component(**family.component.from_hf(config)) == family.component(vocab_size=config["vocab_size"])


@each_family
def test_every_field_comes_back_from_transformers_config(family):
    """What we write into config.json, read and written by transformers, is the same component."""
    for fields in family.settings.values():
        architecture = of_family(family, initializer_range=0.05, **fields)
        config = their_config(family, architecture, "masked_lm")
        assert family.component(**family.component.from_hf(json.loads(config.to_json_string()))) == architecture


@each_family
def test_transformers_knows_the_labels_and_the_loss(family):
    """Labels in our order, and ``problem_type`` by task."""
    architecture = of_family(family)
    for task, problem in (
        ("sequence_classification", "single_label_classification"),
        ("multi_label_classification", "multi_label_classification"),
        ("regression", "regression"),
    ):
        config = their_config(family, architecture, task)
        assert config.id2label == dict(enumerate(LABELS))
        assert config.problem_type == problem
        assert config.architectures == [f"{family.name}ForSequenceClassification"]


@pytest.mark.parametrize(
    ("component", "key", "value"),
    [
        (Roberta, "model_type", "bert"),
        (Roberta, "add_cross_attention", True),
        (Roberta, "position_embedding_type", "relative_key"),
        (DistilBert, "model_type", "bert"),
    ],
)
def test_another_model_is_refused(component, key, value):
    """A config.json of something that the architecture can't compute is refused, with the key and its value."""
    config = {"model_type": component.model_type, key: value}
    with pytest.raises(ValueError, match=f"{key} {json.dumps(value)}; {component.model_type} takes"):
        component.from_hf(config)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"dim": 30, "n_heads": 4}, "dim"),
        ({"vocab_size": 3, "pad_token_id": 3}, "pad_token_id"),
    ],
)
def test_distilberts_sizes_must_fit_each_other(fields, wrong):
    """What does not is reported under the field that is wrong; defaults fit."""
    assert [field for field, _ in DistilBert(**fields).check()] == [wrong]
    assert list(DistilBert().check()) == []


# --- positions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "pad", "usable"), [(34, 1, 32), (514, 1, 512), (34, 3, 30), (34, 0, 33)])
def test_robertas_positions_end_after_the_padding_tokens(rows, pad, usable):
    """Case 23: rows − pad_token_id − 1 tokens fit, the last of which has the last row; one more has none."""
    architecture = of_family(FAMILIES["roberta"], max_position_embeddings=rows, pad_token_id=pad)
    assert architecture.usable_positions == usable
    embeddings = our_model(architecture, "masked_lm").backbone.embeddings
    positions = embeddings.positions(attrs.make_class("Positions", ["positions"])(torch.arange(usable)))
    assert positions[[0, -1]].tolist() == [pad + 1, rows - 1]


def test_a_position_table_without_a_usable_row_is_refused():
    """Two rows and padding token 1 leave nothing."""
    architecture = of_family(FAMILIES["roberta"], max_position_embeddings=2)
    assert [field for field, _ in architecture.check()] == ["max_position_embeddings"]


@each_family
def test_hidden_states_do_not_depend_on_the_neighbours(fitting, randomised, family):
    """A sequence alone, and packed between others, has the same hidden states."""
    architecture = of_family(family)
    backbone = randomised(our_model(architecture, "token_classification")).double().backbone
    made = fitting(architecture, "token_classification")
    alone = [backbone(Batch.of([sample], [0])) for sample in made]
    packed = backbone(Batch.of(made, range(len(made))))
    torch.testing.assert_close(packed, torch.cat(alone), rtol=0, atol=1e-10)


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def _transformers_is_silent(caplog):
    """Fails where transformers logs a warning."""
    transformers.utils.logging.enable_propagation()
    with caplog.at_level(logging.WARNING, logger="transformers"):
        yield
    transformers.utils.logging.disable_propagation()
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.usefixtures("_transformers_is_silent")
@each_case
@each_task
def test_transformers_loads_what_we_write(tmp_path, randomised, family, fields, task):
    """Every tensor arrives bit by bit under its name, nothing is missing or left over, no warning."""
    architecture = of_family(family, **fields)
    model = randomised(our_model(architecture, task))
    weights.write_model(tmp_path, model.tensors(), architecture.hf_config(task, outputs_of(task)))
    auto = getattr(transformers, f"AutoModelFor{TASKS[task][0]}")

    theirs, info = auto.from_pretrained(tmp_path, output_loading_info=True)

    assert {name: list(found) for name, found in info.items() if found} == {}
    assert type(theirs) is their_class(family, task)
    assert differing(model, theirs) == set()


@each_case
@each_task
def test_we_load_what_transformers_writes(tmp_path, load, randomised, family, fields, task):
    """Every tensor arrives bit by bit, nothing is new or unused; the sizes come from config.json."""
    theirs = randomised(their_model(family, of_family(family, **fields), task))
    theirs.save_pretrained(tmp_path)
    architecture = family.component(**family.component.from_hf(weights.read_config(tmp_path)))
    model = our_model(architecture, task, seed=1)
    report = load(model, tmp_path)
    assert (report.new, report.unused) == ((), ())
    assert differing(model, theirs) == set()


@each_family
@each_task
def test_the_encoder_alone_leaves_the_head_new(tmp_path, load, randomised, family, task):
    """A file without prefix and head fills the encoder; of it only RoBERTa's pooler is left over."""
    architecture = of_family(family)
    theirs = randomised(their_model(family, architecture, None))
    theirs.save_pretrained(tmp_path)
    model = our_model(architecture, task)
    report = load(model, tmp_path)
    assert set(report.new) == family.head[task]
    pooler = {"pooler.dense.weight", "pooler.dense.bias"} if family.component is Roberta else set()
    assert set(report.unused) == pooler
    named = dict(theirs.named_parameters())
    prefix = f"{family.component.model_type}."
    assert all(torch.equal(model.tensors()[name], named[name.removeprefix(prefix)]) for name in report.loaded)


@each_family
def test_a_pretraining_checkpoint_serves_every_task(tmp_path, load, randomised, family):
    """The head over the vocabulary is unused by the others, whose own are new."""
    architecture = of_family(family)
    randomised(their_model(family, architecture, "masked_lm")).save_pretrained(tmp_path)
    for task in TASKS.keys() - {"masked_lm"}:
        report = load(our_model(architecture, task), tmp_path)
        assert set(report.new) == family.head[task]
        assert set(report.unused) == family.head["masked_lm"]


@each_family
def test_layers_are_named_from_input_to_output(family):
    """Each backbone parameter lies in exactly one layer, and no parameter of a head in one."""
    layers = of_family(family).layer_names()
    assert len(layers) == 4
    for task, head in family.head.items():
        names = our_model(of_family(family), task).parameters_by_name()
        in_layers = {name: sum(name.startswith(layer) for layer in layers) for name in names}
        assert {name for name, count in in_layers.items() if count == 0} == head
        assert set(in_layers.values()) == {0, 1}


# --- a run ------------------------------------------------------------------------------------------------------------

PAIRS = """
[run]
device = "cpu"
[task]
type = "sequence_classification"
text = ["premise", "hypothesis"]
max_length = 24
[data]
type = "jsonl"
[data.train]
files = ["train.jsonl"]
[tokenizer]
type = "bpe"
vocab_size = 300
[architecture]
type = "{type}"
pad_token_id = 0
initializer_range = 0.2
{sizes}
[optimizer]
lr = 1e-2
[training]
duration = "3 steps"
batch_size = 10
threads = 1
"""


@each_family
def test_a_kept_model_answers_pairs_as_in_transformers(tmp_path, family):
    """A run from scratch: transformers opens tokenizer and model from its folder, and ragged pairs get its logits."""
    draw = np.random.default_rng(2)
    texts = [" ".join(draw.choice(["ant", "bee", "cow", "dog", "elk"], size)) for size in range(1, 13)]
    rows = [
        {"premise": first, "hypothesis": second, "label": "same" if first[:1] == second[:1] else "other"}
        for first in texts
        for second in texts[::3]
    ]
    (tmp_path / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    sizes = "\n".join(f"{name} = {value}" for name, value in family.sizes.items() if name != "max_position_embeddings")
    content = PAIRS.format(type=family.component.model_type, sizes=sizes)
    (tmp_path / "pairs.toml").write_text(content, encoding="utf-8")
    run = tmp_path / "run"
    assert main(["run", str(tmp_path / "pairs.toml"), "--output", str(run), "--quiet"]) == 0

    tokenizer = transformers.AutoTokenizer.from_pretrained(run / "model")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(run / "model").eval()
    columns = [[row[name] for row in rows] for name in ("premise", "hypothesis")]
    with torch.no_grad():
        expected = theirs(**tokenizer(*columns, padding=True, truncation=True, return_tensors="pt")).logits
    records = [Record(row, "rows", number) for number, row in enumerate(rows, start=1)]
    ours = torch.cat(inference.load(run, Registry.discover()).logits(records))
    assert expected.std() > 0.01
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)
