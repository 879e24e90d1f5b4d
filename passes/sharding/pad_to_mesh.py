"""Pad weights with zeros to sizes that divide over the mesh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd, inf
from typing import ClassVar

from graphgen.build import Builder
from graphgen.ir import HELD_ROLES, Function, Module, Op, Sharding, Value, sharding
from graphgen.ir.dtype import f8e8m0fnu, lowest, s32
from graphgen.passes.core import NoMatch, Pass, Rewriter, no_match, register
from graphgen.passes.core.relation import EQUAL
from graphgen.passes.gqa.fold_gather import FOLD_RULES, FoldRule, gather_source
from graphgen.passes.gqa.gather_rules import gather_rules
from graphgen.passes.gqa.head_gather import GatherEmitter, HeadGather
from graphgen.passes.gqa.head_map import ZERO
from graphgen.passes.gqa.sink_gather import result_dims
from graphgen.passes.sharding.mesh import Mesh, divides, mesh_of
from graphgen.passes.sharding.op_factors import factors_of
from graphgen.passes.sharding.requested_layout import requested_sharding
from graphgen.passes.sharding.sharding_plan import ShardingPlan, propagated
from graphgen.passes.weights.derived import PreparedValues
from graphgen.passes.weights.scale_blocks import BlockScaled


@dataclass(frozen=True, slots=True)
class PartSizes:
    """Shares of a dimension, one a rank.

    Attributes:
        chosen: by size and number of parts, where it is more than an equal share.
    """

    chosen: Mapping[tuple[int, int], int]

    @staticmethod
    def of(function: Function, layouts: Mapping[Value, Sharding], mesh: Mesh) -> PartSizes:
        """The parts with which the blocks of scales take the fewest bytes.

        A part that ends inside of a block makes blocks smaller, and scales more; a part of more
        whole blocks has more padding. All values of a size are padded alike, so that products find
        their operands in the same places.
        """
        found: dict[tuple[int, int], list[tuple[BlockScaled, int]]] = {}
        for op in function.block:
            layout = layouts.get(op.operands[0]) if op.name == "dequantize" else None
            scaled = BlockScaled.of(op) if layout is not None else None
            for dim, axes in enumerate(layout.dims if layout is not None and scaled else ()):
                assert scaled is not None
                size, parts = scaled.values.shape[dim], mesh.size(axes)
                if isinstance(size, int) and size % parts and _has_blocks(scaled, dim):
                    found.setdefault((size, parts), []).append((scaled, dim))
        return PartSizes({key: _fewest_bytes(*key, cut) for key, cut in found.items()})

    def part(self, size: int, parts: int) -> int:
        """Elements of a rank, of which the last ones may be padding."""
        return self.chosen.get((size, parts), -(-size // parts))


def _has_blocks(scaled: BlockScaled, dim: int) -> bool:
    """True if padding needs scales of its own, or a cut may fall inside of a block."""
    if scaled.one_for_all(dim):
        # With zero points the number 0 means another value.
        return len(scaled.facts) > 1
    return scaled.block[dim] > 1


def _fewest_bytes(size: int, parts: int, cut: Sequence[tuple[BlockScaled, int]]) -> int:
    least = -(-size // parts)
    steps = {gcd(size, step) for step in range(1, size + 1)}

    def bits(part: int) -> int:
        total = 0
        for scaled, dim in cut:
            block = size if scaled.one_for_all(dim) else scaled.block[dim]
            each = gcd(block, gcd(size, part))
            facts = sum(fact.dtype.bits for fact in scaled.facts)
            total += part * scaled.values.dtype.bits + part // each * facts
        return total

    return min((-(-least // step) * step for step in steps), key=lambda part: (bits(part), part))


def align_blocks(
    module: Module,
    function: Function,
    layouts: Mapping[Value, Sharding],
    mesh: Mesh,
    rewriter: Rewriter,
    sizes: PartSizes,
) -> bool:
    """Let every cut of the numbers of a ``dequantize`` fall between its blocks.

    Args:
        module: the layouts of scales that are cut otherwise are taken from its rows.
        function: changed in place.
        layouts: of weights and what is made of them.
        mesh: the ranks.
        rewriter: of the pass on whose behalf.
        sizes: where the ranks cut.

    Returns:
        True if blocks were made smaller.
    """
    changed = False
    for op in list(function.block):
        layout = layouts.get(op.operands[0]) if op.name == "dequantize" else None
        if layout is not None and not rewriter.exhausted:
            changed = _align(module, function, op, layout, mesh, rewriter, sizes) or changed
    return changed


def _align(
    module: Module,
    function: Function,
    op: Op,
    layout: Sharding,
    mesh: Mesh,
    rewriter: Rewriter,
    sizes: PartSizes,
) -> bool:
    before = scaled = BlockScaled.of(op)
    b = rewriter.before(function, op)
    b.made = list[Op]()
    for dim, axes in enumerate(layout.dims):
        size, block, parts = scaled.values.shape[dim], scaled.block[dim], mesh.size(axes)
        if parts == 1 or block == 1 or scaled.one_for_all(dim) or not isinstance(size, int):
            continue
        part = sizes.part(size, parts)
        if part % block or size % block:
            scaled = scaled.finer(b, dim, gcd(block, part))
    if scaled is before:
        return False
    # The parts of a scale that is repeated are not parts of the scale.
    for fact in before.facts:
        _lay_whole(module, fact)
    for fact in scaled.facts:
        counts = zip(fact.shape, layout.dims, strict=True)
        fact.sharding = sharding([() if count == 1 else axes for count, axes in counts])
    rewriter.replace(function, op, [scaled.emit(b, op)], "align-blocks", created=b.made)
    return True


def _lay_whole(module: Module, fact: Value) -> None:
    """Take the layout from a value and what it is converted from, and from the row of a weight."""
    fact.sharding = None
    for operand in fact.op.operands if fact.op is not None else ():
        if operand.shape == fact.shape:
            _lay_whole(module, operand)
    row = module.interface.get(fact.name or "") if fact.op is None else None
    if row is not None:
        module.interface[row.name] = replace(row, sharding=None)


@register
@dataclass(frozen=True)
class PadToMesh(Pass):
    """Pad sharded dimensions that do not divide over their ranks with zeros.

    A weight that programs read is padded with zeros where its layout splits it, and read without
    them; then reading without them moves on, op by op, until a product sums over the padding, where
    the other operand gets zeros too, or a table is looked up, whose padding no index reads. Other
    ops read a slice without the padding, and partition gathers it. Facts about a whole weight, such
    as a scale, are taken before it is padded. Where a cut falls inside of a block of a scale
    (``dequantize``), its blocks become smaller first, or a rank gets more of them than an equal
    share, whichever takes fewer bytes.

    Given:
        module @m level=canonical mesh=tp:2 {
          input %x : f32[1,4]
          weight %up : f32[5,4] sharding={tp,-}
          weight %down : f32[4,5] sharding={-,tp}
          output %y : f32[1,4]
        }

        func @f phase=decode {
          arg %x : f32[1,4]
          arg %up : f32[5,4]
          arg %down : f32[4,5]
          %h = dot_general(%x, %up) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[1,5]
          %a = silu(%h) : f32[1,5]
          %y = dot_general(%a, %down) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 \
: f32[1,4]
          return y = %y
        }

    Result:
        module @m level=canonical mesh=tp:2 {
          input %x : f32[1,4]
          weight %up : f32[5,4] sharding={tp,-}
          weight %down : f32[4,5] sharding={-,tp}
          output %y : f32[1,4]
        }

        func @f phase=decode {
          arg %x : f32[1,4]
          arg %up : f32[5,4]
          arg %down : f32[4,5]
          %0 = constant() value=f32[](0.0) : f32[]
          %1 = pad(%down, %0) low=[0,0] high=[0,1] : f32[4,6]{-,tp}
          %2 = constant() value=f32[](0.0) : f32[]
          %3 = pad(%up, %2) low=[0,0] high=[1,0] : f32[6,4]{tp,-}
          %4 = dot_general(%x, %3) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[1,6]
          %5 = silu(%4) : f32[1,6]
          %y = dot_general(%5, %1) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 \
: f32[1,4]
          return y = %y
        }
    """

    name: ClassVar[str] = "pad-to-mesh"
    finite_math_only: ClassVar[bool] = True
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    requires: ClassVar[tuple[str, ...]] = ("raw-weights",)
    # A sum has zeros more, and may be taken in another order.
    rounding: ClassVar[float] = 2e-2

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Pad each program's weights, and move what reads them without."""
        mesh = mesh_of(module.mesh)
        for function in module.programs():
            _Padding(module, function, mesh, rewriter).run()


