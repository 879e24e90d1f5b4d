"""Rounding budgets of single rewrites and layers: more where they round to 8 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import ml_dtypes
import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.exec.session import ProgramCall, Workload
from graphgen.ir import Module
from graphgen.ir.dtype import f32, s8
from graphgen.passes.core import Pass, Rewriter
from graphgen.passes.core.relation import Chain, Quantized, Relation, Take
from graphgen.passes.pipelines import default
from graphgen.passes.validate.rewrite_checker import check_rewrites
from graphgen.passes.validate.rewrite_verdict import RewriteStatus
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse as parse_text
from tests.passes.layerwise.test_validate_layers import BUCKETS, check, four_layers


def program(last: str, *before: str) -> Module:
    """Squares of bf16 numbers in a type; one factor is converted to other types before."""
    steps, value = list[str](), "%x"
    for place, name in enumerate(before):
        steps.append(f"%n{place} = convert({value}) dtype={name} : {name}[64]")
        steps.append(f"%w{place} = convert(%n{place}) dtype=bf16 : bf16[64]")
        value = f"%w{place}"
    lines = "\n  ".join([*steps, f"%s = multiply({value}, %x) : bf16[64]"])
    return parse_text(f"""\
module @m level=logical {{
  input %x : bf16[64]
  output %y : {last}[64]
}}

func @f phase=main {{
  arg %x : bf16[64]
  {lines}
  %y = convert(%s) dtype={last} : {last}[64]
  return y = %y
}}
""")


@dataclass(frozen=True)
class Wider(Pass):
    """Squares in f32 what is converted to the last type."""

    name: ClassVar[str] = "wider"
    exact: bool = False

    @property
    def budget(self) -> float:
        """Far less than the rounding to bf16 takes away."""
        return 0.0 if self.exact else 1e-6

    def run(self, module: Module, rewriter: Rewriter) -> None:
        if rewriter.exhausted:
            return
        function = module.function("f")
        made = function.outputs.get("y")
        assert made is not None
        assert made.op is not None
        square = made.op.operands[0].op
        assert square is not None
        b = rewriter.before(function, made.op)
        wide = b.multiply(*[b.convert(value, f32) for value in square.operands])
        rewriter.replace(function, made.op, [b.convert(wide, made.dtype)])


def is_right(item: Pass, last: str, *before: str) -> bool:
    x = np.ones(64, ml_dtypes.bfloat16)
    calls = Workload({}, (ProgramCall("main", {}, {"x": x}),))
    found = check_rewrites(program(last, *before), item, calls)
    assert len(found.having(RewriteStatus.WRONG)) + found.right == found.total == 1
    return found.right == 1


@pytest.mark.parametrize("name", ["f8e4m3", "f8e5m2", "f8e4m3fn"])
def test_a_step_of_narrow_numbers_is_no_fault_of_a_rewrite_that_rounds(name: str):
    assert is_right(Wider(), name)
    assert not is_right(Wider(exact=True), name)


@pytest.mark.parametrize("types", [(), ("f8e4m3",), ("f8e5m2", "bf16")])
def test_a_rewrite_behind_narrow_numbers_has_its_own_budget(types: tuple[str, ...]):
    assert not is_right(Wider(), "f32", *types)


def test_layers_with_narrow_caches_have_the_budget_of_their_type():
    config = CompileConfig(
        batch=BUCKETS.batch, context=BUCKETS.context, tokens=BUCKETS.tokens, kv_cache_quant=True
    )
    passes = default(config)
    found, _ = check(four_layers("bf16"), passes)
    assert [verdict.pass_text for verdict in found if not verdict.ok] == []
    narrow = [item.name for item in passes].index("quantize-cache")
    for place, (item, verdict) in enumerate(zip(passes, found, strict=True)):
        changed = () if verdict.layers is None else verdict.layers.changed
        behind = place > narrow and item.budget > 0
        for layer in changed:
            more = 0.36 if behind and "layers" in layer.label else 0
            assert layer.budget == pytest.approx(item.budget + more)


PRODUCT = """\
module @m level=logical {
  input %x : f32[2,4]
  weight %w : f32[4,3]
  output %y : f32[2,3]
}

func @f phase=main {
  arg %x : f32[2,4]
  arg %w : f32[4,3]
  %y = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[0] dtype=f32 : f32[2,3]
  return y = %y
}
"""


@dataclass(frozen=True)
class Narrow(Pass):
    """The product with the numbers of a quantized weight, and how these relate to the weight."""

    name: ClassVar[str] = "narrow"
    rounding: ClassVar[float] = 0.1
    relation: Relation

    def run(self, module: Module, rewriter: Rewriter) -> None:
        if rewriter.exhausted:
            return
        function = module.function("f")
        (op,) = function.block
        x, weight = op.operands
        b = rewriter.before(function, op)
        numbers, scale = b.quantize(weight, s8, (0,), 127.0)
        double = b.binary("multiply", scale, 2.0)
        numbers.name, scale.name, double.name = "numbers", "scale", "double"
        product = b.emit("dot_general", (x, b.convert(numbers, f32)), dict(op.attrs)).result
        made = b.multiply(product, b.broadcast_in_dim(scale, product.shape, (1,)))
        related = ((weight, numbers, self.relation),)
        rewriter.replace(function, op, [made], related=related)


@pytest.mark.parametrize(
    ("relation", "status"),
    [
        (Quantized("scale", (1,)), RewriteStatus.EQUAL),
        (Chain((Take(1, (0, 1, 2)), Quantized("scale", (1,)))), RewriteStatus.EQUAL),
        (Quantized("double", (1,)), RewriteStatus.WRONG),
        (Chain((Take(1, (1, 0, 2)), Quantized("scale", (1,)))), RewriteStatus.WRONG),
        (Quantized("scale", (0,)), RewriteStatus.UNDECIDED),
        (Quantized("another", (1,)), RewriteStatus.UNDECIDED),
    ],
    ids=str,
)
def test_numbers_are_compared_with_the_scale_that_their_relation_names(
    relation: Relation, status: RewriteStatus
):
    module = parse_text(PRODUCT)
    found = check_rewrites(module, Narrow(relation), make_workload(module))
    assert found.counts == {status: 1}
    if status is RewriteStatus.UNDECIDED:
        (check,) = found.remarkable
        assert "scale" in check.reason
