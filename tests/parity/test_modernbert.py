"""Our ModernBERT computes what transformers' does: hidden states, logits, loss, gradients, size and files."""

import json
import logging

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch.nn import functional
from transformers.models.modernbert import modeling_modernbert

from rtx_core import Batch, LoadRules, Outputs, weights
from rtx_core.model import initialize, make_model
from rtx_plugins.architectures.common.rotary import rotate, rotation
from rtx_plugins.architectures.modernbert import ModernBert
from rtx_plugins.losses.span_cross_entropy import SpanCrossEntropy

VOCABULARY = 61
TASKS = {
    "sequence_classification": (transformers.ModernBertForSequenceClassification, "first"),
    "token_classification": (transformers.ModernBertForTokenClassification, "all"),
    "masked_lm": (transformers.ModernBertForMaskedLM, "some"),
    "question_answering": (transformers.ModernBertForQuestionAnswering, "all"),
}
OUTPUTS = {"masked_lm": VOCABULARY, "question_answering": 2}
SETTINGS = {
    "window of 2 tokens on each side": {},
    "one head, all biases, no tie, means": {
        "num_attention_heads": 1,
        "hidden_activation": "gelu_pytorch_tanh",
        "classifier_activation": "tanh",
        "attention_bias": True,
        "mlp_bias": True,
        "norm_bias": True,
        "classifier_bias": True,
        "tie_word_embeddings": False,
        "classifier_pooling": "mean",
        "global_attn_every_n_layers": 2,
        "local_attention": 2,
        "norm_eps": 1e-3,
    },
    "many heads, other angles, no decoder bias, no padding token": {
        "num_attention_heads": 12,
        "num_hidden_layers": 2,
        "hidden_activation": "silu",
        "global_rope_theta": 50.0,
        "local_rope_theta": 7.0,
        "local_attention": 128,
        "decoder_bias": False,
        "pad_token_id": None,
    },
}
DTYPES = [torch.float32, torch.float64]
HIDDEN = {torch.float32: 1e-5, torch.float64: 1e-10}
RELATIVE = {torch.float32: 2e-5, torch.float64: 1e-10}
OF_LARGEST = {torch.float32: 1e-8, torch.float64: 1e-14}
ROUNDING = {torch.float32: 1e-7, torch.float64: 1e-14}
"""Of the largest gradient: what is left of a gradient that is 0 exactly."""
LABELS = ("animal", "food", "person", "plant", "thing")


def modernbert(**fields):
    """A small one; sizes are odd where they may be."""
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 24,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 21,
        "max_position_embeddings": 17,
        "local_attention": 4,
    }
    return ModernBert(**(sizes | fields))


def outputs_of(task):
    size = OUTPUTS.get(task, 5)
    return Outputs(size=size, labels=LABELS if size == 5 else ())


def hf_config(architecture, task):
    return transformers.ModernBertConfig.from_dict(architecture.hf_config(task, outputs_of(task)))


def build(task, *, seed=0, **fields):
    """Our model of a task, in evaluation mode."""
    architecture = modernbert(**fields)
    rows = architecture.vocab_size
    head = architecture.native_head(task)
    model = make_model(architecture, head, task=task, outputs=OUTPUTS.get(task, 5), vocab_size=rows, seed=seed)
    initialize(model, model.parameters_by_name().keys(), seed)
    return model.eval()


def randomise(model):
    """Give every parameter values that matter: biases and norms too."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            parameter.normal_(std=0.1, generator=generator)
            if name.endswith("norm.weight"):
                parameter.add_(1.0)
    return model


@pytest.fixture
def pair():
    """A function that gives our model of a task and transformers', with the same random weights."""

    def make(task, dtype, **fields):
        ours = build(task, **fields).to(dtype)
        theirs = randomise(TASKS[task][0](hf_config(modernbert(**fields), task)).eval()).to(dtype)
        with torch.no_grad():
            named = dict(theirs.named_parameters())
            for name, parameter in ours.parameters_by_name().items():
                parameter.copy_(named.pop(name))
        assert not named
        return ours, theirs

    return make


