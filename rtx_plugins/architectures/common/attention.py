"""Attention over packed sequences: each token attends to those of its own sequence, to all or as far as it may see.

Shapes: T tokens of B sequences packed end to end, h heads of D channels each.
The formula is softmax(Q Kᵀ · scale) V (Vaswani et al. 2017, arXiv:1706.03762), with dropout on the softmax.
"""

from __future__ import annotations

import functools
import inspect
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from rtx_core import Batch

    Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    """Query, key and value, each ``[T, h, D]``."""

_LONGEST_TO_SHORTEST = 1.25
"""Sequences whose lengths differ by at most this factor share one dense call.

Measured on a CPU, forward and backward with dropout, 32 sequences of log-normal length (median 25, at most 128), 12
heads × 32: one call for each distinct length 17 ms, factor 1.1 16 ms, 1.25 14 ms, 1.5 15 ms, all padded to the longest
31 ms. Smaller factors pay for calls, larger ones for padding. Equal lengths (16 × 128) are one call without a copy.
"""


def packed_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    batch: Batch,
    *,
    causal: bool = False,
    window: int | None = None,
    dropout_p: float = 0.0,
    scale: float | None = None,
) -> torch.Tensor:
    """Attention within each sequence of the batch, ``[T, h, D]`` from three tensors of that shape.

    :param causal: a token attends to itself and to those before it alone.
    :param window: a token attends to those at most this far away, before and after it; None: however far.
    :param dropout_p: the probability with which an attention weight is dropped; 0 outside training.
    :param scale: factor of the scores; None takes D ** -0.5.
    :raises ValueError: a window together with ``causal``, which no architecture needs yet.
    """
    import torch

    if causal and window is not None:
        raise ValueError("packed_attention takes a window or causal, not both")
    if window is not None and batch.max_seqlen <= window + 1:
        window = None  # nothing is farther away
    inputs = (query, key, value)
    # On CUDA no nested kernel for float64 hides later tokens, and none for any dtype distant ones.
    if query.device.type == "cuda" and dropout_p == 0.0 and _varlen_kernel_takes(query, window):
        return _varlen(inputs, batch, causal=causal, window=window, scale=scale)
    if query.device.type != "cuda" or window is not None or (causal and query.dtype == torch.float64):
        return _grouped(inputs, batch, causal=causal, window=window, dropout_p=dropout_p, scale=scale)
    return _nested(inputs, batch, causal=causal, dropout_p=dropout_p, scale=scale)


# --- any device: dense calls over groups of sequences -----------------------------------------------------------------


@attrs.frozen(kw_only=True, eq=False)
class _Group:
    """Neighbouring sequences of about equal length, computed as one dense block ``[sequences, h, length, D]``.

    Two tensors lead from its packed tokens to the block and back, places counted from the group's start. They are None
    where all lengths are equal: then the block is a view.
    """

    sequences: int
    length: int
    """Of the longest of them."""
    tokens: int
    to_block: torch.Tensor | None = None
    """int64 ``[sequences · length]``: the packed token at each place. Padding repeats the sequence's own last token,
    so that not even NaN gets from one sequence into another."""
    to_packed: torch.Tensor | None = None
    """int64 ``[tokens]``: the place of each packed token in the block."""
    seen: torch.Tensor | None = None
    """bool, broadcast to ``[sequences, 1, length, length]``: which keys each query attends to, no padding and nothing
    outside its window; None: all."""


@attrs.frozen(kw_only=True, eq=False)
class _Plan:
    """How a batch is cut into groups; the same for every layer with the same window."""

    groups: Sequence[_Group]
    order: torch.Tensor | None
    """int64 ``[T]``: the tokens with the sequences sorted by length; None where they already are."""
    inverse: torch.Tensor | None
    """int64 ``[T]``: the way back."""


