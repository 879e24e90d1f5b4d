"""Evaluation of windows: the ranks it takes, and rounding where terms cancel."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from graphgen.passes.core.relation import EQUAL
from graphgen.passes.validate.rewrite_window import WindowCut
from graphgen.passes.validate.window_check import WindowEvaluator
from graphgen.text import parse

TEXT = """\
module @m level=target mesh=tp:4 {
  input %x : f32[2]
  output %y : f32[2]
}

func @f phase=main {
  arg %rank : s32[1]
  arg %x : f32[2]
  %a = negate(%x) : f32[2]
  %b = all_reduce(%a) kind=add replica_groups=[[0,1,2,3]] : f32[2]
  %c = tanh(%b) : f32[2]
  return y = %c
}
"""


@pytest.mark.parametrize(
    ("ops", "boundary", "ranks"),
    [
        (["negate"], ["x"], 1),
        (["tanh"], ["b"], 1),
        (["all_reduce"], ["a"], 4),
        (["negate", "all_reduce"], ["x"], 4),
        # What a rank computes with its own number takes all of them.
        (["negate"], ["x", "rank"], 4),
    ],
)
def test_ranks_that_speak_or_differ_are_all_evaluated(
    ops: list[str], boundary: list[str], ranks: int
):
    module = parse(TEXT)
    function = module.function("f")
    values = {value.name: value for op in function.ops for value in op.results}
    values |= {value.name: value for value in function.args}
    cut = SimpleNamespace(
        ops=[op for op in function.ops if op.name in ops],
        boundary=[values[name] for name in boundary],
        pairs=((values["c"], values["c"], EQUAL),),
    )
    assert WindowEvaluator(module, 0.0).ranks(cast(WindowCut, cut)) == ranks


# A sum that is scaled as a whole or term by term, elementwise: the same on all processors.
SCALED = """\
module @m level=target {
  input %x : f32[64]
  output %y : f32[64]
}

func @f phase=main {
  arg %a : f32[64]
  arg %b : f32[64]
  arg %c : f32[64]
  %scale = constant() value=f32[](0.35355338) : f32[]
  %s = broadcast_in_dim(%scale) shape=[64] : f32[64]
  %far = constant() value=f32[](OFFSET) : f32[]
  %o = broadcast_in_dim(%far) shape=[64] : f32[64]
  %ab = add(%a, %b) : f32[64]
  %abc = add(%ab, %c) : f32[64]
  %y = multiply(%abc, %s) : f32[64]
  %as = multiply(%a, %s) : f32[64]
  %bs = multiply(%b, %s) : f32[64]
  %cs = multiply(%c, %s) : f32[64]
  %up = add(%as, %o) : f32[64]
  %down = subtract(%up, %o) : f32[64]
  %sum = add(%down, %bs) : f32[64]
  %z = add(%sum, %cs) : f32[64]
  return before.0 = %y
  return after.0 = %z
}
"""


@pytest.mark.parametrize(("offset", "alike"), [("0.0", True), ("4096.0", False)])
def test_terms_that_cancel_in_one_element_are_rounding(offset: str, *, alike: bool):
    module = parse(SCALED.replace("OFFSET", offset))
    window = module.function("f")
    y, z = [value for _, value in window.outputs]
    cut = SimpleNamespace(
        ops=window.ops, pairs=((y, z, EQUAL),), unpadded=(), unshared=lambda: window.ops
    )
    numbers = np.random.default_rng(0)
    a, b, c = numbers.uniform(0.5, 1.0, (3, 64)).astype(np.float32)
    # Terms of 6,000 cancel in two elements, whose size many others have that add small ones; the
    # largest element is far above both.
    a[::32] *= np.float32(8000)
    b[::32] = np.float32(1.2) - a[::32]
    c[1] = 200
    given = [{"a": a, "b": b, "c": c}]
    found = WindowEvaluator(module, 1e-5).failure(cast(WindowCut, cut), window, {}, given)
    assert (found is None) == alike
