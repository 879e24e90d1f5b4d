"""Low-rank terms beside slices of one product become a sum beside the whole product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphgen.build import Builder
from graphgen.ir import Function, Module, Op, Value, tensor
from graphgen.ir.dtype import bf16, f16, f32
from graphgen.passes.canonical.slice_algebra import bounds
from graphgen.passes.core import NoMatch, Pass, Rewriter, Rule, register, rule
from graphgen.passes.lora.low_rank_term import LowRankTerm, match_term


@register
@dataclass(frozen=True)
class JoinAdapters(Pass):
    """Add the low-rank terms of ``multi-lora`` before a product is sliced, rounded or gated.

    ``fuse-projections`` makes one product of several, and each slice of it has its own term. Here
    the terms are put side by side, with zeros for a slice without one, and added to the product as
    a whole: kernels take them in there, and slices, roundings and activations follow a product as
    without adapters. A product that was rounded to 16 bits is rounded after the sum. The terms
    have to be of one value and one input of slots.

    Given:
        module @m level=canonical {
          input %x : f32[2,4]
          weight %w : f32[4,4]
          slotted %q.lora_A : f32[3,1,4]
          slotted %q.lora_B : f32[3,2,1]
          input %adapter_ids : s32[2]
          output %y : f32[2,2]
          output %z : f32[2,2]
        }

        func @f phase=decode {
          arg %x : f32[2,4]
          arg %w : f32[4,4]
          arg %q.lora_A : f32[3,1,4]
          arg %q.lora_B : f32[3,2,1]
          arg %adapter_ids : s32[2]
          %0 = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[2,4]
          %1 = slice(%0) start_indices=[0,0] limit_indices=[2,2] : f32[2,2]
          %2 = dot_general(%x, %q.lora_A) lhs_contracting_dims=[1] rhs_contracting_dims=[2] \
dtype=f32 : f32[2,3,1]
          %3 = broadcast_in_dim(%adapter_ids) shape=[2,3] dimensions=[0] : s32[2,3]
          %4 = iota() dtype=s32 shape=[2,3] dimension=1 : s32[2,3]
          %5 = compare(%3, %4) direction=EQ : pred[2,3]
          %6 = convert(%5) dtype=f32 : f32[2,3]
          %7 = broadcast_in_dim(%6) shape=[2,3,1] dimensions=[0,1] : f32[2,3,1]
          %8 = multiply(%2, %7) : f32[2,3,1]
          %9 = dot_general(%8, %q.lora_B) lhs_contracting_dims=[1,2] rhs_contracting_dims=[0,2] \
dtype=f32 : f32[2,2]
          %y = add(%1, %9) : f32[2,2]
          %z = slice(%0) start_indices=[0,2] limit_indices=[2,4] : f32[2,2]
          return y = %y
          return z = %z
        }

    Result (followed by ``dce``):
        module @m level=canonical {
          input %x : f32[2,4]
          weight %w : f32[4,4]
          slotted %q.lora_A : f32[3,1,4]
          slotted %q.lora_B : f32[3,2,1]
          input %adapter_ids : s32[2]
          output %y : f32[2,2]
          output %z : f32[2,2]
        }

        func @f phase=decode {
          arg %x : f32[2,4]
          arg %w : f32[4,4]
          arg %q.lora_A : f32[3,1,4]
          arg %q.lora_B : f32[3,2,1]
          arg %adapter_ids : s32[2]
          %0 = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[2,4]
          %1 = dot_general(%x, %q.lora_A) lhs_contracting_dims=[1] rhs_contracting_dims=[2] \
dtype=f32 : f32[2,3,1]
          %2 = broadcast_in_dim(%adapter_ids) shape=[2,3] dimensions=[0] : s32[2,3]
          %3 = iota() dtype=s32 shape=[2,3] dimension=1 : s32[2,3]
          %4 = compare(%2, %3) direction=EQ : pred[2,3]
          %5 = convert(%4) dtype=f32 : f32[2,3]
          %6 = broadcast_in_dim(%5) shape=[2,3,1] dimensions=[0,1] : f32[2,3,1]
          %7 = multiply(%1, %6) : f32[2,3,1]
          %8 = dot_general(%7, %q.lora_B) lhs_contracting_dims=[1,2] rhs_contracting_dims=[0,2] \
dtype=f32 : f32[2,2]
          %9 = constant() value=f32[](0.0) : f32[]
          %10 = broadcast_in_dim(%9) shape=[2,2] : f32[2,2]
          %11 = concatenate(%8, %10) dimension=1 : f32[2,4]
          %12 = add(%0, %11) : f32[2,4]
          %y = slice(%12) start_indices=[0,0] limit_indices=[2,2] : f32[2,2]
          %z = slice(%12) start_indices=[0,2] limit_indices=[2,4] : f32[2,2]
          return y = %y
          return z = %z
        }
    """

    name: ClassVar[str] = "join-adapters"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical", "sharded")
    requires: ClassVar[tuple[str, ...]] = ("specialized", "partitioned")
    # A value rounded before the sum is rounded after it.
    rounding: ClassVar[float] = 2e-2

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Join the terms of every program."""
        for function in module.programs():
            plan = _plan(function)
            if plan:
                rewriter.apply_rules(function, (_joining(function, plan, rewriter),))