@pytest.fixture
def _rotation_is_not_rounded(monkeypatch):
    """Transformers rounds queries and keys to float32 before it turns them, also in a float64 model; here it doesn't.

    What is left in float32 are the angles' sines and cosines, which are the same numbers in both.
    """

    def rotated(query, key, cos, sin, unsqueeze_dim=1):
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        half = modeling_modernbert.rotate_half
        return query * cos + half(query) * sin, key * cos + half(key) * sin

    monkeypatch.setattr(modeling_modernbert, "apply_rotary_pos_emb", rotated)


def padded(batch):
    """The batch as transformers takes it, and where its real tokens are."""
    input_ids, mask = batch.padded()
    return {"input_ids": input_ids, "attention_mask": mask.long()}, mask


def answers(batch):
    """For each sequence a first and a last token of its answer."""
    draw = torch.Generator().manual_seed(5)
    marks = [torch.randint(0, length, (2,), generator=draw).sort().values.tolist() for length in batch.lengths]
    return torch.tensor(marks)


def their_output(theirs, batch, task):
    """Transformers' logits at our targets, and its loss."""
    inputs, mask = padded(batch)
    if task == "sequence_classification":
        output = theirs(**inputs, labels=batch.targets)
        return output.logits, output.loss
    if task == "question_answering":
        output = theirs(**inputs)
        logits = torch.stack([output.start_logits[mask], output.end_logits[mask]], dim=1)
        # Transformers' own loss takes padding for a place where an answer may be, so here each text stands alone.
        losses = [
            theirs(input_ids=ids.unsqueeze(0), start_positions=mark[:1], end_positions=mark[1:]).loss
            for ids, mark in zip(batch.input_ids.split(batch.lengths), answers(batch), strict=True)
        ]
        return logits, torch.stack(losses).mean()
    packed = torch.full((len(batch.input_ids),), -100)
    packed[batch.target_positions] = batch.targets
    labels = torch.full(mask.shape, -100)
    labels[mask] = packed
    output = theirs(**inputs, labels=labels)
    return output.logits[mask][batch.target_positions], output.loss


def our_loss(logits, batch, task):
    if task != "question_answering":
        return functional.cross_entropy(logits, batch.targets)
    rows = torch.zeros(len(batch.input_ids), 5, dtype=torch.int64)
    rows[:, 0] = batch.positions
    for offset, mark in zip(batch.cu_seqlens.tolist(), answers(batch).tolist(), strict=False):
        rows[offset + mark[0], 1] = rows[offset + mark[1], 2] = 1
    part = SpanCrossEntropy().build(Outputs(size=2))
    return part.of_logits(logits, rows) / part.weight(rows)


def assert_same_gradients(ours, theirs, dtype, zero=()):
    """Each gradient by its norm; those that are 0, whatever the weights, are rounding alone."""
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters() if parameter.grad is not None}
    largest = max(gradient.norm() for gradient in gradients.values())
    trained = ours.parameters_by_name()
    assert trained.keys() == gradients.keys()
    for name, parameter in trained.items():
        difference = (parameter.grad - gradients[name]).norm()
        if name in zero:
            assert max(difference, gradients[name].norm()) <= ROUNDING[dtype] * largest, name
            continue
        assert difference <= RELATIVE[dtype] * gradients[name].norm() + OF_LARGEST[dtype] * largest, name


