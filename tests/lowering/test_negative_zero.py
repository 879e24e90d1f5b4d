"""Sums start from what their file says: a sum of -0.0 from -0.0 is -0.0, from +0.0 it is +0.0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphgen.eval import evaluate, numpy_dtype
from graphgen.ir import Module, dtype
from graphgen.lowering.cpu.backend import CpuBackend
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo
from tests.graphgen.cli.conftest import done

HLO = """HloModule m
%add (a: KIND[], b: KIND[]) -> KIND[] {
  %a = KIND[] parameter(0)
  %b = KIND[] parameter(1)
  ROOT %c = KIND[] add(%a, %b)
}
ENTRY %main (x: KIND[3], i: KIND[]) -> KIND[] {
  %x = KIND[3] parameter(0)
  %i = KIND[] parameter(1)
  %z = KIND[] constant(START)
  ROOT %s = KIND[] reduce(%x, INIT), dimensions={0}, to_apply=%add
}
"""
MLIR = """func.func @main(%x: tensor<3xKIND>, %i: tensor<KIND>) -> tensor<KIND> {
  %z = stablehlo.constant dense<START> : tensor<KIND>
  %s = stablehlo.reduce(%x init: INIT) applies stablehlo.add across dimensions = [0] : \
(tensor<3xKIND>, tensor<KIND>) -> tensor<KIND>
  return %s : tensor<KIND>
}
"""


def read(text: str, kind: str, start: float, init: str) -> Module:
    complex_ = kind.startswith("c")
    shown = f"({start}, {start})" if complex_ else f"{start}"
    filled = text.replace("START", shown).replace("INIT", init)
    if text is HLO:
        return read_hlo(parse_hlo_text(filled.replace("KIND", kind)), "m.hlo")
    return read_stablehlo(filled.replace("KIND", "complex<f32>" if complex_ else kind))


def signs(x: object) -> list[bool]:
    (value,) = np.atleast_1d(np.asarray(x))
    number = complex(value)
    return [bool(np.signbit(number.real)), bool(np.signbit(number.imag))]


@pytest.mark.parametrize("text", [HLO, MLIR], ids=["hlo", "stablehlo"])
@pytest.mark.parametrize("init", ["%z", "%i"])
@pytest.mark.parametrize("start", [-0.0, 0.0])
@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16", "f8e5m2", "c64"])
def test_a_sum_has_the_sign_of_its_start(text: str, kind: str, start: float, init: str):
    if text is MLIR and kind == "f8e5m2":
        kind, name = "f8E5M2", "f8e5m2"
    else:
        name = kind
    module = read(text, kind, start, init)
    (program,) = module.programs()
    zero = complex(-0.0, -0.0) if kind == "c64" else -0.0
    scalar = complex(start, start) if kind == "c64" else start
    type_ = numpy_dtype(dtype(name))
    given = {"x": np.full(3, zero, type_), "i": np.array(scalar, type_)}
    (made,) = evaluate(program, given, module=module).values()
    negative = bool(np.signbit(start))
    assert signs(made) == ([negative, negative] if kind == "c64" else [negative, False])


@pytest.mark.parametrize("text", [HLO, MLIR], ids=["hlo", "stablehlo"])
@pytest.mark.parametrize("start", [-0.0, 0.0])
def test_so_it_has_after_being_written_and_in_xla(text: str, start: float):
    module = read(text, "f32", start, "%z")
    given = {"x": np.full(3, -0.0, np.float32), "i": np.float32(0)}
    again = read_stablehlo(emit_stablehlo(module, module.programs()[0]))
    proto = read_hlo(emit_hlo(module, module.programs()[0]), "m.pb")
    for each in (again, proto):
        (program,) = each.programs()
        (made,) = evaluate(program, given, module=each).values()
        assert signs(made) == [bool(np.signbit(start)), False]
    (ran,) = CpuBackend()(module, module.programs()[0], [given])
    (made,) = ran.values()
    assert signs(made) == [bool(np.signbit(start)), False]


RANKS = """HloModule r
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}
ENTRY %main (x: f32[2]) -> (f32[2], f32[1]) {
  %x = f32[2] parameter(0)
  %s = f32[2] all-reduce(%x), replica_groups={{0,1}}, to_apply=%add
  %t = f32[1] reduce-scatter(%x), replica_groups={{0,1}}, dimensions={0}, to_apply=%add
  ROOT %r = (f32[2], f32[1]) tuple(%s, %t)
}
"""


def test_sums_over_ranks_have_no_start(tmp_path: Path):
    path, given, saved = tmp_path / "r.hlo", tmp_path / "in.npz", tmp_path / "out.npz"
    path.write_text(RANKS)
    np.savez(given, x=np.full(2, -0.0, np.float32))
    done("run", path, "--inputs", given, "--save", saved, "--on", "numpy")
    with np.load(saved) as made:
        for array in made.values():
            assert np.signbit(array).all()
