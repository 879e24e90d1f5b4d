"""Rewrite a program for striped caches: masks and distances follow the order of their slots."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import Dim, Entry, Function, Module, Op, Role, Value
from graphgen.passes.core import NoMatch, Pass, Rewriter, no_match, register
from graphgen.passes.gqa.slot_groups import slot_ranks
from graphgen.passes.kv_cache.page_programs import find_state
from graphgen.passes.kv_cache.striped_layout import StripedLayout
from graphgen.passes.sharding.op_factors import factors_of
from graphgen.passes.spmd.spmd_ops import part_attrs
from graphgen.passes.weights.layout_change import repack

# Masks by what the slots hold: operand 1, s32 [B,C].
_MASKS = ("attention_mask", "tree_mask")


@dataclass(frozen=True, slots=True)
class MaskedSlots:
    """A value with slots in the order of stripes.

    Attributes:
        value: that takes its place.
        dim: of the slots.
        order: the numbers of plain slots that follow one another; more than one after a
            concatenation, and then of each stripe the parts of all of them do.
    """

    value: Value
    dim: int
    order: tuple[int, ...]


@dataclass(slots=True)
class StripedProgram:
    """Changes one program.

    Attributes:
        function: the program.
        rewriter: of the pass.
        layout: of the slots.
        carried: by what was in its place.
    """

    function: Function
    rewriter: Rewriter
    layout: StripedLayout
    carried: dict[Value, MaskedSlots] = field(default_factory=dict[Value, MaskedSlots])
    _places: dict[tuple[Value, int], Value] = field(default_factory=dict[tuple[Value, int], Value])
    _striped: dict[tuple[Value, int, tuple[int, ...]], Value] = field(
        default_factory=dict[tuple[Value, int, tuple[int, ...]], Value]
    )

    def run(self, states: frozenset[str]) -> NoMatch | None:
        """Keep these states in stripes; returns why not, with the program changed in part."""
        caches = {value for value in self.function.args if value.name in states}
        plain = {value: value.type.dims[1] for value in caches}
        for value in caches:
            value.type = self.layout.physical(value.type)
        old: list[Op] = []
        for op in list(self.function.block):
            why = None
            if op.name == "kv_update" and op.operands[0] in caches:
                self._update(op, plain[op.operands[0]])
                caches.add(op.result)
                continue
            if op.name == "cache_read" and op.operands[0] in caches:
                self._read(op)
            elif any(value in self.carried for value in op.operands):
                why = self._carry(op)
            else:
                continue
            if why is not None:
                return why
            old.append(op)
        return self._finish([op for op in old if op.block is not None])

    def _finish(self, old: list[Op]) -> NoMatch | None:
        """Erase what is replaced; returns why not, where slots are an output."""
        for value in self.carried:
            if self.function.returns(value):
                return no_match("slots leave the program", value)
        for op in reversed(old):
            self.rewriter.erase(self.function, op)
        return None

    def _update(self, op: Op, count: int) -> None:
        cache, new, rows, slots = op.operands
        key = slots, count
        if key not in self._places:
            b = self.rewriter.before(self.function, op)
            self._places[key] = self.layout.place_of(b, slots, count)
        op.result.type = cache.type
        op.set_operands((cache, new, rows, self._places[key]))

    def _read(self, op: Op) -> None:
        attended = op.attrs.dim("attended")
        assert isinstance(attended, int)
        attrs = {
            **op.attrs,
            "attended": self.layout.padded(attended),
            "parts": self.layout.stripes,
        }
        made = self.rewriter.before(self.function, op).emit("cache_read", op.operands, attrs).result
        self.carried[op.result] = MaskedSlots(made, 1, (attended,))

    def _carry(self, op: Op) -> NoMatch | None:
        """Make an op on values in the order of stripes; returns why that is not possible."""
        given = {at: self.carried[v] for at, v in enumerate(op.operands) if v in self.carried}
        first, one = next(iter(given.items()))
        joins = op.name == "concatenate" and op.attrs.integer("dimension") == one.dim
        if joins:
            self._concatenate(op)
            return None
        factor = _slot_factor(op, first, one.dim)
        if isinstance(factor, NoMatch):
            return factor
        b = self.rewriter.before(self.function, op)
        operands: list[Value] = []
        factors = factors_of(op)
        assert factors is not None
        for at, value in enumerate(op.operands):
            found = given.get(at)
            dims = [dim for dim, parts in enumerate(factors.operands[at]) if factor in parts]
            if found is not None and (dims != [found.dim] or found.order != one.order):
                return no_match("it reads slots of two caches together", value)
            if found is None and dims:
                value = self.striped(b, value, dims[0], one.order)
            operands.append(found.value if found is not None else value)
        self._emit(b, op, operands, factor, one.order)
        return None

    def _emit(
        self, b: Builder, op: Op, operands: list[Value], factor: int, order: tuple[int, ...]
    ) -> None:
        """The op on other operands; it is replaced where no result has slots."""
        factors = factors_of(op)
        assert factors is not None
        size = sum(map(self.layout.padded, order))
        shapes: list[tuple[Dim, ...]] = []
        places: list[int | None] = []
        for value, dims in zip(op.results, factors.results, strict=True):
            at = next((dim for dim, parts in enumerate(dims) if factor in parts), None)
            shapes.append(tuple([size if i == at else n for i, n in enumerate(value.shape)]))
            places.append(at)
        made = b.emit(op.name, operands, part_attrs(op, operands, shapes)).results
        if places[0] is None:
            self.rewriter.replace(self.function, op, made, "read-stripes")
            return
        for value, new, at in zip(op.results, made, places, strict=True):
            assert at is not None
            self.carried[value] = MaskedSlots(new, at, order)

    def _concatenate(self, op: Op) -> None:
        """Join slots of a cache with others, such as the tokens of a call."""
        b, dim = self.rewriter.before(self.function, op), op.attrs.integer("dimension")
        parts: list[Value] = []
        order: list[int] = []
        for value in op.operands:
            found = self.carried.get(value)
            size = value.type.dims[dim]
            order += found.order if found is not None else (size,)
            parts.append(found.value if found is not None else self.layout.striped(b, value, dim))
        self.carried[op.result] = MaskedSlots(self.layout.joined(b, parts, dim), dim, tuple(order))

    def striped(self, b: Builder, value: Value, dim: int, order: tuple[int, ...]) -> Value:
        """A value with plain slots in a dimension, in the order of stripes."""
        key = value, dim, order
        if key not in self._striped:
            self._striped[key] = self._stripe(b, value, dim, order)
        return self._striped[key]

    def _stripe(self, b: Builder, value: Value, dim: int, order: tuple[int, ...]) -> Value:
        op = value.op
        if op is not None and op.name in _MASKS and dim == 2:
            positions, held, *more = op.operands
            keys = self.striped(b, held, 1, order)
            return b.emit(op.name, (positions, keys, *more), dict(op.attrs)).result
        if len(order) == 1:
            return self.layout.striped(b, value, dim)
        parts: list[Value] = []
        joins = op is not None and op.name == "concatenate" and op.attrs.integer("dimension") == dim
        if op is not None and joins and order == tuple(v.shape[dim] for v in op.operands):
            parts = list(op.operands)
        else:
            start = 0
            for size in order:
                parts.append(b.slice_dim(value, dim, start, start + size))
                start += size
        one = [self.striped(b, part, dim, (size,)) for part, size in zip(parts, order, strict=True)]
        return self.layout.joined(b, one, dim)


def _slot_factor(op: Op, index: int, dim: int) -> int | NoMatch:
    """The factor of slots of an op that may read them in any order, or why it may not."""
    factors = factors_of(op)
    value = op.operands[index]
    if factors is None or len(factors.operands[index][dim]) != 1:
        return no_match(f"{op.name} is not known to keep slots apart", value)
    (factor,) = factors.operands[index][dim]
    mixed = factor in factors.need_replication or factor in factors.reduction
    if mixed and op.name != "attention":
        return no_match(f"{op.name} mixes slots", value, depth=2)
    if any(len(parts) > 1 and factor in parts for dims in factors.results for parts in dims):
        return no_match(f"{op.name} makes slots a part of a dimension", value, depth=3)
    return factor


@register
@dataclass(frozen=True)
class FlashDecoding(Pass):
    """Stripe the slots of cache rows: slot s goes to stripe s mod n, place s div n.

    ``partition`` then gives each of n ranks one stripe, so that ranks hold about as many filled
    slots as any other at every length. Reads take the first slots of each stripe, and attention
    goes over slots in that order: masks, distances and biases are reordered, scores are summed
    alike. Slots of rings are dealt out as those of plain rows. Rows are filled up to a multiple of
    n slots, which are never read.

    Options:
        stripes: n; 0 for as many as hold each key-value head once, of ``tp`` ranks.
        tp: ranks that stripes are made for; 1 for stripes without regard to heads.

    Given:
        module @m level=canonical {
          input %new : f32[2,1,1,4]
          input %positions : s32[2,1]
          input %lengths : s32[2]
          input %seq_ids : s32[2]
          state %k : f32[2,8,1,4]
          output %y : f32[2,1,1,4]
        }

        func @f phase=decode {
          arg %k : f32[2,8,1,4]
          arg %new : f32[2,1,1,4]
          arg %positions : s32[2,1]
          arg %lengths : s32[2]
          arg %seq_ids : s32[2]
          %p = key_positions(%lengths) attended=8 : s32[2,8]
          %m = attention_mask(%positions, %p) : pred[2,1,8]
          %0 = kv_update(%k, %new, %seq_ids, %positions) : f32[2,8,1,4]
          %1 = cache_read(%0, %seq_ids) attended=8 : f32[2,8,1,4]
          %y = attention(%new, %1, %1, %m) scale=0.5 : f32[2,1,1,4]
          return k = %0
          return y = %y
        }

    Result (``flash-decoding{stripes=2},dce``):
        module @m level=canonical {
          input %new : f32[2,1,1,4]
          input %positions : s32[2,1]
          input %lengths : s32[2]
          input %seq_ids : s32[2]
          state %k : f32[2,8,1,4] pack=@pack.f32.2x8x1x4.stripes2 \
unpack=@unpack.f32.2x8x1x4.stripes2
          output %y : f32[2,1,1,4]
        }

        func @f phase=decode {
          arg %k : f32[2,8,1,4]
          arg %new : f32[2,1,1,4]
          arg %positions : s32[2,1]
          arg %lengths : s32[2]
          arg %seq_ids : s32[2]
          %p = key_positions(%lengths) attended=8 : s32[2,8]
          %0 = constant() value=s32[](0) : s32[]
          %1 = broadcast_in_dim(%0) shape=[2,1] : s32[2,1]
          %2 = compare(%positions, %1) direction=GE : pred[2,1]
          %3 = constant() value=s32[](8) : s32[]
          %4 = broadcast_in_dim(%3) shape=[2,1] : s32[2,1]
          %5 = compare(%positions, %4) direction=LT : pred[2,1]
          %6 = and(%2, %5) : pred[2,1]
          %7 = constant() value=s32[](1) : s32[]
          %8 = broadcast_in_dim(%7) shape=[2,1] : s32[2,1]
          %9 = and(%positions, %8) : s32[2,1]
          %10 = constant() value=s32[](4) : s32[]
          %11 = broadcast_in_dim(%10) shape=[2,1] : s32[2,1]
          %12 = multiply(%9, %11) : s32[2,1]
          %13 = constant() value=s32[](2) : s32[]
          %14 = broadcast_in_dim(%13) shape=[2,1] : s32[2,1]
          %15 = divide(%positions, %14) : s32[2,1]
          %16 = add(%12, %15) : s32[2,1]
          %17 = constant() value=s32[](-1) : s32[]
          %18 = broadcast_in_dim(%17) shape=[2,1] : s32[2,1]
          %19 = select(%6, %16, %18) : s32[2,1]
          %20 = kv_update(%k, %new, %seq_ids, %19) : f32[2,8,1,4]
          %21 = cache_read(%20, %seq_ids) attended=8 parts=2 : f32[2,8,1,4]
          %22 = reshape(%p) shape=[2,4,2] : s32[2,4,2]
          %23 = transpose(%22) permutation=[0,2,1] : s32[2,2,4]
          %24 = reshape(%23) shape=[2,8] : s32[2,8]
          %25 = attention_mask(%positions, %24) : pred[2,1,8]
          %y = attention(%new, %21, %21, %25) scale=0.5 : f32[2,1,1,4]
          return k = %20
          return y = %y
        }

        func @pack.f32.2x8x1x4.stripes2 {
          arg %whole : f32[2,8,1,4]
          arg %rank : s32[1]
          %0 = reshape(%whole) shape=[2,4,2,1,4] : f32[2,4,2,1,4]
          %1 = transpose(%0) permutation=[0,2,1,3,4] : f32[2,2,4,1,4]
          %2 = reshape(%1) shape=[2,8,1,4] : f32[2,8,1,4]
          return part = %2
        }

        func @unpack.f32.2x8x1x4.stripes2 {
          arg %parts : f32[1,2,8,1,4]
          %0 = reshape(%parts) shape=[1,2,2,4,1,4] : f32[1,2,2,4,1,4]
          %1 = transpose(%0) permutation=[0,1,3,2,4,5] : f32[1,2,4,2,1,4]
          %2 = reshape(%1) shape=[1,2,8,1,4] : f32[1,2,8,1,4]
          %3 = reshape(%2) shape=[2,8,1,4] : f32[2,8,1,4]
          return whole = %3
        }
    """

    name: ClassVar[str] = "flash-decoding"
    aliases: ClassVar[tuple[str, ...]] = ("stripe-cache",)
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    requires: ClassVar[tuple[str, ...]] = ("specialized",)
    # Scores are the same numbers in another order, and 16-bit types round their sums differently.
    rounding: ClassVar[float] = 2e-2
    stripes: int = 0
    tp: int = 1

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """All caches at once: attention reads keys and values in one order."""
        count = slot_ranks(module, self.tp, self.stripes) if self.tp > 1 else self.stripes
        if count < 2 or rewriter.exhausted:
            return
        rows = [row for row in module.entries(Role.STATE) if _written(module, row)]
        layout, names = StripedLayout(count), frozenset(row.name for row in rows)
        with rewriter.joined():
            for function in module.programs():
                why = StripedProgram(function, rewriter, layout).run(names)
                if why is not None:
                    raise _refused(function, why)
            for row in rows:
                _keep_stripes(module, row, layout)
        # The caches hold other numbers before and after, so that it is a rewrite of the interface.
        rewriter.note(None, f"{count} stripes")
        rewriter.remark(f"{len(rows)} caches are in {count} stripes")


def _written(module: Module, row: Entry) -> bool:
    """True for a cache that programs update (GG0304 where one does something else with it)."""
    found = False
    for function in module.programs():
        state = find_state(function, row)
        if isinstance(state, NoMatch):
            raise _refused(function, state)
        found = found or state is not None
    return found


def _refused(function: Function, why: NoMatch) -> GraphgenError:
    op = why.at.op if why.at is not None else None
    return GraphgenError(
        "GG0304",
        f"flash-decoding: @{function.name}: {why.reason}",
        where=repr(op.loc) if op is not None else "",
        help="leave out flash_decoding (--flash-decoding): ranks then hold whole rows",
    )


def _keep_stripes(module: Module, row: Entry, layout: StripedLayout) -> None:
    """Say in the interface that a state is kept in stripes."""
    slots = row.physical.dims[1]

    def pack(b: Builder, part: Value, rank: Value) -> Value:
        return layout.striped(b, part, 1)

    def unpack(b: Builder, parts: Value) -> Value:
        return layout.plain(b, parts, 2, slots)

    physical = layout.physical(row.physical)
    repack(module, row, physical, f"stripes{layout.stripes}", (pack, unpack))
