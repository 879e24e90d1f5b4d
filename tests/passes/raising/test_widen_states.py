"""States of programs for fewer slots become the leading part of the largest."""

from __future__ import annotations

import numpy as np
import pytest

import graphgen as gg
from graphgen.errors import GraphgenError
from graphgen.passes.raising.merge_programs import join


def program(slots: int, rows: int = 2) -> gg.Module:
    """Adds a number to each slot of a state, and gives the sum of what it held."""
    return gg.parse(
        f"""\
module @m level=logical {{
  input %x : f32[{rows}]
  state %cache : f32[{rows},{slots}]
  output %total : f32[{rows}]
}}

func @main phase=main {{
  arg %x : f32[{rows}]
  arg %cache : f32[{rows},{slots}]
  %0 = broadcast_in_dim(%x) shape=[{rows},{slots}] dimensions=[0] : f32[{rows},{slots}]
  %1 = add(%cache, %0) : f32[{rows},{slots}]
  %2 = reduce(%cache) dimensions=[1] kind=add : f32[{rows}]
  return total = %2
  return cache = %1
}}
"""
    )


def test_a_shorter_state_is_the_leading_part():
    module = join([("prefill", program(3)), ("decode", program(5))])
    assert module.interface["cache"].logical.text == "f32[2,5]"
    cache = np.arange(10, dtype=np.float32).reshape(2, 5)
    given = {"x": np.array([10.0, 20.0], np.float32), "cache": cache}
    short = module.evaluate(given, program="prefill")
    np.testing.assert_array_equal(short["total"], cache[:, :3].sum(1))
    np.testing.assert_array_equal(
        np.asarray(short["cache"])[:, :3], cache[:, :3] + given["x"][:, None]
    )
    np.testing.assert_array_equal(np.asarray(short["cache"])[:, 3:], cache[:, 3:])
    long = module.evaluate(given, program="decode")
    np.testing.assert_array_equal(long["cache"], cache + given["x"][:, None])


def test_states_that_differ_in_two_sizes_are_refused():
    with pytest.raises(GraphgenError) as caught:
        join([("prefill", program(3)), ("decode", program(5, rows=4))])
    assert caught.value.code == "GG0205"
