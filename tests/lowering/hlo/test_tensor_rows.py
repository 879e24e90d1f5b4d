"""Sorts of HLO: by one comparison of the operands, or by any function."""

from __future__ import annotations

import numpy as np

from graphgen.lowering.hlo import read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text

SORTED = """HloModule m
before {{
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  {body}
}}
ENTRY e {{
  x = f32[5] parameter(0)
  ROOT y = f32[5] sort(x), dimensions={{0}}, is_stable=true, to_apply=before
}}
"""


def sorted_by(body: str) -> tuple[str, list[float]]:
    """The op that is read, and what it makes of some numbers."""
    module = read_hlo(parse_hlo_text(SORTED.format(body=body)))
    (program,) = module.programs()
    op = next(op for op in program.block if op.name.startswith("sort"))
    x = np.array([-3, 1, 2, -0.5, -1], np.float32)
    (found,) = module.evaluate({program.args[0].name or "": x}).values()
    return op.name, np.asarray(found).tolist()


def test_one_comparison_is_a_sort():
    body = "ROOT c = pred[] compare(p, q), direction=GT, type=TOTALORDER"
    assert sorted_by(body) == ("sort", [2, 1, -0.5, -1, -3])


def test_another_function_is_applied():
    body = "a = f32[] abs(p)\n  b = f32[] abs(q)\n  ROOT c = pred[] compare(a, b), direction=LT"
    assert sorted_by(body) == ("sort_by", [-0.5, 1, -1, 2, -3])
