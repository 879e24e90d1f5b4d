"""Values that windows are compared on: edges of types and uses, and windows that are closed."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.eval import Array
from graphgen.ir import Function, Op, dtype, tensor
from graphgen.passes.core.relation import EQUAL
from graphgen.passes.validate.edge_values import Words, edges_of, integer_edges, placed_draws
from graphgen.passes.validate.intervals import every_number
from graphgen.passes.validate.line_check import line_of, lined
from graphgen.passes.validate.rewrite_window import WindowCut
from graphgen.text import parse


def function(*lines: str, **args: str) -> Function:
    """A function of arguments whose last line makes ``%y``."""
    rows = "\n  ".join(f"arg %{name} : {text}" for name, text in args.items())
    inputs = "\n  ".join(f"input %{name} : {text}" for name, text in args.items())
    text = "\n  ".join(lines)
    made = lines[-1].rpartition(" : ")[2]
    module = parse(f"""
module @m level=target mesh=tp:2 {{
  {inputs}
  output %y : {made}
}}

func @f phase=main {{
  {rows}
  {text}
  return y = %y
}}
""")
    return module.function("f")


def cut_of(op: Op, *others: Op) -> WindowCut:
    """The window of an op, with other ops as its other side."""
    pairs = tuple((op.result, other.result, EQUAL) for other in others or (op,))
    cut = WindowCut(pairs, {}, {op, *others})
    cut.settle()
    return cut


def names(cut: WindowCut) -> list[str]:
    return [value.name or "" for value in cut.boundary]


def test_a_value_that_is_computed_from_another_is_not_drawn():
    made = function(
        "%a = exponential(%x) : f32[4]",
        "%b = tanh(%x) : f32[4]",
        "%c = multiply(%a, %x) : f32[4]",
        "%y = add(%c, %b) : f32[4]",
        x="f32[4]",
    )
    a, b, c, y = made.block
    cut = cut_of(c)
    assert names(cut) == ["a", "x"]
    assert cut.close()
    assert names(cut) == ["x"]
    # Neither of these is computed from the other.
    other = cut_of(y)
    assert not other.close()
    assert names(other) == ["c", "b"]
    assert (a in cut.ops, b in cut.ops) == (True, False)


def test_a_value_of_constants_and_the_rank_is_not_drawn():
    made = function(
        "%n = constant() value=s32[](2) : s32[]",
        "%r = reshape(%rank) shape=[] : s32[]",
        "%i = multiply(%r, %n) : s32[]",
        "%j = multiply(%k, %n) : s32[]",
        "%a = dynamic_slice(%x, %i) slice_sizes=[2] : s32[2]",
        "%y = dynamic_slice(%x, %j) slice_sizes=[2] : s32[2]",
        rank="s32[1]",
        k="s32[]",
        x="s32[4]",
    )
    first, second = list(made.block)[-2:]
    cut = cut_of(first)
    assert cut.close()
    assert names(cut) == ["x", "rank"]
    other = cut_of(second)
    assert not other.close()
    assert names(other) == ["x", "j"]


def test_integers_that_choose_elements_of_floats_are_computed():
    made = function(
        "%n = constant() value=s32[](2) : s32[]",
        "%j = multiply(%k, %n) : s32[]",
        "%y = dynamic_slice(%x, %j) slice_sizes=[2] : f32[2]",
        k="s32[]",
        x="f32[4]",
    )
    cut = cut_of(list(made.block)[-1])
    assert cut.close()
    assert names(cut) == ["x", "k"]


@pytest.mark.parametrize("kind", ["s8", "u8"])
def test_8_bits_are_tried_exhaustively(kind: str):
    made = function(f"%y = add(%x, %z) : {kind}[4]", x=f"{kind}[4]", z=f"{kind}[4]")
    edges: dict[str, Array] = {
        name: edges_of(tensor(dtype(kind), (4,)), Words((), ()), every_number(dtype(kind)))
        for name in ("x", "z")
    }
    line = line_of(made, edges, 0)
    assert len({*zip(line["x"].tolist(), line["z"].tolist(), strict=True)}) == 1 << 16
    assert lined(made, 1 << 16) is not None


def test_edges_are_ends_powers_of_two_and_words_of_the_program():
    found = set(integer_edges(dtype("s32"), [300]))
    assert {0, 1, -1, 299, 300, 301, -300, 2**31 - 1, -(2**31), 127, 128, 65535, -65537} <= found
    floats = edges_of(tensor(dtype("f32"), (4,)), Words((), (20.0,)), every_number(dtype("f32")))
    wide = floats.astype(np.float64)
    root = np.sqrt(np.finfo(np.float32).max)
    assert {0.0, 20.0, np.inf, -np.inf, float(np.finfo(np.float32).max)} <= set(wide.tolist())
    assert np.isnan(wide).any()
    assert np.signbit(wide[wide == 0]).any()
    assert ((wide > root) & (wide < 2 * root)).any()
    assert ((wide > 0) & (wide < np.finfo(np.float32).tiny)).any()


def test_ends_of_an_index_are_placed_beside_others_that_fit():
    made = function(
        "%y = kv_update(%c, %x, %r, %p) : f32[3,9,2,4]",
        c="f32[3,9,2,4]",
        x="f32[2,3,2,4]",
        r="s32[2]",
        p="s32[2,3]",
    )
    words = Words.of(made)
    every = every_number(dtype("s32"))
    indices = [value for value in made.args if value.name in ("r", "p")]
    edges = {value.name or "": edges_of(value.type, words, every) for value in indices}
    ordinary = {v.name or "": np.zeros(v.type.dims, np.int32) for v in made.args}
    placed: set[tuple[int, bool]] = set()
    for (given,) in placed_draws(made, edges, [[ordinary]], {"r": 3, "p": 9}, 0):
        fits = (given["r"] >= 0) & (given["r"] < 3)
        placed |= {(int(p), bool(fits[row])) for row, line in enumerate(given["p"]) for p in line}
    assert {(p, True) for p in (-1, 0, 8, 9)} <= placed
