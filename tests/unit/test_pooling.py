"""Pooled embeddings against the formula of sentence-transformers' Pooling and Normalize on padded batches."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from rtx_core import Batch, InputError, Sample
from rtx_plugins.heads.linear import Linear
from rtx_plugins.heads.pooling import Pooling

LENGTHS = (3, 9, 1, 9, 5)


def batch_of(sequences, positions=None):
    """One sample of these sequences of token ids; a target at the first token of each unless positions are given."""
    lengths = tuple(map(len, sequences))
    positions = np.cumsum([0, *lengths[:-1]]) if positions is None else np.array(positions)
    sample = Sample(
        input_ids=np.concatenate(sequences).astype(np.int32),
        token_types=np.zeros(sum(lengths), np.uint8),
        target_positions=positions.astype(np.int32),
        targets=np.zeros((len(positions), 3), np.int64),
        lengths=lengths,
    )
    return Batch.of([sample], [0])


def padded_pooling(states, mask, mode):
    """What sentence-transformers computes of token embeddings ``[B, L, H]`` and an attention mask ``[B, L]``."""
    wide = mask.unsqueeze(-1).expand(states.shape).to(states.dtype)
    if mode == "cls":
        return states[:, 0]
    if mode == "max":
        return states.masked_fill(wide == 0, -1e9).max(1).values
    return (states * wide).sum(1) / wide.sum(1).clamp(min=1e-9)


def random_case(seed, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    batch = batch_of([np.arange(length) for length in LENGTHS])
    states = torch.randn(sum(LENGTHS), 6, generator=generator).to(dtype)
    padded = torch.full((len(LENGTHS), max(LENGTHS), 6), 7.0, dtype=dtype)
    _, mask = batch.padded()
    padded[mask] = states
    return batch, states, padded, mask


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("mode", ["mean", "cls", "max"])
def test_pooling_is_that_of_padded_batches(mode, normalize):
    """Embeddings and the gradient of every token's state, whatever stands in the padding."""
    batch, states, padded, mask = random_case(0)
    ours, theirs = states.clone().requires_grad_(), padded.clone().requires_grad_()
    head = Pooling(mode=mode, normalize=normalize).build(6, 0)
    found = head.project(head.features(ours, batch))
    expected = padded_pooling(theirs, mask, mode)
    expected = functional.normalize(expected, p=2, dim=1) if normalize else expected
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad[mask], rtol=1e-5, atol=1e-7)


def test_half_precision_states_are_pooled_in_float32():
    """The mean is that of the rounded states, without further rounding: bfloat16 sums would lose most digits."""
    batch, states, _, _ = random_case(2, torch.bfloat16)
    found = Pooling(normalize=False).build(6, 0).features(states, batch)
    expected = torch.stack([part.double().mean(0) for part in states.split(LENGTHS)])
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-7)


def test_every_target_has_the_row_of_its_sequence():
    """Positions inside of a sequence mean the sequence; one that stands twice gives two rows, one that stands nowhere
    none.
    """
    sequences = [np.arange(length) for length in LENGTHS]
    states = torch.randn(sum(LENGTHS), 6, generator=torch.Generator().manual_seed(3))
    for mode in ("mean", "cls", "max"):
        head = Pooling(mode=mode).build(6, 0)
        each = head.features(states, batch_of(sequences))
        found = head.features(states, batch_of(sequences, [1, 1, 5, 26]))
        torch.testing.assert_close(found, each[[0, 0, 1, 4]], rtol=0, atol=0)


@pytest.mark.parametrize("mode", ["mean", "cls", "max"])
def test_embeddings_are_those_of_transformers_with_padding(mode):
    """A whole BERT of transformers on a padded batch, pooled by the formula, gives what ours gives of packed texts."""
    transformers = pytest.importorskip("transformers", reason="the test extra is not installed")
    from rtx_plugins.architectures.bert import Bert

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    torch.manual_seed(0)
    theirs = transformers.BertModel(transformers.BertConfig(vocab_size=40, **sizes), add_pooling_layer=False).eval()
    ours = Bert(**sizes).build(40).eval()
    ours.load_state_dict(theirs.state_dict(), strict=False)
    draw = np.random.default_rng(0)
    batch = batch_of([draw.integers(1, 40, length) for length in LENGTHS])
    ids, mask = batch.padded()
    with torch.no_grad():
        states = theirs(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        expected = functional.normalize(padded_pooling(states, mask, mode), dim=1)
        found = Pooling(mode=mode).build(16, 0).features(ours(batch), batch)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_heads_refuse_what_they_can_not_give():
    """Pooling has no logits, and a linear layer no embeddings."""
    with pytest.raises(
        InputError, match='^head.type: pooling gives embeddings, but this task wants 3 logits.*"linear"'
    ):
        Pooling().build(8, 3)
    with pytest.raises(InputError, match='^head.type: linear gives logits, but this task wants embeddings.*"pooling"'):
        Linear().build(8, 0)
