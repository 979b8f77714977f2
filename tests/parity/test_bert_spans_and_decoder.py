"""Our BERT with the head for answers, and as a decoder, computes what transformers' does."""

import numpy as np
import pytest
import torch
import transformers
from torch.nn import functional

from rtx_core import Batch, Outputs
from rtx_plugins.losses.span_cross_entropy import SpanCrossEntropy
from rtx_plugins.tasks.causal_lm import CausalLmPart

DTYPES = [torch.float32, torch.float64]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
RELATIVE = {torch.float32: 2e-5, torch.float64: 1e-10}
OF_LARGEST = {torch.float32: 1e-7, torch.float64: 1e-14}
"""The gradient of a bias that a softmax takes no notice of is rounding alone."""
FIELDS = {
    "default": {},
    "no tie, tanh GELU": {"tie_word_embeddings": False, "hidden_act": "gelu_new"},
}


@pytest.fixture
def pair(bert, build, randomised):
    """A function that gives our model of a task and one of transformers', with the same random weights."""

    def make(task, theirs, dtype, outputs, **fields):
        architecture = bert(**fields)
        config = transformers.BertConfig.from_dict(architecture.hf_config(task, Outputs(size=outputs)))
        ours = build(task, outputs=outputs, **fields).to(dtype)
        theirs = randomised(theirs(config).eval()).to(dtype)
        with torch.no_grad():
            named = dict(theirs.named_parameters())
            for name, parameter in ours.parameters_by_name().items():
                parameter.copy_(named.pop(name))
        assert not named
        return ours, theirs

    return make


def unpadded(sample):
    """One sequence as transformers takes it."""
    return {
        "input_ids": torch.from_numpy(sample.input_ids.astype(np.int64))[None],
        "token_type_ids": torch.from_numpy(sample.token_types.astype(np.int64))[None],
    }


def assert_same_gradients(ours, theirs, dtype):
    """Each parameter's gradient by its norm, relative to it and to the largest."""
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters() if parameter.grad is not None}
    largest = max(gradient.norm() for gradient in gradients.values())
    trained = {name: parameter for name, parameter in ours.parameters_by_name().items() if parameter.requires_grad}
    assert trained.keys() == gradients.keys()
    for name, parameter in trained.items():
        difference = (parameter.grad - gradients[name]).norm()
        assert difference <= RELATIVE[dtype] * gradients[name].norm() + OF_LARGEST[dtype] * largest, name


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_answers_are_transformers(pair, samples, dtype):
    """Logits at every token; the loss of each window, unpadded, and of all of them their mean; gradients."""
    ours, theirs = pair("question_answering", transformers.BertForQuestionAnswering, dtype, outputs=2)
    made = samples("all")
    chance = np.random.default_rng(5)
    marks = [np.sort(chance.integers(len(sample.input_ids), size=2)) for sample in made]
    batch = Batch.of(made, range(len(made)))
    rows = torch.zeros(len(batch.input_ids), 5, dtype=torch.int64)
    rows[:, 0] = batch.positions
    for offset, mark in zip(batch.cu_seqlens.tolist(), marks, strict=False):
        rows[offset + mark[0], 1] = rows[offset + mark[1], 2] = 1

    logits = ours(batch)
    part = SpanCrossEntropy().build(Outputs(size=2))
    expected = [
        theirs(**unpadded(sample), start_positions=torch.tensor(mark[:1]), end_positions=torch.tensor(mark[1:]))
        for sample, mark in zip(made, marks, strict=True)
    ]
    tolerance = {"rtol": 0, "atol": TOLERANCE[dtype]}
    theirs_logits = [torch.stack([output.start_logits[0], output.end_logits[0]], dim=1) for output in expected]
    torch.testing.assert_close(logits, torch.cat(theirs_logits), **tolerance)
    for own, own_rows, output in zip(logits.split(batch.lengths), rows.split(batch.lengths), expected, strict=True):
        torch.testing.assert_close(part.of_logits(own, own_rows), output.loss, **tolerance)
    loss = part.of_logits(logits, rows) / part.weight(rows)
    mean = torch.stack([output.loss for output in expected]).mean()
    torch.testing.assert_close(loss, mean, **tolerance)
    loss.backward()
    mean.backward()
    assert_same_gradients(ours, theirs, dtype)


