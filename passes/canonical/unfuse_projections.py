"""Split fused projections: ``slice(x @ w)`` becomes ``x @ slice(w)``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from graphgen.build import Builder
from graphgen.ir import Dim, Function, Module, Op, Value
from graphgen.passes.canonical.canonicalize import identity, reshape_of_reshape
from graphgen.passes.canonical.slice_algebra import Bound, bounds, cut
from graphgen.passes.core import NoMatch, Pass, Rewriter, Rule, no_match, register, rule
from graphgen.passes.weights.derived import PreparedValues, WeightNumbers
from graphgen.passes.weights.per_channel_epilogue import EpilogueStep, steps_behind


@register
@dataclass(frozen=True)
class UnfuseProjections(Pass):
    """Split a sliced product with a weight into products with slices of the weight.

    So the q, k and v of a checkpoint that keeps them in one tensor, side by side (GPT-2) or head by
    head (BLOOM, GPT-NeoX), are laid out, split over ranks, padded and quantized like those of any
    other; ``fuse-projections`` joins them again for each rank. Biases, per-channel scales and
    conversions between product and slice go with it. A product that is read whole as well is left
    alone, and so is a weight that something else reads.

    Given:
        module @m level=canonical {
          input %x : f32[2,4]
          weight %qk : f32[6,4]
          weight %b : f32[6]
          output %q : f32[2,1,2]
          output %k : f32[2,1,2]
        }

        func @f phase=decode {
          arg %x : f32[2,4]
          arg %qk : f32[6,4]
          arg %b : f32[6]
          %y = dot_general(%x, %qk) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 \
: f32[2,6]
          %c = broadcast_in_dim(%b) shape=[2,6] dimensions=[1] : f32[2,6]
          %z = add(%y, %c) : f32[2,6]
          %h = reshape(%z) shape=[2,3,2] : f32[2,3,2]
          %q = slice(%h) start_indices=[0,0,0] limit_indices=[2,1,2] : f32[2,1,2]
          %k = slice(%h) start_indices=[0,1,0] limit_indices=[2,2,2] : f32[2,1,2]
          return q = %q
          return k = %k
        }

    Result:
        module @m level=canonical {
          input %x : f32[2,4]
          weight %qk : f32[6,4]
          weight %b : f32[6]
          output %q : f32[2,1,2]
          output %k : f32[2,1,2]
        }

        func @f phase=decode {
          arg %x : f32[2,4]
          arg %qk : f32[6,4]
          arg %b : f32[6]
          %0 = reshape(%qk) shape=[3,2,4] : f32[3,2,4]
          %1 = slice(%0) start_indices=[0,0,0] limit_indices=[1,2,4] : f32[1,2,4]
          %2 = reshape(%1) shape=[2,4] : f32[2,4]
          %3 = dot_general(%x, %2) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[2,2]
          %4 = reshape(%b) shape=[3,2] : f32[3,2]
          %5 = slice(%4) start_indices=[0,0] limit_indices=[1,2] : f32[1,2]
          %6 = reshape(%5) shape=[2] : f32[2]
          %7 = broadcast_in_dim(%6) shape=[2,2] dimensions=[1] : f32[2,2]
          %8 = add(%3, %7) : f32[2,2]
          %q = reshape(%8) shape=[2,1,2] : f32[2,1,2]
          %9 = reshape(%qk) shape=[3,2,4] : f32[3,2,4]
          %10 = slice(%9) start_indices=[1,0,0] limit_indices=[2,2,4] : f32[1,2,4]
          %11 = reshape(%10) shape=[2,4] : f32[2,4]
          %12 = dot_general(%x, %11) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 \
: f32[2,2]
          %13 = reshape(%b) shape=[3,2] : f32[3,2]
          %14 = slice(%13) start_indices=[1,0] limit_indices=[2,2] : f32[1,2]
          %15 = reshape(%14) shape=[2] : f32[2]
          %16 = broadcast_in_dim(%15) shape=[2,2] dimensions=[1] : f32[2,2]
          %17 = add(%12, %16) : f32[2,2]
          %k = reshape(%17) shape=[2,1,2] : f32[2,1,2]
          return q = %q
          return k = %k
        }
    """

    name: ClassVar[str] = "unfuse-projections"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    requires: ClassVar[tuple[str, ...]] = ("raw-weights",)
    # A matrix library may sum a narrower product in another order, which 16-bit floats magnify.
    rounding: ClassVar[float] = 2e-2

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Plan every program, keep what all programs agree on, then rewrite."""
        numbers: WeightNumbers = {}
        programs = [PreparedValues(module, f, numbers) for f in module.programs()]
        plans = [_CutPlan(prepared) for prepared in programs]
        _keep_agreed(plans)
        for plan in plans:
            function = plan.prepared.function
            rewriter.apply_rules(function, (unfusing(plan), reshape_of_reshape, identity))
            for op in [*plan.made, *[op for product in plan.products for op in product.ops]]:
                unread = op.block is not None and not op.result.users
                if unread and not function.returns(op.result) and not rewriter.exhausted:
                    # Its weights would still count as read.
                    rewriter.erase(function, op)


