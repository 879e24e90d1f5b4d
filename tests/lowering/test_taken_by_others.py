"""What is written of a program that was read, jaxlib reads: protobuf, HLO text and StableHLO."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphgen.lowering.cpu import pjrt
from graphgen.lowering.mlir.generic_form import generic_text
from tests.graphgen.cli.conftest import done, error, facts
from tests.oracles import xla_hlo

CALL_AND_BRANCH = """HloModule m
%neg (t: f32[4]) -> f32[4] {
  %t = f32[4] parameter(0)
  ROOT %r = f32[4] negate(%t)
}
%pos (t.1: f32[4]) -> f32[4] {
  %t.1 = f32[4] parameter(0)
  ROOT %r.1 = f32[4] add(%t.1, %t.1)
}
ENTRY %main (x: f32[4], p: pred[]) -> f32[4] {
  %x = f32[4] parameter(0)
  %p = pred[] parameter(1)
  %c = f32[4] call(%x), to_apply=%neg
  %d = f32[4] conditional(%p, %x, %c), true_computation=%neg, false_computation=%pos
  ROOT %s = f32[4] add(%c, %d)
}
"""
CALL_AND_FUSION = """HloModule m
%body (t: f32[4]) -> f32[4] {
  %t = f32[4] parameter(0)
  ROOT %r = f32[4] negate(%t)
}
ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4] parameter(0)
  %c = f32[4] call(%x), to_apply=%body
  %f = f32[4] fusion(%c), kind=kLoop, calls=%body
  ROOT %s = f32[4] add(%c, %f)
}
"""
MAP_AND_REDUCE = """HloModule m
%two (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  %c = f32[] multiply(%a, %b)
  ROOT %d = f32[] add(%c, %a)
}
ENTRY %main (x: f32[4], i: f32[]) -> f32[] {
  %x = f32[4] parameter(0)
  %i = f32[] parameter(1)
  %m = f32[4] map(%x, %x), dimensions={0}, to_apply=%two
  ROOT %r = f32[] reduce(%m, %i), dimensions={0}, to_apply=%two
}
"""
LOOP_AND_BRANCH = """HloModule m
%body (s: (s32[], f32[4])) -> (s32[], f32[4]) {
  %s = (s32[], f32[4]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[4] get-tuple-element(%s), index=1
  %one = s32[] constant(1)
  %n = s32[] add(%i, %one)
  %y = f32[4] negate(%x)
  ROOT %t = (s32[], f32[4]) tuple(%n, %y)
}
%cond (c: (s32[], f32[4])) -> pred[] {
  %c = (s32[], f32[4]) parameter(0)
  %j = s32[] get-tuple-element(%c), index=0
  %two = s32[] constant(3)
  ROOT %l = pred[] compare(%j, %two), direction=LT
}
ENTRY %main (k: s32[], x.1: f32[4], p: pred[]) -> f32[4] {
  %k = s32[] parameter(0)
  %x.1 = f32[4] parameter(1)
  %p = pred[] parameter(2)
  %s.1 = (s32[], f32[4]) tuple(%k, %x.1)
  %w = (s32[], f32[4]) while(%s.1), condition=%cond, body=%body
  %b = (s32[], f32[4]) conditional(%p, %w, %s.1), true_computation=%body, false_computation=%body
  ROOT %g = f32[4] get-tuple-element(%b), index=1
}
"""
CONTROL = """HloModule m
ENTRY %main (p0: f32[4], p1: f32[4]) -> f32[4] {
  %p0 = f32[4] parameter(0)
  %a = f32[4] negate(%p0)
  %b = f32[4] abs(%p0), control-predecessors={%a}
  %p1 = f32[4] parameter(1), control-predecessors={%a, %b}
  ROOT %s = f32[4] add(%b, %p1), control-predecessors={%p1, %a}
}
"""
NAME_OF_ENTRY = CALL_AND_FUSION.replace("%body", "%main.1").replace("HloModule m", "HloModule main")
TEXTS = {
    "call and branch": CALL_AND_BRANCH,
    "call and fusion": CALL_AND_FUSION,
    "map and reduce": MAP_AND_REDUCE,
    "loop and branch": LOOP_AND_BRANCH,
    "control": CONTROL,
    "name": NAME_OF_ENTRY,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_every_form_is_taken(tmp_path: Path, text: str):
    source, proto = tmp_path / "s.hlo", tmp_path / "m.pb"
    shown, mlir = tmp_path / "m.hlo", tmp_path / "m.mlir"
    source.write_text(text)
    xla_hlo.from_text(text)
    forms = [("hlo", proto), ("hlo-text", shown), ("stablehlo", mlir)]
    if text is CONTROL:
        # StableHLO has no words for the order of ops.
        forms.pop()
    for form, path in forms:
        done("lower", source, "--to", form, "-o", path)
        assert facts("equiv", source, path)["equal"] is True
    pjrt.stablehlo_of(proto.read_bytes())
    xla_hlo.from_text(shown.read_text())
    if mlir.exists():
        generic_text(mlir.read_text(), "m.mlir")


MAP = """func.func @main(%x: tensor<4x2xf32>) -> tensor<4x2xf32> {
  %0 = "stablehlo.map"(%x) <{dimensions = array<i64: 0, 1>}> ({
  ^bb0(%a: tensor<f32>):
    %1 = stablehlo.negate %a : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<4x2xf32>) -> tensor<4x2xf32>
  return %0 : tensor<4x2xf32>
}
"""


def test_a_map_of_stablehlo_is_written_with_each_key_once(tmp_path: Path):
    source, mlir = tmp_path / "s.mlir", tmp_path / "m.mlir"
    source.write_text(MAP)
    done("lower", source, "--to", "stablehlo", "-o", mlir)
    assert mlir.read_text().count("dimensions = ") == 1
    generic_text(mlir.read_text(), "m.mlir")
    source.write_text(MAP.replace("0, 1>", "0>"))
    assert "map over [0] of 2 dimensions" in error("inspect", source)
