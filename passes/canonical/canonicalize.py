"""Canonicalization: the one form each idea has, so that later passes need one pattern each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphgen.build import Builder
from graphgen.ir import Module, Op, Value
from graphgen.passes.core import NoMatch, Pass, Rewriter, no_match, register, rule


@rule("reshape", "convert", "transpose", "broadcast_in_dim", "slice", "pad")
def identity(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """An op that gives back its operand."""
    operand = op.operands[0]
    if operand.type is not op.result.type:
        return no_match("the type changes", operand)
    if op.name == "transpose" and op.attrs.integers("permutation") != tuple(
        range(operand.type.rank)
    ):
        return no_match("the permutation moves dimensions", operand, depth=2)
    if op.name == "broadcast_in_dim" and op.attrs.integers("dimensions") != tuple(
        range(operand.type.rank)
    ):
        return no_match("the dimensions are reordered", operand, depth=3)
    if op.name == "slice" and any(op.attrs.dims("start_indices")):
        return no_match("the slice starts inside", operand, depth=4)
    return [operand]


@rule("reshape")
def reshape_of_reshape(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``reshape(reshape(x))`` is one reshape."""
    inner = op.operands[0].producer("reshape")
    if inner is None:
        return no_match("the operand is not a reshape", op.operands[0])
    return [b.reshape(inner.operands[0], op.result.shape)]


@rule("transpose")
def transpose_of_transpose(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``transpose(transpose(x))`` is one transpose."""
    inner = op.operands[0].producer("transpose")
    if inner is None:
        return no_match("the operand is not a transpose", op.operands[0])
    first = inner.attrs.integers("permutation")
    return [b.transpose(inner.operands[0], [first[i] for i in op.attrs.integers("permutation")])]


@rule("concatenate")
def concatenate_of_one(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A concatenation of one value is that value."""
    if len(op.operands) != 1:
        return no_match(f"it joins {len(op.operands)} values")
    return [op.operands[0]]


@rule("concatenate")
def concatenate_of_empty(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """Operands without elements are left out of a concatenation."""
    dim = op.attrs.integer("dimension")
    kept = [value for value in op.operands if value.shape[dim] != 0]
    if not kept or len(kept) == len(op.operands):
        return no_match("every operand has elements, or none")
    return [b.concatenate(kept, dim)]


@rule("add", "multiply", "maximum", "minimum", "and")
def constant_on_the_right(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``c + x`` is written ``x + c``."""
    lhs, rhs = op.operands
    if not _constant(lhs):
        return no_match("the left operand is not constant", lhs)
    if _constant(rhs):
        return no_match("both operands are constant", rhs, depth=2)
    return [b.op(op.name, rhs, lhs)]


def _constant(value: Value) -> bool:
    if value.producer("constant"):
        return True
    spread = value.producer("broadcast_in_dim")
    return spread is not None and spread.operands[0].producer("constant") is not None


RULES = (
    identity,
    reshape_of_reshape,
    transpose_of_transpose,
    concatenate_of_one,
    concatenate_of_empty,
    constant_on_the_right,
)


@register
@dataclass(frozen=True)
class Canonicalize(Pass):
    """Drop ops that change nothing, merge chains of reshapes and transposes, order operands.

    Given:
        module @m level=logical {
        }

        func @f {
          arg %x : f32[2,6]
          %c = constant() value=f32[](2.0) : f32[]
          %k = broadcast_in_dim(%c) shape=[12] : f32[12]
          %a = reshape(%x) shape=[3,4] : f32[3,4]
          %b = reshape(%a) shape=[12] : f32[12]
          %y = multiply(%k, %b) : f32[12]
          return y = %y
        }

    Result:
        module @m level=canonical {
        }

        func @f {
          arg %x : f32[2,6]
          %c = constant() value=f32[](2.0) : f32[]
          %k = broadcast_in_dim(%c) shape=[12] : f32[12]
          %a = reshape(%x) shape=[3,4] : f32[3,4]
          %b = reshape(%x) shape=[12] : f32[12]
          %y = multiply(%b, %k) : f32[12]
          return y = %y
        }
    """

    name: ClassVar[str] = "canonicalize"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    output_stage: ClassVar[str] = "canonical"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Apply the rules to every function until none fires."""
        for function in module.functions.values():
            rewriter.apply_rules(function, RULES)
