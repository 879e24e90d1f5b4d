"""HLO that has no op here is written again as HLO; StableHLO has a form for it, or names it."""

from __future__ import annotations

import pytest

from graphgen.errors import GraphgenError
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo
from tests.oracles import xla_hlo

APPLIED = """%c (p: f32[2]) -> f32[2] {
  %p = f32[2] parameter(0)
  ROOT %n = f32[2] negate(%p)
}
"""
ADDED = """%c (p: f32[], q: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  ROOT %n = f32[] add(%p, %q)
}
"""
X = "%x = f32[2] parameter(0)\n"
# Instruction: computations, the body, and the opcode that StableHLO has no form of.
CASES = {
    "infeed": (
        "",
        "%t = token[] after-all()\n%i = ((f32[2], s32[]), token[]) infeed(%t)\n"
        "%a = (f32[2], s32[]) get-tuple-element(%i), index=0\n"
        "ROOT %y = f32[2] get-tuple-element(%a), index=0",
        "infeed",
    ),
    "outfeed": (
        "",
        f"{X}%t = token[] after-all()\n%o = token[] outfeed(%x, %t), outfeed_shape=f32[2]{{0}}\n"
        "ROOT %y = f32[2] negate(%x)",
        "outfeed",
    ),
    "high half of a product": (
        "",
        "%x = s32[4] parameter(0)\nROOT %y = s32[4] multiply-high(%x, %x)",
        "multiply-high",
    ),
    "products of groups": (
        "",
        "%x = f32[10,6] parameter(0)\n%w = f32[3,6,4] parameter(1)\n%g = s32[3] parameter(2)\n"
        "ROOT %y = f32[10,4] ragged-dot(%x, %w, %g), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}",
        "ragged-dot",
    ),
    "a call that ends later": (
        APPLIED,
        f"{X}%s = ((f32[2]), f32[2], s32[]) call-start(%x), to_apply=%c\n"
        "ROOT %y = f32[2] call-done(%s)",
        "async-start",
    ),
    "a sum that ends later": (
        ADDED,
        f"{X}%s = f32[2] all-reduce-start(%x), replica_groups={{{{0,1}}}}, to_apply=%c\n"
        "ROOT %y = f32[2] all-reduce-done(%s)",
        "all-reduce-start",
    ),
    "a copy for a group": (
        "",
        f"{X}ROOT %y = f32[2] collective-broadcast(%x), replica_groups={{{{0,1}}}}, channel_id=1",
        "",
    ),
    "a size": (
        "",
        "%x = f32[4] parameter(0)\n%n = s32[] parameter(1)\n"
        "ROOT %y = f32[<=4] set-dimension-size(%x, %n), dimensions={0}",
        "",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_written_or_named(case: str):
    computations, body, opcode = CASES[case]
    module = read_hlo(parse_hlo_text(f"HloModule m\n\n{computations}ENTRY %main {{\n{body}\n}}\n"))
    (program,) = module.programs()
    written = emit_hlo(module, program)
    assert len(read_hlo(written).programs()) == 1
    if opcode != "multiply-high":
        # An opcode of newer versions than jaxlib's.
        assert xla_hlo.instructions(written)
    if not opcode:
        text = emit_stablehlo(module, program)
        assert len(read_stablehlo(text, "again.mlir").programs()) == 1
        return
    with pytest.raises(GraphgenError, match=f"{opcode} has no StableHLO form") as caught:
        emit_stablehlo(module, program)
    assert caught.value.code == "GG0401"
    assert "HLO" in caught.value.help