@pytest.mark.usefixtures("_rotation_is_not_rounded")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fields", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("task", TASKS)
def test_numbers_are_transformers(pair, batch, task, fields, dtype):
    """Hidden states at every token, logits, loss, and each gradient by its norm agree on a ragged batch."""
    ours, theirs = pair(task, dtype, **fields)
    ragged = batch(TASKS[task][1])
    inputs, mask = padded(ragged)
    expected_logits, expected_loss = their_output(theirs, ragged, task)
    logits = ours(ragged)
    loss = our_loss(logits, ragged, task)

    tolerance = {"rtol": 0, "atol": HIDDEN[dtype]}
    with torch.no_grad():
        expected = theirs.model(**inputs).last_hidden_state[mask]
        torch.testing.assert_close(ours.backbone(ragged), expected, **tolerance)
    torch.testing.assert_close(logits, expected_logits, **tolerance)
    if task == "masked_lm":
        # Transformers computes this loss in float32, so in float64 the formula stands for it.
        torch.testing.assert_close(loss.float(), expected_loss.float(), rtol=0, atol=1e-5)
        expected_loss = functional.cross_entropy(expected_logits, ragged.targets)
    torch.testing.assert_close(loss, expected_loss, **tolerance)

    loss.backward()
    expected_loss.backward()
    # A softmax over places takes no notice of what is added at all of them.
    zero = ("head.norm.bias", "classifier.bias") if task == "question_answering" else ()
    assert_same_gradients(ours, theirs, dtype, zero=zero)


@pytest.mark.parametrize("task", TASKS)
def test_numbers_are_transformers_as_it_is(pair, batch, task):
    """The same in float32 with transformers' own rotation, nothing in its place."""
    ours, theirs = pair(task, torch.float32)
    ragged = batch(TASKS[task][1])
    expected, _ = their_output(theirs, ragged, task)
    torch.testing.assert_close(ours(ragged), expected, rtol=0, atol=1e-5)


