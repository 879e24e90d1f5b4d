"""Values that differ from rank to rank."""

from __future__ import annotations

from graphgen.passes.layerwise.layer_segments import varying_values
from graphgen.text import parse

PROGRAM = """\
module @m level=sharded mesh=tp:2 {
  input %x : f32[2]
  output %y : f32[2]
}

func @f phase=main {
  arg %rank : s32[1]
  arg %x : f32[2]
  %number = convert(%rank) dtype=f32 : f32[1]
  %wide = broadcast_in_dim(%number) shape=[2] dimensions=[0] : f32[2]
  %same = negate(%x) : f32[2]
  %part = multiply(%same, %wide) : f32[2]
  %sum = all_reduce(%part) replica_groups=[[0,1]] kind=add : f32[2]
  %alone = all_reduce(%part) replica_groups=[[0],[1]] kind=add : f32[2]
  %y = add(%sum, %same) : f32[2]
  return y = %y
}
"""


def test_what_depends_on_the_rank_differs_until_all_ranks_have_it():
    module = parse(PROGRAM)
    found = {value.name for value in varying_values(module, module.function("f"))}
    assert found == {"rank", "number", "wide", "part", "alone"}
