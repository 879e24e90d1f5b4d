"""The dimensions that count heads, followed from the cache through moves of elements."""

from __future__ import annotations

import pytest

from graphgen.build import Builder
from graphgen.ir import Function, Value, dtype, tensor
from graphgen.passes.raising.attention_dims import head_dims


def cache(b: Builder, function: Function) -> Value:
    """A cache [rows, slots, heads, features] with new entries."""
    f32, s32 = dtype("f32"), dtype("s32")
    state = function.block.add_arg(tensor(f32, (2, 8, 3, 4)), "cache")
    new = function.block.add_arg(tensor(f32, (2, 1, 3, 4)), "new")
    rows = function.block.add_arg(tensor(s32, (2,)), "seq_ids")
    return b.kv_update(state, new, rows, function.block.add_arg(tensor(s32, (2, 1)), "positions"))


def test_heads_are_the_third_dimension_of_a_cache():
    function = Function("f")
    b = Builder(function)
    found = cache(b, function)
    assert head_dims(found) == {2}
    assert head_dims(b.transpose(found, (0, 2, 1, 3))) == {1}


@pytest.mark.parametrize("name", ["cache", "new"])
def test_arguments_do_not_tell(name: str):
    function = Function("f")
    cache(Builder(function), function)
    value = function.arg(name)
    assert value is not None
    assert head_dims(value) is None
