"""Bounds of HLO instructions: operations and bytes at the rates of a device."""

from __future__ import annotations

import pytest

from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.open import Source, open_source
from graphgen.lowering.profiles.op_bounds import InstructionBound, Rates, instruction_bounds
from graphgen.lowering.profiles.recording import DeviceRates
from graphgen.targets import accelerator

HLO = """HloModule m, is_scheduled=true

fused {
  p = f32[64,64] parameter(0)
  i = s32[] parameter(1)
  z = s32[] constant(0)
  s = f32[1,64] dynamic-slice(p, i, z), dynamic_slice_sizes={1,64}
  ROOT t = f32[1,64] tanh(s)
}
body {
  c = (s32[], f32[1,64]) parameter(0)
  j = s32[] get-tuple-element(c), index=0
  x = f32[1,64] get-tuple-element(c), index=1
  one = s32[] constant(1)
  k = s32[] add(j, one)
  n = f32[1,64] negate(x)
  ROOT r = (s32[], f32[1,64]) tuple(k, n)
}
condition {
  c.1 = (s32[], f32[1,64]) parameter(0)
  j.1 = s32[] get-tuple-element(c.1), index=0
  m = s32[] constant(5)
  ROOT l = pred[] compare(j.1, m), direction=LT
}
ENTRY main {
  a = f32[64,64] parameter(0)
  b = s32[] parameter(1)
  d = f32[64,64] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
metadata={op_name="jit(f)/dot" source_file="f.py" source_line=3}
  e = f32[64,64] copy(d)
  f = f32[1,64] fusion(e, b), kind=kLoop, calls=fused
  u = (s32[], f32[1,64]) tuple(b, f)
  w = (s32[], f32[1,64]) while(u), condition=condition, body=body
  ROOT g = f32[1,64] get-tuple-element(w), index=1
}
"""
RATES = DeviceRates(1e9, 1e8, "test")


def bounds(rates: Rates | None = RATES) -> dict[str, InstructionBound]:
    data = parse_hlo_text(HLO)
    return instruction_bounds(open_source(Source("m", data)), data, rates)


def test_a_product_counts_its_operations_and_operands():
    found = bounds()["d"]
    assert (found.opcode, found.layer, found.line) == ("dot", "jit(f)/dot", "f.py:3")
    assert found.flops == 2 * 64**3
    # An operand that is read twice is counted twice.
    assert found.bytes == 3 * 64 * 64 * 4
    assert found.seconds == pytest.approx(2 * 64**3 / 1e9)
    assert found.by == "compute"


def test_a_fusion_counts_what_crosses_its_border():
    found = bounds()["f"]
    assert (found.opcode, found.flops) == ("fusion", 64)
    # A row is read and written, and an index is read.
    assert found.bytes == 2 * 64 * 4 + 4
    assert found.by == "memory"


def test_a_copy_that_readers_leave_out_moves_its_bytes():
    found = bounds()["e"]
    assert (found.opcode, found.bytes) == ("copy", 2 * 64 * 64 * 4)
    assert found.seconds == pytest.approx(found.bytes / 1e8)


def test_a_loop_takes_nothing_itself_and_its_body_has_bounds():
    found = bounds()
    assert (found["w"].opcode, found["w"].seconds, found["w"].by) == ("while", 0.0, "")
    assert found["n"].bytes == 2 * 64 * 4


def test_without_rates_there_are_counts_only():
    found = bounds(None)["d"]
    assert (found.flops, found.seconds, found.by) == (2 * 64**3, None, "")


def test_an_accelerator_has_rates_of_its_own():
    device = accelerator("trn2")
    found = bounds(device)
    assert found["d"].seconds == pytest.approx(
        max(2 * 64**3 / device.flops["f32"], found["d"].bytes / device.hbm_bandwidth)
    )
    assert found["n"].seconds == pytest.approx(
        max(64 / device.vector_flops, 512 / device.hbm_bandwidth)
    )
