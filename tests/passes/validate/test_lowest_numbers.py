"""Numbers that stand for none: infinities before a quantization, and the lowest ones of masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from graphgen.ir import Module, dtype
from graphgen.ir.dtype import f32, lowest
from graphgen.passes.core import Pass, Rewriter, parse_pipeline
from graphgen.passes.validate.rewrite_checker import check_rewrites
from graphgen.passes.validate.rewrite_verdict import RewriteStatus
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse as parse_text

BYTES = """\
module @m level=sharded {
  input %x : u8[5,8]
  weight %q : s8[6,8]
  output %y : f32[5,6]
}

func @f phase=main {
  arg %x : u8[5,8]
  arg %q : s8[6,8]
  %n = bitcast_convert(%x) dtype=f8e4m3 : f8e4m3[5,8]
  %c = convert(%n) dtype=bf16 : bf16[5,8]
  %w = reshape(%c) shape=[5,8] : bf16[5,8]
  %p = convert(%q) dtype=bf16 : bf16[6,8]
  %y = dot_general(%w, %p) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : f32[5,6]
  return y = %y
}
"""
PART = """\
module @m level=sharded {
  input %q : bf16[2,3,2,4]
  input %k : bf16[2,5,2,4]
  input %v : bf16[2,5,2,4]
  input %m : pred[2,3,5]
  output %a : f32[2,3,2]
  output %b : f32[2,3,2]
  output %c : f32[2,3,2,4]
}

func @f phase=main {
  arg %q : bf16[2,3,2,4]
  arg %k : bf16[2,5,2,4]
  arg %v : bf16[2,5,2,4]
  arg %m : pred[2,3,5]
  %a, %b, %c = attention_part(%q, %k, %v, %m) scale=0.5 : f32[2,3,2], f32[2,3,2], f32[2,3,2,4]
  return a = %a
  return b = %b
  return c = %c
}
"""
MASKED = """\
module @m level=logical {
  input %x : f32[4,6]
  input %m : pred[4,6]
  output %y : f32[4]
}

func @f phase=main {
  arg %x : f32[4,6]
  arg %m : pred[4,6]
  %l = constant() value=f32[](-3.4028234663852886e+38) : f32[]
  %w = broadcast_in_dim(%l) shape=[4,6] : f32[4,6]
  %s = select(%m, %x, %w) : f32[4,6]
  %y = reduce(%s) dimensions=[1] kind=maximum : f32[4]
  return y = %y
}
"""


def statuses(text: str, item: Pass) -> set[RewriteStatus]:
    module = parse_text(text)
    return set(check_rewrites(module, item, make_workload(module)).counts)


def test_infinite_bytes_are_quantized_to_any_numbers_that_are_not_finite():
    """A row with an infinity has no scale: its products were infinite, and are NaN."""
    (item,) = parse_pipeline("quantize-activations{native=[s8]}")
    assert statuses(BYTES, item) == {RewriteStatus.EQUAL}


@pytest.mark.parametrize("name", ["bf16", "f16"])
def test_the_largest_score_of_no_slot_is_the_lowest_number_of_its_type(name: str):
    (item,) = parse_pipeline(f"softmax-dtype{{dtype={name}}}")
    assert statuses(PART, item) == {RewriteStatus.EQUAL}


@dataclass(frozen=True)
class Mask(Pass):
    """The largest score, where masked ones are the lowest number of a type.

    Options:
        scores: type that the scores are rounded to.
        masks: the type.
        within: budget of the pass.
    """

    name: ClassVar[str] = "mask"
    scores: str = "f32"
    masks: str = "f32"
    within: float = 0.05

    @property
    def budget(self) -> float:
        """Of the scores' type, or less."""
        return self.within

    def run(self, module: Module, rewriter: Rewriter) -> None:
        if rewriter.exhausted:
            return
        function = module.function("f")
        (largest,) = (op for op in function.block if op.name == "reduce")
        chosen = largest.operands[0].producer("select")
        assert chosen is not None
        b = rewriter.before(function, largest)
        narrow = b.convert(chosen.operands[1], dtype(self.scores))
        low = b.full(float(lowest(dtype(self.masks))), narrow.type)
        scores = b.select(chosen.operands[0], narrow, low)
        rewriter.replace(function, largest, [b.convert(b.reduce(scores, [1], "maximum"), f32)])


def test_masks_of_a_narrower_type_are_those_of_its_scores():
    assert statuses(MASKED, Mask("bf16", "bf16")) == {RewriteStatus.EQUAL}


@pytest.mark.parametrize(
    "item",
    [Mask("f32", "f16"), Mask("f32", "bf16"), Mask("bf16", "f16"), Mask("bf16", "bf16", 1e-6)],
    ids=lambda item: f"{item.masks} in {item.scores} within {item.within}",
)
def test_a_number_that_scores_may_exceed_is_no_mask(item: Mask):
    assert statuses(MASKED, item) == {RewriteStatus.WRONG}