@dataclass(slots=True)
class _Padding:
    """The work on one program.

    Attributes:
        module: says how weights lie.
        function: changed in place.
        mesh: what they have to divide over.
        rewriter: on whose behalf.
        takes: padding and reading without it, while it moves; slices and pads in the end.
        refusals: why reading without padding does not move on.
    """

    module: Module
    function: Function
    mesh: Mesh
    rewriter: Rewriter
    emitter: GatherEmitter = field(init=False)
    refusals: dict[Op, NoMatch] = field(default_factory=dict[Op, NoMatch])

    def __post_init__(self) -> None:
        self.emitter = GatherEmitter(self.function, self.rewriter)

    def run(self) -> None:
        """Pad, move, and say it in simpler ops."""
        known = {op for op in self.function.block if op.name == "take"}
        prepared = PreparedValues(self.module, self.function, {}, HELD_ROLES)
        layouts = self._layouts(prepared)
        sizes = PartSizes.of(self.function, layouts, self.mesh)
        if align_blocks(self.module, self.function, layouts, self.mesh, self.rewriter, sizes):
            prepared = PreparedValues(self.module, self.function, {}, HELD_ROLES)
        for value, layout, dims in list(self._short(prepared)):
            if self.rewriter.exhausted:
                return
            self._pad(value, layout, dims, sizes, prepared)
        self.rewriter.apply_rules(
            self.function, gather_rules(self.emitter, self.refusals, PADDED_RULES)
        )
        self.rewriter.erase_unread(self.function)
        for op in list(self.function.block):
            if op.name == "take" and op not in known and not self.rewriter.exhausted:
                self._simplify(op)
        self.rewriter.erase_unread(self.function)

    def _short(self, prepared: PreparedValues) -> Iterator[tuple[Value, Sharding, list[int]]]:
        """Yield derived weights, used by the program, and their dimensions that do not divide."""
        for value, layout in self._layouts(prepared).items():
            sizes = zip(value.shape, layout.dims, strict=True)
            short = [
                dim
                for dim, (size, axes) in enumerate(sizes)
                if not divides(size, self.mesh.size(axes))
            ]
            if short and _readers(prepared, value):
                yield value, layout, short

    def _layouts(self, prepared: PreparedValues) -> dict[Value, Sharding]:
        """The layouts of weights and derived values, divisible or not."""
        plan = ShardingPlan()
        for value in self.function.args:
            if prepared.of_weights(value):
                plan.pins[value] = requested_sharding(self.module, value)
        anything = Mesh(dict.fromkeys(self.mesh.axes, 1))
        for op in self.function.block:
            if prepared.of_weights(op.results[0]):
                for value, found in zip(op.results, propagated(op, plan, anything), strict=True):
                    plan.pins[value] = value.sharding or found
        return {value: layout for value, layout in plan.pins.items() if not layout.replicated}

    def _pad(
        self,
        value: Value,
        layout: Sharding,
        dims: Sequence[int],
        sizes: PartSizes,
        prepared: PreparedValues,
    ) -> None:
        """The rest of the program reads ``value`` out of one that is padded along ``dims``."""
        readers, wide = _readers(prepared, value), value
        padded: list[tuple[Value, HeadGather]] = []
        for dim in dims:
            gather = self._padding(value, dim, self.mesh.size(layout.dims[dim]), sizes)
            padded.append((wide, gather))
            wide = self.emitter.emit(wide, gather)
        made = [wide]
        for source, gather in reversed(padded):
            inverse = gather.inverse(gather.block_count(source))
            made.append(self.emitter.emit(made[-1], inverse))
            self.emitter.rebind(made[-1], gather, made[-2])
        # The result of an op is whole.
        value.sharding, wide.sharding = None, layout
        for op in readers:
            op.set_operands(
                tuple([made[-1] if operand is value else operand for operand in op.operands])
            )
        values = [*[source for source, _ in padded[1:]], *made]
        ops = [item.op for item in values if item.op is not None]
        name = value.name or "a weight"
        self.rewriter.note(self.function, f"pad {name}", value.op, ops, ((value, made[-1], EQUAL),))

    def _padding(self, value: Value, dim: int, parts: int, sizes: PartSizes) -> HeadGather:
        """Zeros after the last element of a dimension."""
        size = value.shape[dim]
        assert isinstance(size, int)
        part = sizes.part(size, parts)
        block = gcd(size, part)
        blocks = size // block
        return HeadGather((*range(blocks), *[ZERO] * (part * parts // block - blocks)), dim, block)

    def _simplify(self, op: Op) -> None:
        """A take that leaves out the end is a slice; with zeros after what is kept, a pad of it."""
        gather = HeadGather.of(op)
        assert gather is not None
        kept = sum(block != ZERO for block in gather.blocks)
        if gather.blocks != (*range(kept), *[ZERO] * (len(gather.blocks) - kept)):
            return
        b = self.rewriter.before(self.function, op)
        b.made = list[Op]()
        made, size = op.operands[0], kept * gather.block
        # Scales of whole blocks may go on past the last row.
        if made.shape[gather.dim] != size or kept == len(gather.blocks):
            made = b.slice_dim(made, gather.dim, 0, size)
        if kept < len(gather.blocks):
            high = [0] * made.type.rank
            high[gather.dim] = (len(gather.blocks) - kept) * gather.block
            # Powers of two have no zero. They are scales, of numbers that are zeros.
            least = 2.0**-127 if made.dtype is f8e8m0fnu else 0
            made = b.pad(made, b.literal(least, made.dtype), [0] * len(high), high)
        self.rewriter.replace(self.function, op, [made], "say-simpler", created=b.made)


def _readers(prepared: PreparedValues, value: Value) -> list[Op]:
    """The ops that read a value of weights, and are not made of weights alone."""
    return [op for op in value.users if not prepared.of_weights(op.results[0])]


def _embedding(
    op: Op, index: int, gather: HeadGather, emitter: GatherEmitter, b: Builder
) -> Value | NoMatch:
    """A row that is not there is clamped to the last one, which is no longer the table's last."""
    table, ids = op.operands
    if index != 0 or gather.dim != 0:
        return no_match("it is not the rows of the table", op.operands[index])
    last = table.shape[0]
    assert isinstance(last, int)
    low = b.binary("maximum", ids, b.full(0, ids.type))
    return b.embedding(
        gather_source(op, index), b.binary("minimum", low, b.full(last - 1, ids.type))
    )


def _product(
    op: Op, index: int, gather: HeadGather, emitter: GatherEmitter, b: Builder
) -> Value | Sequence[Value] | NoMatch:
    """Matrices that a batch has more of give results that nothing reads, whatever they hold."""
    batches = result_dims(op)[: len(op.attrs.integers("lhs_batch_dims"))]
    found = [item for item in batches if (index, gather.dim) in item]
    if not found:
        return FOLD_RULES["dot_general"](op, index, gather, emitter, b)
    dim = batches.index(found[0])
    (_, other_dim), *_ = (item for item in found[0] if item[0] != index)
    operands, other = list(op.operands), op.operands[1 - index]
    operands[index] = gather_source(op, index)
    taken = other.producer("take")
    if taken is not None and HeadGather.of(taken) == gather.at(other_dim):
        operands[1 - index] = gather_source(op, 1 - index)
    else:
        inverse = gather.inverse(gather.block_count(operands[index])).at(other_dim)
        operands[1 - index] = emitter.emit(other, inverse)
    return emitter.emit(b.emit(op.name, operands, dict(op.attrs)).result, gather.at(dim))


def _top_k(
    op: Op, index: int, gather: HeadGather, emitter: GatherEmitter, b: Builder
) -> Value | Sequence[Value] | NoMatch:
    """The padding is smaller than all else, and comes last among equals."""
    source, last = gather_source(op, index), op.operands[0].type.rank - 1
    size = op.operands[0].shape[-1]
    assert isinstance(size, int)
    if gather.dim != last:
        kept = b.top_k(source, op.attrs.integer("k"))
        return [emitter.emit(value, gather) for value in kept]
    places = b.iota(s32, source.shape, last)
    there = b.compare(places, b.full(size, places.type), "LT")
    small = -inf if source.dtype.is_float else lowest(source.dtype)
    return b.top_k(b.select(there, source, b.full(small, source.type)), op.attrs.integer("k"))


def _experts(
    op: Op, index: int, gather: HeadGather, emitter: GatherEmitter, b: Builder
) -> Value | NoMatch:
    """Zeros for inner features add nothing, nor do experts of zeros that no token names.

    All operands with the dimension get the zeros: a padded feature is multiplied by zeros of
    ``down``, whatever the activation of its bias is.
    """
    factors = factors_of(op)
    assert factors is not None
    (factor,) = factors.operands[index][gather.dim]
    if factor not in factors.reduction:
        return no_match("they are not experts or inner features", op.operands[index])
    if gather.blocks != tuple(range(len(gather.blocks))):
        return no_match("the numbers of experts would change", op.operands[index], depth=2)
    count = gather.block_count(gather_source(op, index))
    inverse, operands = gather.inverse(count), list(op.operands)
    for place, dims in enumerate(factors.operands):
        if (factor,) in dims:
            operands[place] = emitter.emit(operands[place], inverse.at(dims.index((factor,))))
    return b.emit(op.name, operands, dict(op.attrs)).result


# Ops that may read the padding as well.
PADDED_RULES: Mapping[str, FoldRule] = {
    **FOLD_RULES,
    "dot_general": _product,
    "embedding": _embedding,
    "experts": _experts,
    "top_k": _top_k,
}
