"""Attention over packed sequences against the plain formula, sequence by sequence, in float64."""

import inspect

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rtx_core import Batch, Sample
from rtx_plugins.architectures.common import attention
from rtx_plugins.architectures.common.attention import packed_attention

LENGTHS = {
    "one sequence": [7],
    "equal": [6, 6, 6],
    "near-equal": [8, 9, 9, 10],
    "rising": [1, 2, 9, 10, 10, 31],
    "falling": [31, 10, 10, 9, 2, 1],
    "any order": [9, 31, 2, 10, 1, 10, 9],
    "some empty": [4, 0, 5, 0],
}


def packed(lengths):
    """A batch of sequences of these lengths; what stands in them doesn't matter here."""
    return Batch.of([sample(length) for length in lengths], range(len(lengths)))


def sample(length):
    return Sample(np.zeros(length, np.int32), np.zeros(length, np.uint8), np.zeros(0, np.int32), np.zeros(0, np.int64))


def inputs(tokens, heads=2, size=4, dtype=torch.float64):
    generator = torch.Generator().manual_seed(tokens)
    shape = (tokens, heads, size)
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for _ in range(3)]


def formula(query, key, value, lengths, scale=None, *, causal=False, window=None):
    """softmax(Q Kᵀ · scale) V of each sequence and head on its own, with −∞ where a key is hidden: causal, after its
    query; window, farther than that from it.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    outputs = []
    for q, k, v in zip(*(tensor.split(list(lengths)) for tensor in (query, key, value)), strict=True):
        scores = torch.einsum("qhd,khd->hqk", q, k) * scale
        if causal:
            scores = scores.masked_fill(torch.ones(len(q), len(q), dtype=torch.bool).triu(1), -torch.inf)
        if window is not None:
            places = torch.arange(len(q), device=q.device)
            scores = scores.masked_fill((places[:, None] - places).abs() > window, -torch.inf)
        weights = torch.softmax(scores, dim=-1)
        outputs.append(torch.einsum("hqk,khd->qhd", weights, v))
    return torch.cat(outputs)


def assert_equals_formula(attend, lengths, scale=None, **hidden):
    """Output and gradients of all three inputs agree within rounding of float64."""
    tensors = inputs(sum(lengths))
    output = attend(*tensors, packed(lengths), scale, **hidden)
    expected = formula(*tensors, lengths, scale, **hidden)
    direction = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-13)
    gradients, expected_gradients = (torch.autograd.grad(tensor, tensors, direction) for tensor in (output, expected))
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-12)


def attend(query, key, value, batch, scale=None, **hidden):
    return packed_attention(query, key, value, batch, scale=scale, **hidden)


def attend_nested(query, key, value, batch, scale=None, *, causal=False):
    return attention._nested((query, key, value), batch, causal=causal, dropout_p=0.0, scale=scale)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_the_cpu_path_is_the_formula(lengths, scale, causal):
    """Grouping, padding and reordering change neither the output nor a gradient."""
    assert_equals_formula(attend, lengths, scale, causal=causal)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(any), st.booleans())
def test_the_cpu_path_is_the_formula_for_any_lengths(lengths, causal):
    """The same for arbitrary lengths in arbitrary order."""
    assert_equals_formula(attend, lengths, causal=causal)


@pytest.mark.parametrize("window", [0, 1, 3, 8, 64])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_the_cpu_path_with_a_window_is_the_formula(lengths, window):
    """A token attends to what is at most that far from it, in its own sequence alone; so do the gradients."""
    assert_equals_formula(attend, lengths, window=window)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(any), st.integers(0, 45))
def test_the_cpu_path_with_a_window_is_the_formula_for_any_lengths(lengths, window):
    """The same for arbitrary lengths in arbitrary order, and windows narrower or wider than those."""
    assert_equals_formula(attend, lengths, window=window)


def test_nothing_reaches_beyond_the_window():
    """NaN in a sequence leaves the others finite; a token's gradient is not 0 in its window, and exactly 0 outside."""
    for lengths in ([9, 9, 9], [8, 9, 9, 10]):
        tensors = inputs(sum(lengths))
        token = lengths[0] + 4
        (gradient,) = torch.autograd.grad(attend(*tensors, packed(lengths), window=2)[token].sum(), tensors[2])
        assert (gradient[token - 2 : token + 3] != 0).all()
        assert (gradient[: token - 2] == 0).all()
        assert (gradient[token + 3 :] == 0).all()
        with torch.no_grad():
            for tensor in tensors:
                tensor[lengths[0] : lengths[0] + 9] = torch.nan
        output = attend(*tensors, packed(lengths), window=2)
        assert torch.isfinite(output[: lengths[0]]).all()
        assert torch.isfinite(output[lengths[0] + 9 :]).all()