def _grouped(
    inputs: Inputs, batch: Batch, *, causal: bool, window: int | None, dropout_p: float, scale: float | None
) -> torch.Tensor:
    """One dense call for each group of sequences of about equal length."""
    import torch

    name = "grouped" if window is None else f"grouped, window {window}"
    plan: _Plan | None = batch.plans.get(name)
    if plan is None:
        plan = batch.plans[name] = _plan(batch.lengths, inputs[0].device, window)
    if not plan.groups:
        return sum(inputs[1:], inputs[0])  # empty, but each of the three gets its gradient
    sizes = [group.tokens for group in plan.groups]
    # Not slices: the backward pass of split is one concatenation, that of each slice fills a tensor of full size.
    split = [torch.split(_reordered(tensor, plan.order), sizes) for tensor in inputs]
    outputs = [
        _dense(group, blocks, causal=causal, dropout_p=dropout_p, scale=scale)
        for group, *blocks in zip(plan.groups, *split, strict=True)
    ]
    return _reordered(outputs[0] if len(outputs) == 1 else torch.cat(outputs), plan.inverse)


def _reordered(tensor: torch.Tensor, order: torch.Tensor | None) -> torch.Tensor:
    return tensor if order is None else tensor.index_select(0, order)


def _dense(
    group: _Group, blocks: Sequence[torch.Tensor], *, causal: bool, dropout_p: float, scale: float | None
) -> torch.Tensor:
    """Attention of one group, from packed ``[tokens, h, D]`` to packed."""
    from torch.nn import functional

    heads = blocks[0].shape[1:]
    query, key, value = (
        _reordered(block, group.to_block)
        .view(group.sequences, group.length, *heads)
        .transpose(1, 2)  # [sequences, h, length, D]
        for block in blocks
    )
    # Padding stands behind all real tokens, so where a token sees none after it, it sees no padding either.
    mask = None if causal else group.seen
    output = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=causal, dropout_p=dropout_p, scale=scale
    )
    return _reordered(output.transpose(1, 2).reshape(-1, *heads), group.to_packed)


def _plan(lengths: Sequence[int], device: torch.device, window: int | None = None) -> _Plan:
    """Cut sequences of these lengths, in any order, into groups; those without tokens are left out."""
    sizes = np.array([length for length in lengths if length > 0], dtype=np.int64)
    order = inverse = None
    if not _is_sorted(sizes):
        order, inverse = _by_length(sizes)
        sizes = np.sort(sizes)
    bounds = _bounds(sizes)
    return _Plan(
        groups=[_group(sizes[start:stop], device, window) for start, stop in pairwise(bounds)],
        order=None if order is None else _tensor(order, device),
        inverse=None if inverse is None else _tensor(inverse, device),
    )


def _is_sorted(lengths: np.ndarray) -> bool:
    """Whether lengths only rise or only fall."""
    steps = np.diff(lengths)
    return bool((steps >= 0).all() or (steps <= 0).all())


