"""Preparation as copies: what layout ops do to boxes is what NumPy does to arrays."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphgen.eval import Array, evaluate_output, rank_index
from graphgen.runtime.weights import copy_plan
from graphgen.runtime.weights.copy_plan import (
    CopyPlan,
    NotACopyError,
    concatenate,
    constant,
    convert,
    from_array,
    reshape,
    slice_box,
    take_blocks,
    transpose,
)
from graphgen.runtime.weights.copy_planner import plan_output
from graphgen.runtime.weights.huge_pages import ALIGNMENT, arrays_in_one
from graphgen.text import parse

Step = Callable[[CopyPlan, Array], tuple[CopyPlan, Array]]


def draw_step(data: st.DataObject, shape: tuple[int, ...]) -> Step:
    """One layout op with its options, for a tensor of this shape."""
    kind = data.draw(st.sampled_from(["cut", "join", "permute", "reshape", "take"]))
    rank = len(shape)
    if kind == "cut":
        starts = [data.draw(st.integers(0, size - 1)) for size in shape]
        sizes = [data.draw(st.integers(1, n - a)) for a, n in zip(starts, shape, strict=True)]
        box = tuple(slice(a, a + n) for a, n in zip(starts, sizes, strict=True))
        return lambda pieces, array: (slice_box(pieces, starts, sizes), array[box])
    if kind == "join":
        dim = data.draw(st.integers(0, rank - 1))
        return lambda p, a: (concatenate([p, p], dim), np.concatenate([a, a], dim))
    if kind == "permute":
        order = data.draw(st.permutations(range(rank)))
        return lambda p, a: (transpose(p, order), a.transpose(order))
    if kind == "take":
        dim = data.draw(st.integers(0, rank - 1))
        block = data.draw(st.sampled_from([n for n in (1, 2, 3) if shape[dim] % n == 0]))
        count = shape[dim] // block
        indices = data.draw(st.lists(st.integers(-1, count - 1), min_size=1, max_size=4))
        return lambda p, a: (take_blocks(p, dim, block, indices), taken(a, dim, block, indices))
    new = data.draw(st.sampled_from(shapes_of(prod(shape))))
    return lambda p, a: (reshape(p, new), a.reshape(new))


def taken(array: Array, dim: int, block: int, indices: list[int]) -> Array:
    def at(index: int) -> Array:
        wanted = np.arange(index * block, (index + 1) * block)
        return np.take(array, wanted, dim) if index >= 0 else 0 * np.take(array, range(block), dim)

    return np.concatenate([at(index) for index in indices], dim)


def shapes_of(size: int) -> list[tuple[int, ...]]:
    two = [(a, size // a) for a in range(1, size + 1) if size % a == 0]
    three = [(a, b, size // a // b) for a, _ in two for b in (1, 2, 3) if size % (a * b) == 0]
    return [(size,), *two, *three]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=3), st.data())
def test_boxes_follow_numpy(sizes: list[int], data: st.DataObject):
    array = np.arange(1, prod(sizes) + 1, dtype=np.int32).reshape(sizes)
    pieces = from_array(array)
    for _ in range(data.draw(st.integers(1, 5))):
        step = draw_step(data, pieces.shape)
        try:
            pieces, array = step(pieces, array)
        except NotACopyError:
            # Then NumPy does it; the result is a tensor of one box again.
            return
        assert pieces.shape == array.shape
        np.testing.assert_array_equal(pieces.array(), array)
        target = np.full(array.shape, -7, np.int32)
        pieces.fill(target)
        np.testing.assert_array_equal(target, array)
        if array.size > 500:
            return


def test_no_byte_moves_until_the_end():
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    half = slice_box(reshape(transpose(from_array(array), [1, 0]), (2, 3, 4)), [0, 0, 2], [2, 3, 2])
    assert all(np.shares_memory(part.source, array) for part in half.boxes)
    assert np.shares_memory(half.array(), array)


@pytest.mark.parametrize("block", [4, 8, 24, 40, 1 << 20])
def test_parts_are_seen_once_each_when_they_are_there(block: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(copy_plan, "_BLOCK", block)
    array = np.arange(1, 61, dtype=np.float32).reshape(3, 4, 5)
    turned = concatenate(
        [transpose(from_array(array), [2, 0, 1]), constant(-1, (5, 3, 2), array.dtype)], 2
    )
    target = np.zeros((5, 3, 6), np.float32)
    seen: list[Array] = []
    turned.fill(target, lambda part: seen.append(part.copy()))
    wanted = np.concatenate([array.transpose(2, 0, 1), np.full((5, 3, 2), -1, np.float32)], 2)
    np.testing.assert_array_equal(target, wanted)
    together = np.concatenate([part.reshape(-1) for part in seen])
    np.testing.assert_array_equal(np.sort(together), np.sort(wanted.reshape(-1)))
    assert max(part.nbytes for part in seen) <= block


def test_a_type_is_changed_by_the_copy_and_only_once():
    array = np.array([1.00390625, 3.0], np.float32)
    narrow = convert(from_array(array), np.dtype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(narrow.array(), array.astype(ml_dtypes.bfloat16))
    with pytest.raises(NotACopyError):
        convert(narrow, np.dtype(np.float32))


def test_a_box_with_a_hole_is_no_box():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    with pytest.raises(NotACopyError):
        reshape(
            slice_box(concatenate([from_array(array), from_array(array)], 1), [0, 2], [3, 4]), (12,)
        )


RANKED = """module @m level=sharded mesh=tp:2 {
  weight %w : f32[4,6]
  weight %v : f32[2,6]
}

