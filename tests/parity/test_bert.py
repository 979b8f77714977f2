"""Our BERT computes what transformers' does: hidden states, logits, loss, gradients and size."""

import pytest
import torch
import transformers
from torch.nn import functional
from transformers.activations import ACT2FN

from rtx_core import Batch, Outputs
from rtx_plugins.architectures.bert import Bert
from rtx_plugins.architectures.common.activations import Activation, activation
from rtx_plugins.heads.linear import Linear

TASKS = {
    "sequence_classification": (transformers.BertForSequenceClassification, "first"),
    "token_classification": (transformers.BertForTokenClassification, "all"),
    "masked_lm": (transformers.BertForMaskedLM, "some"),
}
SETTINGS = {
    "default": {},
    "one head, tanh GELU, no tie": {"num_attention_heads": 1, "hidden_act": "gelu_new", "tie_word_embeddings": False},
    "many heads, ReLU": {"num_attention_heads": 12, "hidden_act": "relu", "layer_norm_eps": 1e-3, "type_vocab_size": 3},
    "one layer, SiLU, no padding token": {"num_hidden_layers": 1, "hidden_act": "silu", "pad_token_id": None},
}
DTYPES = [torch.float32, torch.float64]
HIDDEN = {torch.float32: 1e-5, torch.float64: 1e-10}
RELATIVE = {torch.float32: 2e-5, torch.float64: 1e-10}
OF_LARGEST = {torch.float32: 1e-8, torch.float64: 1e-14}


def hf_config(architecture, task, outputs):
    fields = architecture.hf_config(task, Outputs(size=outputs))
    return transformers.BertConfig.from_dict(fields)


@pytest.fixture
def pair(bert, build, randomised):
    """A function that gives our model of a task and transformers', with the same random weights."""

    def make(task, dtype, **fields):
        architecture = bert(**fields)
        outputs = architecture.vocab_size if task == "masked_lm" else 5
        ours = build(task, **fields)
        theirs = TASKS[task][0](hf_config(architecture, task, outputs))
        theirs = randomised(theirs.eval()).to(dtype)
        with torch.no_grad():
            named = dict(theirs.named_parameters())
            for name, parameter in ours.to(dtype).parameters_by_name().items():
                parameter.copy_(named.pop(name))
        assert not named
        return ours, theirs

    return make


def padded(batch):
    """The batch as transformers takes it, and where its real tokens are."""
    input_ids, mask = batch.padded()
    token_types = torch.zeros_like(input_ids)
    token_types[mask] = batch.token_types
    return {"input_ids": input_ids, "attention_mask": mask.long(), "token_type_ids": token_types}, mask


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


def their_logits(logits, batch, task):
    """Transformers' logits at our targets."""
    _, mask = batch.padded()
    return logits if task == "sequence_classification" else logits[mask][batch.target_positions]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fields", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("task", TASKS)
def test_numbers_are_transformers(pair, batch, task, fields, dtype):
    """Hidden states at every token, logits, loss, and each gradient by its norm agree on a ragged batch."""
    ours, theirs = pair(task, dtype, **fields)
    ragged = batch(TASKS[task][1])
    inputs, mask = padded(ragged)

    expected = theirs(**inputs, labels=labels_of(ragged, task), output_hidden_states=True)
    hidden_states = ours.backbone(ragged)
    logits = ours(ragged)
    loss = functional.cross_entropy(logits, ragged.targets)

    tolerance = {"rtol": 0, "atol": HIDDEN[dtype]}
    torch.testing.assert_close(hidden_states, expected.hidden_states[-1][mask], **tolerance)
    torch.testing.assert_close(logits, their_logits(expected.logits, ragged, task), **tolerance)
    torch.testing.assert_close(loss, expected.loss, **tolerance)

    loss.backward()
    expected.loss.backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters() if parameter.grad is not None}
    largest = max(gradient.norm() for gradient in gradients.values())
    trained = {name: parameter for name, parameter in ours.parameters_by_name().items() if parameter.requires_grad}
    assert trained.keys() == gradients.keys()
    for name, parameter in trained.items():
        difference = (parameter.grad - gradients[name]).norm()
        assert difference <= RELATIVE[dtype] * gradients[name].norm() + OF_LARGEST[dtype] * largest, name