@dataclass(frozen=True, slots=True)
class _Product:
    """A product that is only read in slices.

    Attributes:
        dot: the product.
        steps: what follows it channel by channel.
        reshape: splits the features before they are cut, if anything does.
        rows: number of leading dimensions of the product that are not features.
        features: the dimensions the features are split into.
        slices: each with its cuts of ``features``.
    """

    dot: Op
    steps: tuple[EpilogueStep, ...]
    reshape: Op | None
    rows: int
    features: tuple[int, ...]
    slices: dict[Op, tuple[Bound, ...]]

    @property
    def ops(self) -> list[Op]:
        """The ops that are dead after the rewrite, readers before their operands."""
        ops = [self.dot, *[step.op for step in self.steps]]
        ops += [self.reshape] if self.reshape else []
        return [*reversed(ops), *[step.spread for step in self.steps if step.spread is not None]]

    def key(self, prepared: PreparedValues) -> tuple[object, ...]:
        """The weight and its cuts: equal in all programs that cut it alike."""
        number = prepared.number(self.dot.operands[1])
        return number, self.features, tuple(sorted(map(str, self.slices.values())))


class _CutPlan:
    """The products of one program that come apart, and why others do not.

    Args:
        prepared: which values of the program are made of weights alone.
    """

    def __init__(self, prepared: PreparedValues) -> None:
        self.prepared = prepared
        self.products: list[_Product] = []
        self.misses: dict[Op, NoMatch] = {}
        self.made: list[Op] = []
        for op in prepared.function.block:
            if op.name == "dot_general":
                self._look_at(op)

    def _look_at(self, dot: Op) -> None:
        steps = tuple(steps_behind(dot, self.prepared))
        end = steps[-1].op.result if steps else dot.result
        slices = [op for op in _beyond_reshapes(end) if op.name == "slice"]
        if not slices:
            return
        found = _why_not(dot, self.prepared) or _product(self.prepared.function, dot, steps)
        if isinstance(found, NoMatch):
            self.misses.update(dict.fromkeys(slices, found))
        else:
            self.products.append(found)

    def drop(self, product: _Product, why: NoMatch) -> None:
        """Leave a product as it is."""
        self.products.remove(product)
        self.misses.update(dict.fromkeys(product.slices, why))


def _beyond_reshapes(value: Value) -> Iterator[Op]:
    """The readers of a value, and those of a reshape in place of the reshape."""
    for reader in value.users:
        yield from reader.result.users if reader.name == "reshape" else (reader,)


def _why_not(dot: Op, prepared: PreparedValues) -> NoMatch | None:
    """The reason that a product is not a projection; ``None`` for a projection."""
    lhs, rhs = dot.operands
    if dot.attrs.integers("lhs_batch_dims"):
        return no_match("the product has batch dimensions", lhs)
    if not prepared.of_weights(rhs):
        return no_match("its right operand is not made of weights alone", rhs, depth=2)
    if len(dot.attrs.integers("rhs_contracting_dims")) != 1 or rhs.type.rank != 2:
        return no_match("the weight is not a matrix", rhs, depth=3)
    if prepared.readers(rhs) != 1:
        return no_match("the weight is read elsewhere too, and would be kept twice", rhs, depth=4)
    return None