func @weights.rank {
  arg %w : f32[4,6]
  arg %v : f32[2,6]
  arg %rank : s32[1]
  %r = reshape(%rank) shape=[] : s32[]
  %two = constant() value=s32[](2) : s32[]
  %zero = constant() value=s32[](0) : s32[]
  %at = multiply(%r, %two) : s32[]
  %part = dynamic_slice(%w, %at, %zero) slice_sizes=[2,6] : f32[2,6]
  %one = dynamic_slice(%v, %r, %zero) slice_sizes=[1,6] : f32[1,6]
  %both = concatenate(%part, %one) dimension=0 : f32[3,6]
  %turned = transpose(%both) permutation=[1,0] : f32[6,3]
  %twice = add(%both, %both) : f32[3,6]
  return turned = %turned
  return twice = %twice
}
"""


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("output", ["turned", "twice"])
def test_a_weight_program_is_read_as_copies(rank: int, output: str):
    function = parse(RANKED).function("weights.rank")
    given_ = {
        "w": np.arange(24, dtype=np.float32).reshape(4, 6),
        "v": 100 + np.arange(12, dtype=np.float32).reshape(2, 6),
    }
    made = plan_output(function, output, rank, lambda name: from_array(given_[name]))
    oracle = evaluate_output(function, output, {**given_, "rank": rank_index(rank)})
    np.testing.assert_array_equal(made.array(), oracle)
    if output == "turned":
        assert isinstance(made, CopyPlan)
        # Two boxes, both still in the tensors they come from: no other rank's bytes are touched.
        assert [part.source.shape for part in made.boxes] == [(6, 2), (6, 1)]
        assert np.shares_memory(made.boxes[0].source, given_["w"][2 * rank : 2 * rank + 2])


def test_memory_is_aligned():
    shapes = [((3,), np.dtype(np.float32)), ((5, 7), np.dtype(np.int8)), ((0,), np.dtype("f8"))]
    for array, (shape, dtype) in zip(arrays_in_one(shapes), shapes, strict=True):
        assert (array.shape, array.dtype) == (shape, dtype)
        assert array.ctypes.data % ALIGNMENT == 0


def test_floats_become_integers_as_the_op_says():
    # Beyond the range its nearest end; a copy between the types would wrap around.
    module = parse(
        "module @m level=canonical {\n}\n\nfunc @weights.global {\n  arg %w : f32[4]\n"
        "  %q = convert(%w) dtype=s8 : s8[4]\n  return q = %q\n}\n"
    )
    given = np.array([-200.0, -1.5, 1.5, 128.0], np.float32)
    made = plan_output(module.function("weights.global"), "q", 0, lambda _: from_array(given))
    assert made.array().tolist() == [-128, -1, 1, 127]


def test_a_single_number_is_filled_in():
    number = np.empty((), np.float32)
    from_array(np.asarray(2.5, np.float32)).fill(number)
    assert number == 2.5
