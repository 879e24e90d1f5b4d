"""Reductions of HLO: by a named op, from another start, and by any function."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.eval import evaluate
from graphgen.ir import Module
from graphgen.lowering.hlo import read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text

X = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
TEXT = """
HloModule m
%f (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  {inner}
}}
ENTRY %main (x: f32[2,3]) -> {result} {{
  %x = f32[2,3] parameter(0)
  %start = f32[] constant({start})
  ROOT %y = {result} reduce(%x, %start), dimensions={dimensions}, to_apply=%f
}}
"""
ADD, MULTIPLY = "ROOT %s = f32[] add(%a, %b)", "ROOT %s = f32[] multiply(%a, %b)"
MAXIMUM = "ROOT %s = f32[] maximum(%a, %b)"
# a + b + a * b, which is (1 + a) * (1 + b) - 1.
OTHER = "%p = f32[] multiply(%a, %b)\n  %q = f32[] add(%a, %b)\n  ROOT %s = f32[] add(%p, %q)"


def read(inner: str, start: str, dimensions: str, result: str) -> Module:
    text = TEXT.format(inner=inner, start=start, dimensions=dimensions, result=result)
    return read_hlo(parse_hlo_text(text))


@pytest.mark.parametrize(
    ("inner", "start", "names", "wanted"),
    [
        (ADD, "0", ["reduce"], [6, 15]),
        (ADD, "2", ["reduce", "add"], [8, 17]),
        (MULTIPLY, "1", ["reduce"], [6, 120]),
        (MULTIPLY, "0.5", ["reduce", "multiply"], [3, 60]),
        (MAXIMUM, "-inf", ["reduce"], [3, 6]),
        (MAXIMUM, "5", ["reduce", "maximum"], [5, 6]),
        (OTHER, "0", ["reduce_by"], [2 * 3 * 4 - 1, 5 * 6 * 7 - 1]),
        (OTHER, "1", ["reduce_by"], [2 * 2 * 3 * 4 - 1, 2 * 5 * 6 * 7 - 1]),
    ],
)
def test_reductions_along_rows(inner: str, start: str, names: list[str], wanted: list[float]):
    module = read(inner, start, "{1}", "f32[2]")
    (function,) = module.programs()
    moving = ("constant", "broadcast_in_dim")
    assert [op.name for op in function.ops if op.name not in moving] == names
    found = evaluate(function, {"x": X}, module=module)
    np.testing.assert_allclose(next(iter(found.values())), wanted)


def test_reductions_of_everything():
    (function,) = read(ADD, "1", "{0,1}", "f32[]").programs()
    np.testing.assert_allclose(next(iter(evaluate(function, {"x": X}).values())), 22)
