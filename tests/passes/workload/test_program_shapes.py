"""Programs of a module as scripts see them, with the sizes and the rows that they state."""

from __future__ import annotations

import pytest

from graphgen.passes.workload.program_shapes import of_sizes, stage_of
from graphgen.text import parse

# Rows of the call are those of the cache in the first program only; whether they are taken to be is
# stated by an attribute, which modules below the canonical level have no more.
TEXT = """\
module @m level={level} {{
  input %seq_ids : s32[B]
  state %cache : f32[R,M,1,2]
  output %y : f32[B,C,1,2]
}}

func @same phase=prefill dims={{B=4,R=4,C=8}} {{
  arg %seq_ids : s32[4]
  arg %cache : f32[4,M,1,2]
  %y = cache_read(%cache, %seq_ids) attended=8 rows={rows} : f32[4,8,1,2]
  return y = %y
  return cache = %cache
}}

func @other phase=decode dims={{B=2,R=4,C=8}} {{
  arg %seq_ids : s32[2]
  arg %cache : f32[4,M,1,2]
  %y = cache_read(%cache, %seq_ids) attended=8 : f32[2,8,1,2]
  return y = %y
  return cache = %cache
}}
"""


@pytest.mark.parametrize(
    ("level", "rows", "given", "later"),
    [
        ("canonical", "in_place", [True, False], [True, False]),
        ("canonical", "any", [False, False], [False, False]),
        # As given, a program with as many rows as the cache may take them to be the same.
        ("target", "in_place", [True, False], [True, False]),
        ("target", "any", [True, False], [False, False]),
    ],
)
def test_rows_are_in_place_where_a_module_says_so_or_may_have_said_so(
    level: str, rows: str, given: list[bool], later: list[bool]
):
    module = parse(TEXT.format(level=level, rows=rows))
    assert [fixed for _, _, fixed in stage_of(module, given=True).programs] == given
    assert [fixed for _, _, fixed in of_sizes(module, {"M": 16}).programs] == given
    assert [fixed for _, _, fixed in stage_of(module).programs] == later


def test_sizes_are_those_that_a_program_leaves_free():
    module = parse(TEXT.format(level="target", rows="any"))
    programs = of_sizes(module, {"M": 16, "C": 32}).programs
    assert [dict(own) for _, own, _ in programs] == [
        {"M": 16, "B": 4, "R": 4, "C": 8},
        {"M": 16, "B": 2, "R": 4, "C": 8},
    ]
    stage = stage_of(module)
    assert stage.has("decode", {"B": 2, "R": 4, "C": 8, "S": 1})
    assert not stage.has("decode", {"B": 4, "R": 4, "C": 8})
    assert not stage.serves("decode", {"B": 4, "R": 4, "C": 8})
    assert stage.serves("verify", {"B": 4})
    assert not stage.has("verify", {"B": 4})
