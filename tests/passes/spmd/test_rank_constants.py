"""What a slice reads on each rank follows from the rank and from constants."""

from __future__ import annotations

import pytest

from graphgen.passes.spmd.rank_constants import RankNumbers
from graphgen.text import parse

TEXT = """\
module @m level=sharded mesh=tp:4 {{
}}

func @f {{
  arg %rank : s32[1]
  arg %x : f32[{whole},6]
  arg %at : s32[]
  %zero = constant() value=s32[](0) : s32[]
  %table = constant() value=s32[4]({starts}) : s32[4]
  %number = reshape(%rank) shape=[] : s32[]
  %one = dynamic_slice(%table, %number) slice_sizes=[1] : s32[1]
  %start = reshape(%one) shape=[] : s32[]
  %y = dynamic_slice(%x, %{name}, %zero) slice_sizes=[4,{width}] : f32[4,{width}]
  return y = %y
}}
"""
ALL, PAIRS, CROSSED = ((0, 1, 2, 3),), ((0, 1), (2, 3)), ((0, 2), (3, 1))


def why(
    starts: str,
    groups: tuple[tuple[int, ...], ...] = ALL,
    *,
    whole: int = 16,
    width: int = 6,
    name: str = "start",
) -> str:
    text = TEXT.format(starts=starts, whole=whole, width=width, name=name)
    function = parse(text).function("f")
    (cut,) = (op for op in function.block if op.results[0].name == "y")
    return RankNumbers(function, 4).why_not_own(cut, groups, 0)


@pytest.mark.parametrize(
    ("starts", "groups", "whole"),
    [("0,4,8,12", ALL, 16), ("0,4,0,4", PAIRS, 8), ("0,4,4,0", CROSSED, 8)],
)
def test_a_rank_takes_its_own_part(starts: str, groups: tuple[tuple[int, ...], ...], whole: int):
    assert why(starts, groups, whole=whole) == ""


@pytest.mark.parametrize(("starts", "rank"), [("0,8,4,12", 1), ("0,4,8,11", 3), ("1,4,8,12", 0)])
def test_the_rank_that_takes_another_part_is_named(starts: str, rank: int):
    assert why(starts) == f"rank {rank} takes another part than its own"


def test_other_slices_are_no_part_of_a_rank():
    starts = "0,4,8,12"
    assert why(starts, width=5) == "another dimension is cut as well"
    size = "the slice is of another size than the part of a rank"
    assert why(starts, whole=20) == size
    assert why(starts, PAIRS) == size
    assert why(starts, name="at") == "where the slice begins is not known"