def _product(function: Function, dot: Op, steps: tuple[EpilogueStep, ...]) -> _Product | NoMatch:
    """The product with the cuts of its features, or the reason that other dimensions are cut."""
    end = steps[-1].op.result if steps else dot.result
    first = next(iter(end.users))
    reshape = first if first.name == "reshape" and len(end.users) == 1 else None
    value = reshape.result if reshape else end
    if function.returns(end) or function.returns(value):
        return no_match(
            "the product is given back whole, and would be computed twice", value, depth=5
        )
    if any(op.name != "slice" for op in value.users):
        return no_match(
            "the product is read whole as well, and would be computed twice", value, depth=6
        )
    rows = end.type.rank - 1
    if value.shape[:rows] != end.shape[:rows]:
        return no_match("the reshape moves rows into features", value, depth=7)
    slices: dict[Op, tuple[Bound, ...]] = {}
    for op in value.users:
        around = bounds(op)
        if around[:rows] != [(0, size, 1) for size in value.shape[:rows]]:
            return no_match("a slice cuts rows, not features", op.operands[0], depth=8)
        slices[op] = tuple(around[rows:])
    features = _known(value.shape[rows:])
    if sum(prod(_known(op.result.shape[rows:])) for op in slices) > prod(features):
        return no_match("the slices overlap, and parts would be computed twice", value, depth=9)
    return _Product(dot, steps, reshape, rows, features, slices)


def _known(sizes: Sequence[Dim]) -> tuple[int, ...]:
    """Sizes of features, which no symbol stands for: they come from a checkpoint's tensor."""
    return tuple(size for size in sizes if isinstance(size, int))


def _keep_agreed(plans: Sequence[_CutPlan]) -> None:
    """Drop every product whose weight another program of the module reads otherwise."""
    uses: dict[int, set[tuple[object, ...]]] = {}
    for plan in plans:
        number = plan.prepared.number
        keys = {number(p.dot.operands[1]): p.key(plan.prepared) for p in plan.products}
        for weight in plan.prepared.read:
            uses.setdefault(weight, set()).add(keys.get(weight, ()))
    for plan in plans:
        for product in list(plan.products):
            weight = product.dot.operands[1]
            if len(uses[plan.prepared.number(weight)]) > 1:
                why = no_match(
                    "another program of the module reads this weight otherwise", weight, depth=10
                )
                plan.drop(product, why)


def unfusing(plan: _CutPlan) -> Rule:
    """The rule that carries out a plan."""
    members = {op: product for product in plan.products for op in product.slices}

    @rule("slice")
    def unfuse(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """A slice of a product is a product with a slice of the weight."""
        product = members.get(op)
        if product is None:
            # Not a near miss: by its depth, every other reason is nearer.
            return plan.misses.get(op) or NoMatch("it cuts no product", op.operands[0])
        part = _narrow(b, product, op)
        if part.op is not None:
            plan.made.append(part.op)
        return [part]

    return unfuse


def _narrow(b: Builder, product: _Product, op: Op) -> Value:
    """The part of a product that ``op`` cuts out, computed alone."""
    dot, features, cuts = product.dot, product.features, product.slices[op]
    count = prod(_known(op.result.shape[product.rows :]))
    lhs, rhs = dot.operands
    (depth,) = dot.attrs.integers("rhs_contracting_dims")
    weight = _part(b, rhs, 1 - depth, features, cuts, count)
    value = b.emit("dot_general", (lhs, weight), dict(dot.attrs)).result
    for step in product.steps:
        operands = [value]
        if step.spread is not None:
            vector = _part(b, step.vector(b), 0, features, cuts, count)
            spread = b.broadcast_in_dim(vector, value.shape, [value.type.rank - 1])
            operands.insert(1 - step.side, spread)
        value = b.emit(step.op.name, operands, dict(step.op.attrs)).result
    return b.reshape(value, op.result.shape)


def _part(
    b: Builder, x: Value, axis: int, features: Sequence[int], cuts: Sequence[Bound], count: int
) -> Value:
    """The ``count`` elements along ``axis`` that ``cuts`` leaves of it, split into ``features``."""
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    split = b.reshape(x, (*before, *features, *after))
    around = [[(0, size, 1) for size in sizes] for sizes in (before, after)]
    return b.reshape(cut(b, split, [*around[0], *cuts, *around[1]]), (*before, count, *after))
