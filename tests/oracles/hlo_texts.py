"""Small modules in HLO text that several tests read."""

from __future__ import annotations

# The sum over two ranks, and the negative of what each has.
SUM = """
HloModule sum
%plus (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}
ENTRY %main (x: f32[3]) -> (f32[3], f32[3]) {
  %x = f32[3] parameter(0)
  %s = f32[3] all-reduce(%x), replica_groups={{0,1}}, to_apply=%plus
  %n = f32[3] negate(%x)
  ROOT %t = (f32[3], f32[3]) tuple(%s, %n)
}
"""