def test_turned_queries_and_keys_know_their_distance_alone():
    """Each pair of channels turns by position · theta^(−2 i / D), so products depend on the difference of positions."""
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(1, 1, 8, generator=generator, dtype=torch.float64)
    turned = rotate(vector, rotation(torch.tensor([3]), 8, 100.0))
    pairs = torch.complex(vector[..., :4], vector[..., 4:])
    angles = 3 * 100.0 ** (-torch.arange(4, dtype=torch.float64) / 4)
    expected = pairs * torch.polar(torch.ones(4, dtype=torch.float64), angles)
    # The angles are float32, with a relative error of 2⁻²⁴ in each of a few operations.
    torch.testing.assert_close(turned, torch.cat([expected.real, expected.imag], dim=-1), rtol=0, atol=2e-6)

    other = torch.randn(1, 1, 8, generator=generator, dtype=torch.float64)
    positions = [(4, 2), (9, 7), (2, 0)]
    products = [
        (rotate(vector, rotation(torch.tensor([q]), 8, 100.0)) * rotate(other, rotation(torch.tensor([k]), 8, 100.0)))
        for q, k in positions
    ]
    for product in products[1:]:
        torch.testing.assert_close(product.sum(), products[0].sum(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_hidden_states_do_not_depend_on_the_neighbours(samples, pooling):
    """A sequence alone, and packed between others in two orders, gives the same logits within rounding of float64."""
    model = randomise(build("sequence_classification", classifier_pooling=pooling)).double()
    made = samples("first")
    alone = torch.cat([model(Batch.of([sample], [0])) for sample in made])
    for order in (list(range(len(made))), [3, 6, 0, 5, 1, 4, 2]):
        packed = model(Batch.of([made[index] for index in order], range(len(made))))
        torch.testing.assert_close(packed, alone[order], rtol=0, atol=1e-12)


def test_local_layers_see_their_window_alone(samples):
    """Three layers with windows of 1 token on each side, above a global one that adds nothing, carry a changed token 3
    tokens far, and no farther.
    """
    backbone = randomise(build("token_classification", local_attention=2, global_attn_every_n_layers=4)).backbone
    torch.nn.init.zeros_(backbone.layers[0].attn.Wo.weight)
    (sample,) = samples("all", lengths=(17,))
    before = backbone(Batch.of([sample], [0]))
    sample.input_ids[8] = 1 + sample.input_ids[8] % 60
    changed = (backbone(Batch.of([sample], [0])) != before).any(dim=1)
    assert changed.nonzero().flatten().tolist() == list(range(5, 12))


@pytest.mark.parametrize("task", TASKS)
def test_everything_is_dropped_where_transformers_does(pair, samples, monkeypatch, task):
    """The same probabilities in the same order on tensors of the same size, in one forward pass in training."""
    shares = {"embedding_dropout": 0.1, "attention_dropout": 0.2, "mlp_dropout": 0.3, "classifier_dropout": 0.4}
    ours, theirs = pair(task, torch.float32, **shares)
    batch = Batch.of(samples(TASKS[task][1], lengths=(6, 6, 6)), range(3))
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
    assert len(drawn) > 8


def test_attention_weights_are_dropped_in_training(samples, monkeypatch):
    """Each layer's attention is told the probability in training, and 0 in evaluation."""
    from rtx_plugins.architectures.modernbert import model as module

    attend, told = module.packed_attention, []

    def record(*args, dropout_p, **kwargs):
        told.append(dropout_p)
        return attend(*args, dropout_p=dropout_p, **kwargs)

    monkeypatch.setattr(module, "packed_attention", record)
    model = build("sequence_classification", attention_dropout=0.5)
    batch = Batch.of(samples("first"), range(7))
    model(batch)
    model.train()(batch)
    assert told == [0.0] * 4 + [0.5] * 4


# --- start and size ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "encoder", "masked_lm"), [("base", 149_014_272, 149_655_232), ("large", 394_781_696, 395_881_664)]
)
def test_presets_have_the_published_sizes(preset, encoder, masked_lm):
    """With the published vocabulary as many parameters as transformers' ModernBertModel and ModernBertForMaskedLM of
    the published sizes, 149 and 395 million in the paper.
    """
    architecture = ModernBert(**ModernBert.presets[preset])
    with torch.device("meta"):
        backbone = architecture.build(50_368)
        head = architecture.native_head("masked_lm").build(architecture.hidden_size, 50_368)
        head.tie(backbone.input_embeddings)
        theirs = transformers.ModernBertForMaskedLM(transformers.ModernBertConfig(**ModernBert.presets[preset]))
    assert sum(parameter.numel() for parameter in backbone.parameters()) == encoder
    both = {id(parameter): parameter.numel() for part in (backbone, head) for parameter in part.parameters()}
    assert sum(both.values()) == masked_lm == sum(parameter.numel() for parameter in theirs.parameters())
    assert not list(backbone.buffers())
    assert list(architecture.check()) == []


def test_layers_are_named_from_input_to_output():
    """Each backbone parameter but the last norm lies in exactly one layer; that norm goes with the head above it."""
    names = build("sequence_classification", num_hidden_layers=11).parameters_by_name()
    layers = modernbert(num_hidden_layers=11).layer_names()
    assert (layers[0], layers[-1]) == ("model.embeddings.", "model.layers.10.")
    in_layers = {name: sum(name.startswith(layer) for layer in layers) for name in names}
    assert set(in_layers.values()) == {0, 1}
    assert {name for name, count in in_layers.items() if count == 0} == {
        "model.final_norm.weight", "head.dense.weight", "head.norm.weight", "classifier.weight", "classifier.bias"
    }  # fmt: skip


def test_an_empty_batch_goes_through():
    """A process without samples computes zero rows, and its gradients are zeros, not missing."""
    for pooling in ("cls", "mean"):
        model = build("sequence_classification", classifier_pooling=pooling)
        logits = model(Batch.of([], []))
        assert logits.shape == (0, 5)
        logits.sum().backward()
        assert all((parameter.grad == 0).all() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"num_attention_heads": 5}, "hidden_size", "24 can't be shared equally by 5"),
        ({"num_attention_heads": 8}, "hidden_size", "24 by 8 attention heads is odd"),
        ({"pad_token_id": 61}, "pad_token_id", "61 is not below vocab_size, 61"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(fields, field, message):
    """Heads share the hidden size by even numbers, and the padding token stands in the table."""
    ((named, text),) = modernbert(**fields).check()
    assert named == field
    assert message in text


# --- files ------------------------------------------------------------------------------------------------------------


def load(model, folder, rules=None):
    """Fill a model from a folder, as a run with ``from_pretrained`` does."""
    parameters = model.parameters_by_name()
    backbone = {model.public_name(f"backbone.{name}") for name, _ in model.backbone.named_parameters()}
    context = weights.LoadContext(
        base_prefix="model.", head=parameters.keys() - backbone, tied=model.tied_names(), rules=rules or LoadRules()
    )
    return weights.load(folder, parameters, context)


def differing(model, theirs):
    """The names under which our tensors and transformers' are not the same bits, or not in both."""
    ours, named = model.tensors(), dict(theirs.named_parameters())
    return {
        name
        for name in ours.keys() | named.keys()
        if name not in ours or name not in named or not torch.equal(ours[name], named[name])
    }


@pytest.fixture
def _transformers_is_silent(caplog):
    """Fails where transformers logs a warning."""
    transformers.utils.logging.enable_propagation()
    with caplog.at_level(logging.WARNING, logger="transformers"):
        yield
    transformers.utils.logging.disable_propagation()
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.usefixtures("_transformers_is_silent")
@pytest.mark.parametrize("fields", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("task", TASKS)
def test_transformers_loads_what_we_write(batch, tmp_path, task, fields):
    """Every tensor arrives bit by bit under its name, nothing is missing or left over, no warning, equal logits."""
    architecture, model = modernbert(**fields), randomise(build(task, **fields))
    weights.write_model(tmp_path, model.tensors(), architecture.hf_config(task, outputs_of(task)))

    theirs, info = TASKS[task][0].from_pretrained(tmp_path, output_loading_info=True)

    assert {name: list(found) for name, found in info.items() if found} == {}
    assert differing(model, theirs) == set()
    assert list(theirs.config.architectures) == [type(theirs).__name__]
    ragged = batch(TASKS[task][1])
    with torch.no_grad():
        expected, _ = their_output(theirs, ragged, task)
    torch.testing.assert_close(model(ragged), expected, rtol=0, atol=1e-5)
    tables = [name for name, tensor in load_file(tmp_path / weights.WEIGHTS).items() if tensor.shape == (61, 24)]
    assert len(tables) == (2 if task == "masked_lm" and not architecture.tie_word_embeddings else 1)


@pytest.mark.parametrize("fields", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("task", TASKS)
def test_we_load_what_transformers_writes(tmp_path, task, fields):
    """Every tensor arrives bit by bit, nothing is new or unused, and the settings are those that it was built with."""
    theirs = randomise(TASKS[task][0](hf_config(modernbert(**fields), task)))
    theirs.save_pretrained(tmp_path)
    read = ModernBert.from_hf(weights.read_config(tmp_path))
    assert ModernBert(**read) == modernbert(**fields)
    model = build(task, seed=1, **read)
    report = load(model, tmp_path)
    assert (report.new, report.unused) == ((), ())
    assert differing(model, theirs) == set()


@pytest.mark.parametrize("task", TASKS)
def test_the_encoder_alone_leaves_the_head_new(tmp_path, task):
    """ModernBertModel's file has no prefix and no head."""
    theirs = randomise(transformers.ModernBertModel(hf_config(modernbert(), "embedding")))
    theirs.save_pretrained(tmp_path)
    model = build(task)
    report = load(model, tmp_path)
    heads = {"head.dense.weight", "head.norm.weight", "decoder.bias" if task == "masked_lm" else "classifier.bias"}
    assert set(report.new) == heads | (set() if task == "masked_lm" else {"classifier.weight"})
    assert report.unused == ()
    named = dict(theirs.named_parameters())
    assert all(torch.equal(model.tensors()[name], named[name.removeprefix("model.")]) for name in report.loaded)


def test_a_pretraining_checkpoint_gives_a_classifier_its_dense_layer(tmp_path):
    """The dense layer and norm of masked language modelling serve the classifier too, as in transformers."""
    theirs = randomise(transformers.ModernBertForMaskedLM(hf_config(modernbert(), "masked_lm")))
    theirs.save_pretrained(tmp_path)
    model = build("sequence_classification")
    report = load(model, tmp_path)
    assert set(report.new) == {"classifier.weight", "classifier.bias"}
    assert report.unused == ("decoder.bias",)
    assert torch.equal(model.head.head.dense.weight, theirs.head.dense.weight)


# --- config.json ------------------------------------------------------------------------------------------------------


def test_defaults_are_transformers():
    """A ModernBERT without a field is ModernBertConfig() with the tokenizer's vocabulary and padding token."""
    config = transformers.ModernBertConfig().to_dict()
    assert ModernBert(**ModernBert.from_hf(config)) == ModernBert(vocab_size=50_368, pad_token_id=50_283)


def test_the_published_config_is_read():
    """Keys of the ModernBERT-base on the hub, which transformers 4 wrote; both write the same layers and angles."""
    published = {
        "model_type": "modernbert",
        "global_attn_every_n_layers": 3,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0,
        "local_attention": 128,
        "classifier_pooling": "mean",
        "position_embedding_type": "absolute",
        "layer_norm_eps": 1e-05,
        "gradient_checkpointing": False,
        "vocab_size": 50368,
        "pad_token_id": 50283,
    }
    ours = ModernBert(**ModernBert.from_hf(published))
    assert ours == ModernBert(vocab_size=50_368, pad_token_id=50_283, classifier_pooling="mean")
    config = transformers.ModernBertConfig.from_dict(ours.hf_config("masked_lm", Outputs(size=50_368)))
    expected = transformers.ModernBertConfig.from_dict(published)
    for key in ("layer_types", "rope_parameters", "sliding_window", "classifier_pooling"):
        assert getattr(config, key) == getattr(expected, key), key


@pytest.mark.parametrize("distance", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("layers", [1, 2, 5])
def test_layers_come_back_from_their_types(layers, distance):
    """Global layers are where transformers has them, also when only the list of types is left."""
    architecture = modernbert(num_hidden_layers=layers, global_attn_every_n_layers=distance)
    config = hf_config(architecture, "masked_lm")
    expected = ["full_attention" if architecture.is_global(layer) else "sliding_attention" for layer in range(layers)]
    assert config.layer_types == expected
    kept = json.loads(config.to_json_string())
    del kept["global_attn_every_n_layers"]
    again = modernbert(**ModernBert.from_hf(kept))
    assert [again.is_global(layer) for layer in range(layers)] == [kind == "full_attention" for kind in expected]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model_type": "bert"}, 'model_type "bert"; modernbert takes "modernbert" only'),
        ({"layer_types": ["sliding_attention", "full_attention"]}, "every n-th layer from the first"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 1.0}}}, '"yarn".*"default" only'),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1.0}}, "rope_parameters .*full_attention and"),
    ],
)
def test_another_model_is_not_taken_for_modernbert(changed, message):
    """A config.json of something that this architecture can't compute is refused, with what it has and what may be."""
    with pytest.raises(ValueError, match=message):
        ModernBert.from_hf(transformers.ModernBertConfig().to_dict() | changed)


@pytest.mark.parametrize("task", TASKS)
def test_transformers_knows_the_labels(task):
    """The config gives each class its name, in our order; a language model has none."""
    config = hf_config(modernbert(), task)
    if task in ("sequence_classification", "token_classification"):
        assert config.id2label == dict(enumerate(LABELS))
    assert config.problem_type == ("single_label_classification" if task == "sequence_classification" else None)
    assert config.num_labels == (5 if task.endswith("_classification") else 2)