def _by_length(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The packed tokens with the shortest sequence first, and the inverse permutation."""
    rank = np.argsort(np.argsort(lengths, kind="stable"))
    order = np.argsort(np.repeat(rank, lengths), kind="stable")
    return order, np.argsort(order)


def _bounds(lengths: np.ndarray) -> list[int]:
    """Where each group of sorted lengths begins, and the end of the last."""
    if not len(lengths):
        return []
    bounds = [0]
    for index, length in enumerate(lengths):
        first = lengths[bounds[-1]]
        if max(first, length) > _LONGEST_TO_SHORTEST * min(first, length):
            bounds.append(index)
    return [*bounds, len(lengths)]


def _group(lengths: np.ndarray, device: torch.device, window: int | None) -> _Group:
    sequences, longest, tokens = len(lengths), int(lengths.max()), int(lengths.sum())
    positions, last = np.arange(longest), lengths[:, None] - 1
    if sequences * longest == tokens:
        near = _near(positions[None], longest, window)
        return _Group(
            sequences=sequences,
            length=longest,
            tokens=tokens,
            seen=None if near is None else _tensor(near[:, None], device),
        )
    starts = (np.cumsum(lengths) - lengths)[:, None]
    real = positions <= last
    # A query at padding looks from where its token stands: a query that sees no key at all would give NaN.
    own = np.minimum(positions, last)
    near = _near(own, longest, window)
    seen = real[:, None, :] if near is None else real[:, None, :] & near
    return _Group(
        sequences=sequences,
        length=longest,
        tokens=tokens,
        to_block=_tensor((starts + own).reshape(-1), device),
        to_packed=_tensor(np.flatnonzero(real), device),
        seen=_tensor(seen[:, None], device),
    )


def _near(queries: np.ndarray, length: int, window: int | None) -> np.ndarray | None:
    """Bool ``[sequences, queries, length]``: which keys the window of each query shows; None: all.

    :param queries: ``[sequences, queries]``, where in its sequence each stands.
    """
    if window is None or length <= window + 1:
        return None
    keys, queries = np.arange(length), queries[:, :, None]
    near: np.ndarray = (keys >= queries - window) & (keys <= queries + window)
    return near


def _tensor(array: np.ndarray, device: torch.device) -> torch.Tensor:
    import torch

    return torch.from_numpy(array).to(device)


# --- CUDA: kernels that know where sequences end ----------------------------------------------------------------------

_AMPERE = (8, 0)
_LARGEST_HEAD = 256


@functools.cache
def _varlen_kernel() -> Callable[..., Any] | None:
    """``varlen_attn``; None in a torch that doesn't have it."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return varlen_attn


def _varlen_kernel_takes(query: torch.Tensor, window: int | None) -> bool:
    """Whether the flash kernel behind ``varlen_attn`` computes this shape, dtype and window on this GPU."""
    import torch

    head_size = query.shape[-1]
    return (
        query.dtype in (torch.float16, torch.bfloat16)
        and head_size % 8 == 0
        and head_size <= _LARGEST_HEAD
        and _varlen_kernel() is not None
        and (window is None or _varlen_kernel_has_windows())
        and torch.cuda.get_device_capability(query.device) >= _AMPERE
    )


def _varlen(inputs: Inputs, batch: Batch, *, causal: bool, window: int | None, scale: float | None) -> torch.Tensor:
    """Flash attention over the packed tokens: half precision, and without dropout, which ``varlen_attn`` lacks."""
    kernel = _varlen_kernel()
    if kernel is None:
        raise RuntimeError("this torch has no varlen_attn; packed_attention takes another path with it")
    query, key, value = inputs
    if scale is not None:
        # The kernel's own argument for it is younger than the kernel.
        query = query * (scale * query.shape[-1] ** 0.5)
    bounds, longest = batch.cu_seqlens, batch.max_seqlen
    hidden = _varlen_window(causal=causal, window=window)
    output: torch.Tensor = kernel(query, key, value, bounds, bounds, longest, longest, **hidden)
    return output


def _varlen_window(*, causal: bool, window: int | None) -> dict[str, Any]:
    """The argument that hides later or distant tokens; the kernel's first versions know ``is_causal`` alone."""
    if window is not None:
        return {"window_size": (window, window)}
    if not causal:
        return {}
    return {"window_size": (-1, 0)} if _varlen_kernel_has_windows() else {"is_causal": True}


def _varlen_kernel_has_windows() -> bool:
    kernel = _varlen_kernel()
    return kernel is not None and "window_size" in inspect.signature(kernel).parameters


def _nested(inputs: Inputs, batch: Batch, *, causal: bool, dropout_p: float, scale: float | None) -> torch.Tensor:
    """Attention over jagged nested tensors: on CUDA a kernel without ``[T, T]`` for any dtype, with dropout."""
    import torch

    # Without known lengths torch would copy the offsets to the host in each layer.
    shortest, longest = min(batch.lengths, default=0), batch.max_seqlen
    query, key, value = (
        torch.nested.nested_tensor_from_jagged(
            tensor, batch.cu_seqlens, min_seqlen=shortest, max_seqlen=longest
        ).transpose(1, 2)
        for tensor in inputs
    )
    output = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=causal, dropout_p=dropout_p, scale=scale
    )
    return output.transpose(1, 2).values()
