"""Changes that a comparison of texts has to show, also of what prepares weights and states."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from graphgen.report.diff import diff_modules
from graphgen.text import parse
from tests.planted.faults import (
    Judgement,
    Row,
    assert_blamed,
    assert_right,
    name_of,
)


@dataclass(frozen=True, slots=True)
class Changed:
    """A module and a copy in which a text is replaced.

    Attributes:
        name: of the row.
        old, new: the text and its replacement.
        shown: what the differences have to mention.
        report: a public report.
    """

    name: str
    old: str
    new: str
    shown: str
    report: str = ""

    def judge(self, *, right: bool = False) -> Judgement:
        """Compare the module with the copy; the right twin has other names only."""
        other = renamed() if right else TEXT.replace(self.old, self.new)
        assert other != TEXT
        found = diff_modules(parse(TEXT), parse(other))
        changes = [
            change.what for item in (*found.programs, *found.prepared) for change in item.changes
        ]
        said = "; ".join([*found.module, *changes])
        return Judgement(not found.same, self.shown in said, said or "ok")


TEXT = """\
module @m level=target {
  weight %w : f32[4,4]
  weight %v : f32[8,4]
  param %w.prepared : f32[4,4]
  param %v.rank : f32[4,4]
  input %x : f32[2,4]
  state %s : f32[4] pack=@s.pack unpack=@s.unpack
  output %y : f32[2,4]
}

func @weights.global {
  arg %w : f32[4,4]
  %0 = transpose(%w) permutation=[1,0] : f32[4,4]
  return w.prepared = %0
}

func @weights.rank {
  arg %v : f32[8,4]
  arg %rank : s32[1]
  %0 = slice(%v) start_indices=[0,0] limit_indices=[4,4] : f32[4,4]
  return v.rank = %0
}

func @s.pack {
  arg %s : f32[4]
  arg %rank : s32[1]
  %0 = negate(%s) : f32[4]
  return s = %0
}

func @s.unpack {
  arg %s : f32[1,4]
  %0 = negate(%s) : f32[1,4]
  %1 = reshape(%0) shape=[4] : f32[4]
  return s = %1
}

func @main phase=main {
  arg %x : f32[2,4]
  arg %w.prepared : f32[4,4]
  arg %v.rank : f32[4,4]
  arg %s : f32[4]
  %c = constant() value=f32[](0.5) : f32[]
  %h = broadcast_in_dim(%c) shape=[4,4] : f32[4,4]
  %u = multiply(%v.rank, %h) : f32[4,4]
  %p = add(%w.prepared, %u) : f32[4,4]
  %r = reduce(%p) dimensions=[0] kind=add : f32[4]
  %b = broadcast_in_dim(%r) shape=[2,4] dimensions=[1] : f32[2,4]
  %y = multiply(%x, %b) : f32[2,4]
  return y = %y
  return s = %s
}
"""


def renamed() -> str:
    """The text with other names of values."""
    return re.sub(r"%([01chupb])\b", r"%named.\1", TEXT)


FAULTS: tuple[Row, ...] = (
    Changed("weights-not-transposed", "permutation=[1,0]", "permutation=[0,1]", "transpose"),
    Changed(
        "rows-of-the-next-rank",
        "start_indices=[0,0] limit_indices=[4,4]",
        "start_indices=[4,0] limit_indices=[8,4]",
        "slice",
    ),
    Changed(
        "packed-otherwise", "%0 = negate(%s) : f32[4]", "%0 = abs(%s) : f32[4]", "negate / abs"
    ),
    Changed(
        "unpacked-otherwise",
        "%0 = negate(%s) : f32[1,4]",
        "%0 = abs(%s) : f32[1,4]",
        "negate / abs",
    ),
    Changed("another-constant", "f32[](0.5)", "f32[](0.25)", "0.25"),
    Changed("another-sum", "kind=add", "kind=maximum", "kind"),
    Changed("another-weight-type", "weight %v : f32[8,4]", "weight %v : f32[12,4]", "weight v"),
)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_fault_is_found_and_its_rewrite_blamed(fault: Row):
    assert_blamed(fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_the_same_done_right_is_ok(fault: Row):
    assert_right(fault)
