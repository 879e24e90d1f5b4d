"""Sums over ranks in a narrower type: half of the bytes over the links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphgen.build import Builder
from graphgen.config.fields import option, words
from graphgen.config.option_words import DTYPES
from graphgen.ir import DType, Function, Module, Op, Role, Value, dtype
from graphgen.ir.dtype import f16
from graphgen.ops import OPS
from graphgen.ops.control import CONTROL
from graphgen.passes.core import NoMatch, Pass, Rewriter, Rule, no_match, register, rule

SUMS = ("all_reduce", "reduce_scatter")
# Ops whose result has the numbers of the first operand.
_SAME_NUMBERS = frozenset(("convert", "reshape", "transpose", "slice", "dynamic_slice", "pad"))


def has_no_scale_yet(x: Value) -> bool:
    """True for a product with numbers of 8 bits that is scaled after the sum over ranks."""
    product = _numbers_of(x)[-1]
    if product.op is None or product.op.name != "dot_general":
        return False
    return any(value.dtype.bits == 8 for value in _numbers_of(product.op.operands[1]))


def _numbers_of(x: Value) -> list[Value]:
    """``x``, and before it the values that it has the numbers of."""
    found = [x]
    while x.op is not None and x.op.name in _SAME_NUMBERS:
        x = x.op.operands[0]
        found.append(x)
    return found


def scale_before_sums(module: Module, function: Function, rewriter: Rewriter) -> None:
    """Multiply by scales before sums of 8-bit products over ranks, where the ops allow it."""
    rewriter.apply_rules(function, (_scale_before(module, function),))
    for op in list(function.block):
        # Collectives are not left to a later pass.
        if op.name in SUMS and not op.result.users and op.result not in _given(function):
            rewriter.erase(function, op)


def _given(function: Function) -> set[Value]:
    return {value for _, value in function.outputs}


def _scale_before(module: Module, function: Function) -> Rule:
    @rule("multiply")
    def scale_before_sum(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """``sum(x) * scale`` over ranks is ``sum(x * scale)``, of one scale for all ranks."""
        made = [value.op for value in op.operands if value.op is not None and value.op.name in SUMS]
        if len(made) != 1 or not has_no_scale_yet(made[0].operands[0]):
            return no_match("it scales no sum of 8-bit products", op.operands[0])
        spread = movable_scale(module, function, made[0])
        if spread is None:
            return no_match("the sum is read otherwise, or ranks have scales", op.result, depth=2)
        (x,) = made[0].operands
        places = spread.attrs.integers("dimensions")
        scale = b.broadcast_in_dim(spread.operands[0], x.shape, places)
        return [b.emit(made[0].name, (b.multiply(x, scale),), dict(made[0].attrs)).result]

    return scale_before_sum


def movable_scale(module: Module, function: Function, total: Op) -> Op | None:
    """The op that spreads the scale of a sum, where the addends can be scaled instead.

    Args:
        module: whose weights the scale comes from.
        function: has the sum.
        total: the sum over ranks; a product of it and the scale has to be its only use.
    """
    users = list(total.result.users)
    if len(users) != 1 or users[0].name != "multiply" or total.attrs.text("kind") != "add":
        return None
    if total.result in _given(function):
        return None
    others = [value for value in users[0].operands if value is not total.result]
    spread = others[0].producer("broadcast_in_dim") if others else None
    if spread is None or not _same_on_ranks(module, spread.operands[0]):
        return None
    scattered = total.attrs.integer("dimension") if total.name == "reduce_scatter" else -1
    return None if scattered in spread.attrs.integers("dimensions") else spread


def _same_on_ranks(module: Module, value: Value) -> bool:
    """True for what every rank computes alike, from whole weights and constants."""
    work, seen = [value], set[Value]()
    while work:
        value = work.pop()
        if value in seen:
            continue
        seen.add(value)
        if value.op is None:
            row = module.interface.get(value.name or "")
            if row is None or row.role is not Role.WEIGHT or row.physical is not row.logical:
                return False
        elif OPS[value.op.name].collective or value.op.name in CONTROL:
            return False
        else:
            work.extend(value.op.operands)
    return True


_PRODUCTS = ("dot_general", "experts")
# Ops that a partial sum of products may go through before it is summed over ranks.
_PASSED_ON = frozenset((
    *("convert", "multiply", "divide", "add", "subtract", "negate", "select"),
    *("reshape", "transpose", "slice", "concatenate", "pad"),
))  # fmt: skip
_OVERFLOWS = "products of 8-bit weights without their scale overflow f16"


@register
@dataclass(frozen=True)
class ReduceDtype(Pass):
    """All-reduce row-parallel sums in ``dtype``: NxD Inference's ``rpl_reduce_dtype``.

    Each rank rounds what it has of the sum, and the sum is widened again. Only sums of products
    are: those of a table that ranks divide have one addend that is not zero, and shares of
    probabilities are added up to be compared. f16 ends at 65504: products with 8-bit weights are
    scaled before their sum, not after it, and stay as wide as they are where that cannot be done.

    Options:
        dtype: of the sums; those that are as narrow already stay.

    Given:
        module @m level=sharded mesh=tp:2 {
        }

        func @f {
          arg %rank : s32[1]
          arg %h : bf16[1,3]
          arg %w : bf16[4,3]
          %0 = dot_general(%h, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[1,4]
          %y = all_reduce(%0) kind=add replica_groups=[[0,1]] : f32[1,4]
          return y = %y
        }

    Result (``reduce-dtype{dtype=bf16}``):
        module @m level=sharded mesh=tp:2 {
        }

        func @f {
          arg %rank : s32[1]
          arg %h : bf16[1,3]
          arg %w : bf16[4,3]
          %0 = dot_general(%h, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[1,4]
          %1 = convert(%0) dtype=bf16 : bf16[1,4]
          %2 = all_reduce(%1) kind=add replica_groups=[[0,1]] : bf16[1,4]
          %y = convert(%2) dtype=f32 : f32[1,4]
          return y = %y
        }
    """

    name: ClassVar[str] = "reduce-dtype"
    finite_math_only: ClassVar[bool] = True
    input_stages: ClassVar[tuple[str, ...]] = ("sharded",)
    # An addend of bf16 is off by 2**-8 of itself at most; 0.0103 was measured over two layers.
    rounding: ClassVar[float] = 5e-2
    dtype: str = option(words(*DTYPES), "f32")

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Every sum of every function."""
        element = dtype(self.dtype)
        for function in module.functions.values():
            if element is f16:
                scale_before_sums(module, function, rewriter)
            rewriter.apply_rules(function, (_narrow_sum(function, element),))


def _narrow_sum(function: Function, element: DType) -> Rule:
    of_products = _of_products(function)

    @rule(*SUMS)
    def narrow_sum(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """``sum(x)`` over ranks is ``wide(sum(narrow(x)))``."""
        why = _why_not(op, element, of_products)
        if why is not None:
            return why
        made = b.emit(op.name, (b.convert(op.operands[0], element),), dict(op.attrs)).result
        return [b.convert(made, op.result.dtype)]

    return narrow_sum


def narrowed_sums(module: Module, function: Function, element: DType) -> Iterator[Op]:
    """The sums over ranks that the pass narrows to ``element``."""
    of_products = _of_products(function)
    for op in function.block:
        if op.name not in SUMS:
            continue
        why = _why_not(op, element, of_products)
        if why is None or (why.reason == _OVERFLOWS and movable_scale(module, function, op)):
            yield op


def _why_not(op: Op, element: DType, of_products: set[Value]) -> NoMatch | None:
    (x,) = op.operands
    if not x.dtype.is_float or x.dtype.bits <= element.bits:
        return no_match(f"its addends are {x.dtype}, no wider than {element}", x)
    if op.attrs.text("kind") != "add":
        return no_match("it is not a sum", x, depth=2)
    if x not in of_products:
        return no_match("its addends are not sums of products", x, depth=3)
    if element is f16 and has_no_scale_yet(x):
        return no_match(_OVERFLOWS, x, depth=4)
    return None


def _of_products(function: Function) -> set[Value]:
    """Values that are products, or follow from some by what partial sums go through."""
    found: set[Value] = set()
    for op in function.block:
        if op.name in _PRODUCTS or (op.name in _PASSED_ON and not found.isdisjoint(op.operands)):
            found.update(op.results)
    return found