def test_nothing_is_dropped_before_the_answers(pair, samples, monkeypatch):
    """The head has no dropout of its own, as in transformers: as many draws of the same size."""
    ours, theirs = pair("question_answering", transformers.BertForQuestionAnswering, torch.float32, outputs=2)
    batch = Batch.of(samples("all", lengths=(6, 6)), range(2))
    drawn = []
    dropout = functional.dropout

    def record(tensor, p=0.5, *args, **kwargs):
        drawn.append((p, tensor.numel()))
        return dropout(tensor, p, *args, **kwargs)

    monkeypatch.setattr(functional, "dropout", record)
    ids, mask = batch.padded()
    theirs.train()(input_ids=ids, attention_mask=mask.long())
    expected = drawn.copy()
    drawn.clear()
    ours.train()(batch)
    assert drawn == expected
    assert len(drawn) > 6


# --- the decoder ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
def test_the_decoder_is_transformers(pair, samples, fields, dtype):
    """Logits at every token, the loss of the next token over a ragged batch, and gradients."""
    fields = {**fields, "is_decoder": True}
    ours, theirs = pair("causal_lm", transformers.BertLMHeadModel, dtype, outputs=61, **fields)
    task = CausalLmPart("text", None)
    made = [task.prepare(sample, 0) for sample in samples("some")]
    batch = Batch.of(made, range(len(made)))
    ids, mask = batch.padded()
    types = torch.zeros_like(ids)
    types[mask] = batch.token_types
    expected = theirs(
        input_ids=ids, attention_mask=mask.long(), token_type_ids=types, labels=ids.masked_fill(~mask, -100)
    )
    logits = ours(batch)
    tolerance = {"rtol": 0, "atol": TOLERANCE[dtype]}
    torch.testing.assert_close(logits, expected.logits[mask][batch.target_positions], **tolerance)
    loss = functional.cross_entropy(logits, batch.targets)
    # Transformers computes its loss in float32.
    torch.testing.assert_close(loss.float(), expected.loss.float(), rtol=0, atol=1e-5)
    loss.backward()
    reference = functional.cross_entropy(expected.logits[mask][batch.target_positions], batch.targets)
    reference.backward()
    assert_same_gradients(ours, theirs, dtype)


def test_a_decoder_sees_nothing_of_what_comes(build, randomised, samples):
    """Changing a token changes no hidden state before it, in a batch of ragged sequences, and those from it on."""
    backbone = randomised(build("causal_lm", is_decoder=True)).backbone
    made = samples("some")
    before = backbone(Batch.of(made, range(len(made))))
    made[2].input_ids[4] = 1 + made[2].input_ids[4] % 60
    after = backbone(Batch.of(made, range(len(made))))
    start = sum(len(sample.input_ids) for sample in made[:2])
    stop = start + len(made[2].input_ids)
    assert torch.equal(before[: start + 4], after[: start + 4])
    assert torch.equal(before[stop:], after[stop:])
    assert (before[start + 4 : stop] != after[start + 4 : stop]).any(dim=1).all()


def test_a_decoder_is_causal_and_says_so(bert):
    """``is_decoder`` comes from config.json, goes into it, and names transformers' class."""
    encoder, decoder = bert(), bert(is_decoder=True)
    assert (encoder.causal, decoder.causal) == (False, True)
    config = decoder.hf_config("causal_lm", Outputs(size=61))
    assert (config["is_decoder"], config["architectures"]) == (True, ["BertLMHeadModel"])
    assert decoder.from_hf(config)["is_decoder"] is True
    assert encoder.hf_config("masked_lm", Outputs(size=61))["is_decoder"] is False
