"""A decomposition takes what the verifier of its op accepts, sizes that are symbols included."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.composites import DECOMPOSITIONS, decompose
from graphgen.composites.drawing import draw, prefix_sums
from graphgen.errors import GraphgenError
from graphgen.ir import Dim, Function, dtype, symbol
from graphgen.ir.clone import bind_function
from graphgen.ir.types import tensor
from graphgen.text import parse

F, S = dtype("f32"), dtype("s32")
MIXTURE = """\
module @m level=logical {
  input %x : f32[B,S,4]
  input %i : s32[B,S,2]
  input %w : f32[B,S,2]
  weight %gate : f32[3,6,4]
  weight %up : f32[3,6,4]
  weight %down : f32[3,4,6]
  output %y : f32[B,S,4]
}

func @f phase=main {
  arg %x : f32[B,S,4]
  arg %i : s32[B,S,2]
  arg %w : f32[B,S,2]
  arg %gate : f32[3,6,4]
  arg %up : f32[3,6,4]
  arg %down : f32[3,4,6]
  %y = experts(%x, %i, %w, %gate, %up, %down) capacity=2 dtype=f32 : f32[B,S,4]
  return y = %y
}
"""


def test_a_capacity_before_sizes_are_bound():
    (op,) = parse(MIXTURE).function("f").ops
    body = decompose(op, DECOMPOSITIONS["experts"])
    rng = np.random.default_rng(0)
    sizes: dict[str, Dim] = {"B": 2, "S": 3}
    bound = bind_function(body, sizes)
    given = {
        "a0": rng.standard_normal((2, 3, 4)).astype(np.float32),
        "a1": np.array([[[0, 1], [0, 2], [0, 1]], [[1, 0], [2, 0], [1, 2]]], np.int32),
        "a2": np.ones((2, 3, 2), np.float32),
        "a3": rng.standard_normal((3, 6, 4)).astype(np.float32),
        "a4": rng.standard_normal((3, 6, 4)).astype(np.float32),
        "a5": rng.standard_normal((3, 4, 6)).astype(np.float32),
    }
    names = ("x", "i", "w", "gate", "up", "down")
    whole = parse(MIXTURE).function("f").evaluate(dict(zip(names, given.values(), strict=True)))
    np.testing.assert_allclose(
        np.asarray(bound.evaluate(given)["r0"]), np.asarray(whole["y"]), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("size", [1, 5, 300])
@pytest.mark.parametrize("inclusive", [True, False])
def test_prefix_sums_of_a_symbol_are_those_of_a_number(size: int, inclusive: bool):
    function = Function("f")
    x = function.block.add_arg(tensor(F, (2, symbol("N"))), "x")
    with Builder(function) as b:
        function.outputs = [("y", prefix_sums(b, x, inclusive=inclusive))]
    given = np.arange(2 * size, dtype=np.float32).reshape(2, size)
    sums = np.cumsum(given, 1) - (0 if inclusive else given)
    np.testing.assert_array_equal(np.asarray(function.evaluate(x=given)["y"]), sums)


def test_a_draw_of_candidates_without_a_number():
    function = Function("f")
    left = function.block.add_arg(tensor(F, (symbol("B"), symbol("K"))), "left")
    ids = function.block.add_arg(tensor(S, (symbol("B"), symbol("K"))), "ids")
    random = function.block.add_arg(tensor(F, (symbol("B"),)), "random")
    with Builder(function) as b:
        function.outputs = [("token", draw(b, left, ids, random))]
    given = {"left": [[0.5, 0.25, 0.25]], "ids": [[7, 8, 9]], "random": [0.625]}
    assert np.asarray(function.evaluate(given)["token"]).tolist() == [8]


def test_accept_needs_a_number_of_places():
    n, rows = symbol("N"), 2
    shapes = [
        (S, (rows, n - 1)),
        (S, (rows,)),
        (S, (rows, n, 4)),
        (F, (rows, n, 4)),
        (S, (rows, n - 1, 4)),
        (F, (rows, n - 1, 4)),
        (F, (rows, n, 2)),
    ]
    function = Function("f")
    given = [function.block.add_arg(tensor(kind, s), f"a{i}") for i, (kind, s) in enumerate(shapes)]
    with Builder(function) as b, pytest.raises(GraphgenError, match="a number of places") as caught:
        b.emit("accept", given)
    assert caught.value.code == "GG0105"
