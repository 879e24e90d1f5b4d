"""Deal out the tokens of a program so that causal masks leave ranks of a ring as much to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from graphgen.build import Builder
from graphgen.ir import Function, Literal, Module, Op, Role, Value
from graphgen.ir.dtype import f32, s32
from graphgen.ops import OPS, Trait
from graphgen.passes.core import NoMatch, Rewriter, no_match
from graphgen.passes.sharding.spec.logical_axes import SEQUENCE, ModelAxes
from graphgen.passes.sharding.spec.op_factors import factors_of
from graphgen.passes.sharding.spec.ring_layout import balanced_order
from graphgen.passes.tiles.operand_tiles import Cut, cuts_of, operand_cuts

# Ops that know where a token is by its position, not by its place.
_BY_POSITION = ("attention", "attention_mask", "key_distance", "kv_update", "last_token")


@dataclass(frozen=True, slots=True)
class BalancedTokens:
    """One program, whose tokens and slots are to be in the order of :func:`balanced_order`.

    Attributes:
        module: of the program.
        function: the program.
        axes: of the module.
        ranks: of the ring.
    """

    module: Module
    function: Function
    axes: ModelAxes
    ranks: int
    _slots: dict[tuple[Value, int], Value] = field(default_factory=dict[tuple[Value, int], Value])

    def why_not(self, attentions: list[Op]) -> NoMatch | None:
        """Why tokens cannot be in another order; ``None`` if they can.

        Args:
            attentions: those of the program.
        """
        for op in attentions:
            mask = op.operands[3]
            made = mask.producer("attention_mask")
            if made is None:
                return no_match("its mask is not made of positions", mask)
            if made.operands[1].producer("key_positions") is None:
                return no_match("slots of a rolled cache are in no order of positions", mask)
            for what, value in zip(("tokens", "slots"), op.operands[:2], strict=False):
                count = value.type.dims[1]
                if count % (2 * self.ranks):
                    parts = 2 * self.ranks
                    return no_match(f"{count} {what} are not {parts} blocks of as many", value)
        for op in self.function.block:
            if op.name == "experts" and op.attrs.integer("capacity"):
                return no_match(
                    "experts with a capacity take the tokens that come first", op.result
                )
            if op.name not in _BY_POSITION and self._ordered(op):
                return no_match(f"{op.name} depends on the order of tokens", op.result)
        return None

    def _ordered(self, op: Op) -> bool:
        """True if an op over tokens gives another result for tokens in another order."""
        if not any(self._tokens(value) for value in (*op.operands, *op.results)):
            return False
        if op.name == "iota":
            return op.attrs.integer("dimension") in self._tokens(op.result)
        if op.name == "constant":
            return len(set(op.attrs.literal("value").values())) > 1
        factors = factors_of(op)
        if factors is None:
            return True
        for value, dims in zip(op.operands, factors.operands, strict=True):
            for dim in self._tokens(value):
                parts = dims[dim] if dims else ()
                whole = len(parts) != 1 or parts[0] in factors.need_replication
                if whole and value.shape[dim] != 1:
                    return True
        return False

    def _tokens(self, value: Value) -> list[int]:
        """The dimensions of a value that are of tokens."""
        return [dim for dim in range(value.type.rank) if SEQUENCE in self.axes.of(value, dim)]

    def run(self, attentions: list[Op], rewriter: Rewriter) -> None:
        """Deal out tokens where they come in, gather them where they go out."""
        for value, dim in list(self._arguments()):
            readers = list(value.users)
            first = self.function.block.first
            assert first is not None
            dealt = self._take(rewriter.before(self.function, first), value, dim)
            for op in readers:
                op.set_operands(tuple([dealt if x is value else x for x in op.operands]))
        for op in attentions:
            self._slots_of(op, rewriter)
        self._outputs()
        rewriter.note(self.function, "balance-tokens")

    def _arguments(self) -> Iterator[tuple[Value, int]]:
        """Inputs with tokens."""
        for value in self.function.args:
            row = self.module.interface.get(value.name or "")
            if row is not None and row.role is Role.INPUT:
                yield from [(value, dim) for dim in self._tokens(value)]

    def _take(self, b: Builder, value: Value, dim: int, *, back: bool = False) -> Value:
        """The blocks of a dimension in the balanced order, or those in this order as they were."""
        order = list(balanced_order(self.ranks))
        if back:
            order = [order.index(block) for block in range(len(order))]
        size = value.shape[dim]
        assert isinstance(size, int)
        numbers = b.op("constant", value=Literal.of(s32, order))
        return b.take(value, numbers, dim, size // len(order))

    def _slots_of(self, op: Op, rewriter: Rewriter) -> None:
        """Let one attention read slots in the balanced order."""
        b = rewriter.before(self.function, op)
        operands = [
            self._by_slots(b, value, cut)
            for value, cut in zip(op.operands, cuts_of(op), strict=True)
        ]
        op.set_operands(tuple(operands))

    def _by_slots(self, b: Builder, value: Value, cut: Cut) -> Value:
        """A value with its slots in the balanced order."""
        slots = cut.slots
        if slots is None or slots >= value.type.rank:
            return value
        key = value, slots
        if key not in self._slots:
            self._slots[key] = self._made(b, value, Cut(cut.tokens, slots))
        return self._slots[key]

    def _made(self, b: Builder, value: Value, cut: Cut) -> Value:
        """The same of its operands, where it is made of what has slots, else of itself."""
        op, slots = value.op, cut.slots
        assert slots is not None
        if op is None:
            return self._take(b, value, slots)
        if op.name == "key_distance":
            return self._distance(b, op)
        alike = op.name == "broadcast_in_dim" or OPS[op.name].has(Trait.ELEMENTWISE)
        if op.name != "attention_mask" and not alike:
            return self._take(b, value, slots)
        cuts = operand_cuts(op, cut)
        parts = [self._by_slots(b, x, each) for x, each in zip(op.operands, cuts, strict=True)]
        return b.emit(op.name, parts, dict(op.attrs)).result

    def _distance(self, b: Builder, op: Op) -> Value:
        """Numbers of the slots in the balanced order, minus positions."""
        shape = op.result.shape
        plain = b.iota(s32, (shape[2],), 0)
        numbers = b.broadcast_in_dim(self._take(b, plain, 0), shape, [2])
        positions = b.broadcast_in_dim(op.operands[0], shape, [0, 1])
        return b.convert(b.binary("subtract", numbers, positions), f32)

    def _outputs(self) -> None:
        """Give tokens back in their order."""
        b = Builder(self.function)
        for name, value in list(self.function.outputs):
            if self.module.interface[name].role is Role.OUTPUT:
                for dim in self._tokens(value):
                    whole = self._take(b, value, dim, back=True)
                    self.function.outputs.set(name, whole)