@dataclass(frozen=True, slots=True)
class _AdaptedColumns:
    """Some columns of a product.

    Attributes:
        start, limit: of the columns.
        end: the op whose readers read a slice of the sum instead.
        term: of these columns; ``None`` where they have none.
    """

    start: int
    limit: int
    end: Op
    term: LowRankTerm | None


@dataclass(slots=True)
class _SumOfParts:
    """A product with its parts, in order, and the sum once it is made."""

    product: Value
    parts: list[_AdaptedColumns]
    total: Value | None = None


def _plan(function: Function) -> dict[Op, tuple[_SumOfParts, _AdaptedColumns]]:
    """The groups of a program, by the ends of their parts."""
    found: dict[Op, tuple[_SumOfParts, _AdaptedColumns]] = {}
    for op in function.block:
        if len(op.results) != 1 or not _summed_in_f32(op):
            continue
        parts = _parts(function, op.result)
        terms = [part.term for part in parts if part.term is not None]
        shared = {(term.low.operands[0], term.ids) for term in terms}
        # A sum in f32 that is not cut is as it should be.
        whole = len(parts) == 1 and op.result.dtype is f32
        if terms and len(shared) == 1 and not whole:
            group = _SumOfParts(op.result, parts)
            found.update((part.end, (group, part)) for part in parts)
    return found


def _summed_in_f32(op: Op) -> bool:
    """True for f32, and for a product that is rounded to 16 bits."""
    dtype = op.result.dtype
    return dtype is f32 or (op.name == "dot_general" and dtype in (bf16, f16))


def _parts(function: Function, product: Value) -> list[_AdaptedColumns]:
    """The parts of a value that slices cut into columns; empty where they do not."""
    if not product.shape or function.returns(product):
        return []
    columns = product.type.dims[-1]
    only = _part(function, product, 0, columns)
    if only is not None:
        return [only]
    found: list[_AdaptedColumns] = []
    for op in product.users:
        if op.name != "slice":
            return []
        *outer, (start, limit, step) = bounds(op)
        if step != 1 or outer != [(0, size, 1) for size in product.shape[:-1]]:
            return []
        assert isinstance(start, int)
        assert isinstance(limit, int)
        whole = _AdaptedColumns(start, limit, op, None)
        found.append(_part(function, op.result, start, limit) or whole)
    found.sort(key=lambda part: part.start)
    starts = [part.start for part in found]
    return found if starts == [0, *[part.limit for part in found]][:-1] else []


def _part(function: Function, value: Value, start: int, limit: int) -> _AdaptedColumns | None:
    """The part whose columns are ``value``, if a term is added to them, perhaps rounded."""
    reader = _only_reader(function, value)
    if reader is not None and reader.name == "convert":
        value, reader = reader.result, _only_reader(function, reader.result)
    if reader is None or reader.name != "add":
        return None
    first, second = reader.operands
    other = second if first is value else first
    narrow = other.producer("convert")
    made = (narrow.operands[0] if narrow is not None else other).producer("dot_general")
    term = match_term(made) if made is not None else None
    if not isinstance(term, LowRankTerm) or term.op.result.dtype is not f32:
        return None
    return _AdaptedColumns(start, limit, reader, term)


def _only_reader(function: Function, value: Value) -> Op | None:
    if function.returns(value) or list(value.users.values()) != [1]:
        return None
    return next(iter(value.users))


def _joining(
    function: Function, plan: dict[Op, tuple[_SumOfParts, _AdaptedColumns]], rewriter: Rewriter
) -> Rule:
    """The rule that carries out a plan: each end becomes a slice of the sum."""
    places = {op: place for place, op in enumerate(function.block)}

    @rule(*sorted({end.name for end in plan}))
    def join_terms(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """A part of a product with its term is a part of their sum."""
        if op not in plan:
            return NoMatch("it is not part of a product with low-rank terms")
        group, part = plan[op]
        if group.total is None:
            first = min((each.end for each in group.parts), key=places.__getitem__)
            here = rewriter.before(function, first)
            here.made = b.made
            group.total = _total(here, group, places, places[first])
        last = group.total.type.rank - 1
        value = b.slice_dim(group.total, last, part.start, part.limit)
        return [b.convert(value, op.result.dtype)]

    return join_terms


def _total(b: Builder, group: _SumOfParts, places: Mapping[Op, int], limit: int) -> Value:
    """The product in f32 and the terms side by side; what stands after ``limit`` is made again."""
    product, made = group.product, dict[Value, Value]()
    if product.dtype is not f32:
        assert product.op is not None
        attrs = {**product.op.attrs, "dtype": f32}
        product = b.emit("dot_general", product.op.operands, attrs).result
    columns: list[Value] = []
    for part in group.parts:
        if part.term is not None:
            columns.append(_again(b, part.term.op.result, places, limit, made))
        else:
            shape = (*product.shape[:-1], part.limit - part.start)
            columns.append(b.full(0.0, tensor(f32, shape)))
    if len(columns) == 1:
        return product + columns[0]
    return product + b.concatenate(columns, product.type.rank - 1)


def _again(
    b: Builder, value: Value, places: Mapping[Op, int], limit: int, made: dict[Value, Value]
) -> Value:
    """A value where ``b`` is: itself, or a copy of the ops that stand after ``limit``."""
    if value.op is None or places.get(value.op, -1) < limit:
        return value
    if value not in made:
        operands = [_again(b, each, places, limit, made) for each in value.op.operands]
        copy = b.emit(value.op.name, operands, dict(value.op.attrs))
        made.update(zip(value.op.results, copy.results, strict=True))
    return made[value]