def test_a_window_and_causal_are_refused():
    """No architecture has both, so there is no path for it."""
    with pytest.raises(ValueError, match="a window or causal, not both"):
        attend(*inputs(3), packed([3]), causal=True, window=1)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")  # only torch's CPU form of it warns
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("lengths", [LENGTHS["rising"], LENGTHS["any order"]], ids=["rising", "any order"])
def test_the_nested_path_is_the_formula(lengths, scale):
    """What CUDA computes in full precision or with dropout, here by torch's CPU form of the same call."""
    assert_equals_formula(attend_nested, lengths, scale)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("causal", [False, True])
def test_the_nested_path_is_told_what_is_hidden(monkeypatch, causal):
    """Torch's CPU form has no causal mask, so here the formula takes its place, with the nested input's lengths."""

    def nested_formula(query, key, value, *, is_causal, dropout_p, scale):
        rows = [tensor.transpose(1, 2) for tensor in (query, key, value)]
        offsets = rows[0].offsets()
        output = formula(*(row.values() for row in rows), offsets.diff().tolist(), scale, causal=is_causal)
        return torch.nested.nested_tensor_from_jagged(output, offsets).transpose(1, 2)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", nested_formula)
    assert_equals_formula(attend_nested, LENGTHS["any order"], causal=causal)


def computed(query, key, value, limits, **hidden):
    """What a kernel gives that was told these limits."""
    bounds_q, bounds_k, longest_q, longest_k = limits
    assert bounds_q.dtype == torch.int32
    assert torch.equal(bounds_q, bounds_k)
    assert longest_q == longest_k == 31
    return formula(query, key, value, bounds_q.diff().tolist(), **hidden)


def windowed_kernel(query, key, value, *limits, window_size=(-1, -1)):
    """As torch's since 2.11: −1 is no limit, and (−1, 0) none to the left and nothing to the right."""
    assert window_size in ((-1, -1), (-1, 0), (5, 5))
    window = 5 if window_size == (5, 5) else None
    return computed(query, key, value, limits, causal=window_size == (-1, 0), window=window)


