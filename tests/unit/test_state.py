"""A part's state comes back from a checkpoint equal to the bit, or is refused in one line."""

from __future__ import annotations

import json
import struct
from collections import Counter, OrderedDict, namedtuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save

from rtx_core.errors import InputError, PluginError
from rtx_core.state import decode, encode

Point = namedtuple("Point", "x y")  # noqa: PYI024 - a test of the untyped kind


def there_and_back(state):
    """What a checkpoint does: strict JSON text and the bytes of a safetensors file."""
    tree, tensors = encode("part", state)
    text = json.dumps(tree, allow_nan=False)
    return decode(json.loads(text), load(save(tensors)))


def same(left, right):
    """Equality of type, order and bits."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and left.shape == right.shape and torch.equal(left, right)
    if isinstance(left, float):
        return left != left or struct.pack("d", left) == struct.pack("d", right)  # noqa: PLR0124 - NaN
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


_tensors = st.lists(st.integers(-100, 100), max_size=4).map(torch.tensor)
_leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | _tensors
_keys = st.text() | st.sampled_from(["$float", "$dict", "$tensor", "a/b", "a~1b", "0"])
_states = st.recursive(
    _leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(_keys, inner, max_size=3)
    ),
    max_leaves=12,
)


@given(_states)
def test_any_state_of_the_allowed_kinds_comes_back_equal(state):
    """Numbers keep type and bits, tuples stay tuples, dicts keep their order, tensors their shape and dtype."""
    assert same(there_and_back(state), state)


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), -float("inf"), -0.0, 5e-324, 0.1, 2**63, -(1 << 20000)],
    ids=lambda value: value.hex() if isinstance(value, float) else f"{value.bit_length()} bits",
)
def test_numbers_that_json_has_no_word_for_keep_their_bits(value):
    """NaN, infinities, the sign of zero, the smallest float and integers of any size survive."""
    assert same(there_and_back({"value": value}), {"value": value})


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.float8_e4m3fn),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint64, torch.bool),
    ],
)
def test_a_scalar_tensor_stays_a_tensor_of_its_dtype(dtype):
    """Adam's step count, a tensor without dimensions, doesn't become a number."""
    step = torch.tensor(1).to(dtype)
    back = there_and_back({"step": step})["step"]
    assert (back.dtype, back.shape) == (dtype, ())
    assert back.view(torch.uint8).tolist() == step.view(torch.uint8).tolist() if dtype.itemsize == 1 else back == step


def test_tensors_are_named_by_their_path_and_not_copied():
    """A flat name is the part's name and the way to the tensor, escaped like a JSON pointer."""
    tensor = torch.zeros(2)
    tree, tensors = encode("ema", {"shadow": [{"a/b": tensor}], "decay": 0.9})
    assert tree == {"shadow": [{"a/b": {"$tensor": "ema/shadow/0/a~1b"}}], "decay": 0.9}
    assert tensors["ema/shadow/0/a~1b"].data_ptr() == tensor.data_ptr()


def test_keys_with_a_slash_never_give_two_tensors_one_name():
    """``{"a/b": …}`` and ``{"a": {"b": …}}`` are different places."""
    state = {"a/b": torch.tensor(1), "a": {"b": torch.tensor(2)}, "a~1b": torch.tensor(3)}
    assert same(there_and_back(state), state)


def test_the_state_of_a_module_is_accepted():
    """A torch module gives an OrderedDict of parameters; it comes back as a dict of tensors."""
    module = torch.nn.Linear(2, 1)
    state = module.state_dict()
    assert type(state) is OrderedDict
    back = there_and_back(state)
    assert type(back) is dict
    assert list(back) == ["weight", "bias"]
    assert torch.equal(back["weight"], module.weight)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (lambda: None, "function"),
        (object(), "object"),
        ({1, 2}, "set"),
        (b"bytes", "bytes"),
        (1j, "complex"),
        (np.float64(1.0), "numpy.float64"),
        (np.zeros(2), "numpy.ndarray"),
        (Counter(a=1), "collections.Counter"),
        (Point(1, 2), f"{__name__}.Point"),
        (torch.Size([1]), "torch.Size"),
        ({0: "a"}, "a dict with a key of type int"),
        (torch.zeros(2, device="meta"), "a meta tensor of torch.float32, which safetensors can't hold"),
        (torch.zeros(2, dtype=torch.complex128), "a strided tensor of torch.complex128, which safetensors can't hold"),
    ],
)
def test_anything_else_is_refused_with_part_path_and_type(value, found):
    """The message is one line that says which part, where in its state, and what stands there."""
    with pytest.raises(PluginError) as caught:
        encode("spike_guard", {"history": [1.0, {"inner": value}]})
    message = str(caught.value)
    assert message.startswith(f"spike_guard: state_dict()['history'][1]['inner'] is {found};")
    assert "\n" not in message


@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_sparse_tensor_is_refused():
    """The file format holds dense tensors only."""
    with pytest.raises(PluginError, match=r"a sparse_coo tensor of torch\.float32"):
        encode("part", {"a": torch.eye(2).to_sparse()})


def test_a_state_that_contains_itself_is_refused():
    """A cycle is one line, not a RecursionError."""
    state: dict = {}
    state["self"] = [state]
    with pytest.raises(PluginError, match=r"^part: state_dict\(\) is nested too deeply, or contains itself$"):
        encode("part", state)


def test_a_tree_of_another_version_is_refused():
    """An unknown tag, or a tensor that is not there, is said and not guessed."""
    with pytest.raises(InputError, match=r'uses "\$set"'):
        decode({"a": {"$set": [1]}}, {})
    with pytest.raises(InputError, match='no tensor "part/a"'):
        decode({"a": {"$tensor": "part/a"}}, {})
