"""How many ranks it takes to evaluate a window."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

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