def first_kernel(query, key, value, *limits, is_causal=False):
    """As torch's first one."""
    return computed(query, key, value, limits, causal=is_causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("kernel", [windowed_kernel, first_kernel])
def test_the_varlen_kernel_is_told_where_sequences_end(monkeypatch, kernel, scale, causal):
    """It gets cumulative lengths and the longest, in its own words what is hidden; a scale that isn't its D ** -0.5
    goes into the query.
    """
    monkeypatch.setattr(attention, "_varlen_kernel", lambda: kernel)

    assert_equals_formula(attend_varlen, LENGTHS["any order"], scale, causal=causal)


def attend_varlen(query, key, value, batch, scale, *, causal=False, window=None):
    return attention._varlen((query, key, value), batch, causal=causal, window=window, scale=scale)


def test_the_varlen_kernel_is_told_the_window(monkeypatch):
    """As many tokens to the left as to the right; the first kernel, which can't be told, doesn't take windows."""
    monkeypatch.setattr(attention, "_varlen_kernel", lambda: windowed_kernel)
    assert attention._varlen_kernel_has_windows()
    assert_equals_formula(attend_varlen, LENGTHS["any order"], window=5)
    monkeypatch.setattr(attention, "_varlen_kernel", lambda: first_kernel)
    assert not attention._varlen_kernel_has_windows()


def test_torchs_varlen_kernel_can_hide_what_comes_after():
    """The argument that a causal call passes is one that the installed torch's kernel has."""
    kernel = attention._varlen_kernel()
    if kernel is None:
        pytest.skip("this torch has no varlen_attn")
    assert attention._varlen_window(causal=False, window=None) == {}
    assert attention._varlen_window(causal=True, window=None).keys() <= inspect.signature(kernel).parameters.keys()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("hidden", [{}, {"causal": True}, {"window": 5}], ids=["nothing", "causal", "window"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cuda_is_the_formula(dtype, hidden):
    """On a GPU both kernels agree with the formula within their precision."""
    lengths = LENGTHS["any order"]
    tensors = [tensor.detach().to("cuda", dtype) for tensor in inputs(sum(lengths), heads=2, size=32)]
    output = packed_attention(*tensors, packed(lengths).to(torch.device("cuda")), **hidden)
    expected = formula(*(tensor.double().cpu() for tensor in tensors), lengths, **hidden).cuda()
    torch.testing.assert_close(output.double(), expected, rtol=0, atol=1e-5 if dtype == torch.float32 else 2e-2)


def test_no_sequence_reaches_another():
    """NaN in one sequence leaves every other finite, and a gradient from one to another is exactly 0."""
    lengths = [8, 9, 9, 10]
    tensors = inputs(sum(lengths))
    output = attend(*tensors, packed(lengths))
    for gradient in torch.autograd.grad(output[8:17].sum(), tensors):
        assert (gradient[:8] == 0).all()
        assert (gradient[17:] == 0).all()
    with torch.no_grad():
        for tensor in tensors:
            tensor[8:17] = torch.nan
    output = attend(*tensors, packed(lengths))
    assert torch.isfinite(output[:8]).all()
    assert torch.isfinite(output[17:]).all()


def test_nothing_reaches_back():
    """With a causal mask the gradient of a token's output with respect to every later token is exactly 0."""
    for lengths in ([9, 9, 9], [8, 9, 9, 10]):
        tensors = inputs(sum(lengths))
        output = attend(*tensors, packed(lengths), causal=True)
        start = lengths[0]
        for gradient in torch.autograd.grad(output[start : start + 4].sum(), tensors):
            assert (gradient[start + 4 :] == 0).all()
            assert (gradient[:start] == 0).all()
        (gradient,) = torch.autograd.grad(attend(*tensors, packed(lengths), causal=True)[start + 3].sum(), tensors[2])
        assert (gradient[start : start + 4] != 0).all()


def test_dropout_keeps_the_mean_and_follows_the_seed():
    """Dropped weights are scaled up, so that the mean over many draws is the formula; one seed gives one draw."""
    lengths = [8, 9, 9, 10]
    tensors = [tensor.detach() for tensor in inputs(sum(lengths))]
    batch = packed(lengths)
    draws = []
    for seed in range(200):
        torch.manual_seed(seed)
        draws.append(packed_attention(*tensors, batch, dropout_p=0.2))
    torch.manual_seed(0)
    assert torch.equal(draws[0], packed_attention(*tensors, batch, dropout_p=0.2))
    stacked = torch.stack(draws)
    # Five standard errors of the mean over 200 draws, at every one of the 288 outputs.
    error = 5 * stacked.std(dim=0) / 200**0.5
    assert ((stacked.mean(dim=0) - formula(*tensors, lengths)).abs() < error).all()


def test_the_plan_is_made_once_for_all_layers():
    """A second call with the same batch takes the index tensors of the first; each window has its own."""
    batch = packed(LENGTHS["rising"])
    for window in (None, 5, 31):  # the last hides nothing: no sequence is longer
        attend(*inputs(63), batch, window=window)
    plans = dict(batch.plans)
    assert len(plans) == 2
    for window in (None, 5):
        attend(*inputs(63), batch, window=window)
    assert all(batch.plans[name] is plan for name, plan in plans.items())


def test_padding_stays_below_a_quarter():
    """However lengths are distributed, dense blocks hold at most 1.25 places for each token, and the calls are few."""
    lengths = np.random.default_rng(3).lognormal(3.2, 0.6, size=64).clip(1, 128).astype(int).tolist()
    plan = attention._plan(lengths, torch.device("cpu"))
    places = sum(group.sequences * group.length for group in plan.groups)
    assert sum(group.tokens for group in plan.groups) == sum(lengths)
    assert places <= 1.25 * sum(lengths)
    assert len(plan.groups) <= 22  # ln 128 / ln 1.25: as many as a factor of 1.25 fits between 1 and 128


def test_equal_lengths_are_not_copied():
    """A batch of equal lengths in one group needs no index tensors at all."""
    plan = attention._plan([128] * 16, torch.device("cpu"))
    (group,) = plan.groups
    assert (plan.order, plan.inverse, group.to_block, group.to_packed, group.seen) == (None,) * 5