def test_the_linear_head_is_transformers_token_classifier(bert, build):
    """The head ``linear`` on BERT has the names and the sizes of ``BertForTokenClassification``."""
    model = build("token_classification", head=Linear())
    theirs = transformers.BertForTokenClassification(hf_config(bert(), "token_classification", 5))
    expected = {name: parameter.shape for name, parameter in theirs.named_parameters()}
    assert {name: parameter.shape for name, parameter in model.parameters_by_name().items()} == expected


@pytest.mark.parametrize("name", Activation.__args__)
def test_activations_are_transformers(name):
    """Each name means the same function, within rounding of float64."""
    values = torch.linspace(-6, 6, 1001, dtype=torch.float64)
    torch.testing.assert_close(activation(name)(values), ACT2FN[name](values), rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
def test_hidden_states_do_not_depend_on_the_neighbours(build, randomised, samples, dtype):
    """A sequence alone, and packed between others in two orders, has the same hidden states."""
    backbone = randomised(build("token_classification")).to(dtype).backbone
    made = samples("all")
    alone = [backbone(Batch.of([sample], [0])) for sample in made]
    for order in (range(len(made)), (3, 6, 0, 5, 1, 4, 2)):
        packed = backbone(Batch.of([made[index] for index in order], range(len(made))))
        for index, hidden_states in zip(order, packed.split([len(alone[i]) for i in order]), strict=True):
            torch.testing.assert_close(hidden_states, alone[index], rtol=0, atol=HIDDEN[dtype])


def test_no_gradient_crosses_a_sequence(build, randomised, batch):
    """The gradient of one sequence's output with respect to another's input embeddings is exactly 0."""
    backbone = randomised(build("token_classification")).backbone
    ragged = batch("all")
    kept = []
    backbone.embeddings.register_forward_hook(lambda _module, _inputs, output: kept.append(output))
    hidden_states = backbone(ragged)
    start, stop = ragged.cu_seqlens[2:4].tolist()
    (gradient,) = torch.autograd.grad(hidden_states[start:stop].square().sum(), kept)
    assert (gradient[start:stop] != 0).any(dim=-1).all()
    assert (gradient[:start] == 0).all()
    assert (gradient[stop:] == 0).all()


@pytest.mark.parametrize(("token_types", "of_the_second"), [(1, 0), (2, 1), (3, 1)])
def test_the_second_text_of_a_pair_has_a_type_of_the_table(token_types, of_the_second):
    """Where there is one type alone, both texts have it, as a tokenizer of transformers without types gives it."""
    assert Bert(type_vocab_size=token_types).special_tokens.pair_token_type == of_the_second


def test_dropout_acts_in_training_alone(build, batch):
    """In training one seed gives one draw and two seeds two; evaluation draws nothing."""
    model = build("sequence_classification", hidden_dropout_prob=0.2)
    ragged = batch("first")

    def logits(seed):
        torch.manual_seed(seed)
        return model(ragged)

    assert torch.equal(logits(0), logits(1))
    model.train()
    assert torch.equal(logits(0), logits(0))
    assert not torch.equal(logits(0), logits(1))


def test_attention_weights_are_dropped_in_training(build, batch):
    """That probability alone makes training random, and its absence leaves training equal to evaluation."""
    ragged = batch("first")
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    still = build("sequence_classification", **none)
    assert torch.equal(still(ragged), still.train()(ragged))
    random = build("sequence_classification", **none | {"attention_probs_dropout_prob": 0.5}).train()
    assert not torch.equal(random(ragged), random(ragged))


@pytest.mark.parametrize("classifier_dropout", [None, 0.3])
@pytest.mark.parametrize("task", TASKS)
def test_everything_else_is_dropped_where_transformers_does(pair, samples, monkeypatch, task, classifier_dropout):
    """The same probabilities in the same order on tensors of the same size, in one forward pass in training."""
    ours, theirs = pair(task, torch.float32, hidden_dropout_prob=0.2, classifier_dropout=classifier_dropout)
    made = samples(TASKS[task][1], lengths=(6, 6, 6))
    batch = Batch.of(made, range(3))
    drawn = []
    dropout = functional.dropout

    def record(tensor, p=0.5, *args, **kwargs):
        drawn.append((p, tensor.numel()))
        return dropout(tensor, p, *args, **kwargs)

    monkeypatch.setattr(functional, "dropout", record)
    theirs.train()(**padded(batch)[0])
    expected = drawn.copy()
    drawn.clear()
    ours.train()(batch)
    assert drawn == expected
    assert len(drawn) > 6


@pytest.mark.parametrize(("preset", "parameters"), [("base", 109_482_240), ("large", 335_141_888)])
def test_presets_have_the_published_sizes(preset, parameters):
    """Encoder and pooler with 30,522 word pieces have as many parameters as transformers' BertModel."""
    architecture = Bert(**Bert.presets[preset])
    with torch.device("meta"):
        backbone = architecture.build(30_522)
        head = architecture.native_head("sequence_classification").build(architecture.hidden_size, 2)
    counted = [*backbone.parameters(), *head.pooler.parameters()]
    assert sum(parameter.numel() for parameter in counted) == parameters
    assert not list(backbone.buffers())


@pytest.mark.parametrize("preset", Bert.presets)
def test_presets_are_turc_et_al(preset):
    """Feed-forward width 4 H and heads of 64 channels, in every size of Turc et al. 2019."""
    architecture = Bert(**Bert.presets[preset])
    assert architecture.intermediate_size == 4 * architecture.hidden_size
    assert architecture.hidden_size == 64 * architecture.num_attention_heads
    assert list(architecture.check()) == []


def test_the_start_depends_on_seed_and_name_alone(build):
    """A deeper model starts with the same lower layers; another seed changes every random tensor."""
    shallow = build("sequence_classification", num_hidden_layers=1).parameters_by_name()
    deep = build("sequence_classification", num_hidden_layers=2).parameters_by_name()
    other = build("sequence_classification", num_hidden_layers=1, seed=1).parameters_by_name()
    for name, tensor in shallow.items():
        assert torch.equal(tensor, deep[name]), name
        if tensor.std() > 0:
            assert not torch.equal(tensor, other[name]), name


def test_the_padding_row_is_not_trained(build, samples):
    """As in transformers, a padding token that stands in a text gets no gradient."""
    model = build("sequence_classification")
    (sample,) = samples("first", lengths=(6,))
    sample.input_ids[3] = 0
    batch = Batch.of([sample], [0])
    functional.cross_entropy(model(batch), batch.targets).backward()
    gradient = model.backbone.input_embeddings.grad
    assert (gradient[0] == 0).all()
    assert (gradient[sample.input_ids[1]] != 0).any()


def test_an_empty_batch_goes_through(build):
    """A process without samples computes zero rows, and its gradients are zeros, not missing."""
    model = build("token_classification")
    logits = model(Batch.of([], []))
    assert logits.shape == (0, 5)
    logits.sum().backward()
    assert all((parameter.grad == 0).all() for parameter in model.parameters())


def test_layers_are_named_from_input_to_output(bert, build):
    """Each backbone parameter lies in exactly one layer, and layer 1 is not mistaken for layer 10."""
    names = build("sequence_classification", num_hidden_layers=11).parameters_by_name()
    layers = bert(num_hidden_layers=11).layer_names()
    assert layers[0] == "bert.embeddings."
    assert layers[-1] == "bert.encoder.layer.10."
    in_layers = {name: sum(name.startswith(layer) for layer in layers) for name in names}
    in_head = {name for name, count in in_layers.items() if count == 0}
    assert set(in_layers.values()) == {0, 1}
    assert in_head == {
        "bert.pooler.dense.weight", "bert.pooler.dense.bias", "classifier.weight", "classifier.bias"
    }  # fmt: skip
