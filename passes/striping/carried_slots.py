"""Rewrite a program for striped caches: masks and distances follow the order of their slots."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphgen.build import Builder
from graphgen.ir import Dim, Function, Op, Value
from graphgen.passes.core import NoMatch, Rewriter, no_match
from graphgen.passes.sharding.spec.op_factors import factors_of
from graphgen.passes.sharding.spmd.spmd_ops import part_attrs
from graphgen.passes.striping.striped_slots import StripedSlots

# Masks by what the slots hold: operand 1, s32 [B,C].
_MASKS = ("attention_mask", "tree_mask")


@dataclass(frozen=True, slots=True)
class Carried:
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
    layout: StripedSlots
    carried: dict[Value, Carried] = field(default_factory=dict[Value, Carried])
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
        self.carried[op.result] = Carried(made, 1, (attended,))

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
            self.carried[value] = Carried(new, at, order)

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
        self.carried[op.result] = Carried(self.layout.joined(b, parts, dim), dim, tuple(order))

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
