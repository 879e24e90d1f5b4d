"""Rewrite a program for a ring cache: slot = position mod ring, and a mask over the ring."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphgen.build import Builder
from graphgen.ir import Function, Op, Value, tensor
from graphgen.ir.dtype import s32
from graphgen.passes.core import Rewriter
from graphgen.passes.window.window_layers import WindowLayer


@dataclass(frozen=True, slots=True)
class Shared:
    """Values that all layers with one cache size and one window size share in a program.

    Attributes:
        slots: s32 [B,S], the slot of each token; -1 for padding, for what newer tokens overwrite,
            and for what the cache has no room for.
        mask: pred, over the slots of the ring after the update; or over those before it, followed
            by the tokens of the call.
    """

    slots: Value
    mask: Value


@dataclass(slots=True)
class Rings:
    """Changes the programs of a module, layer by layer.

    Attributes:
        rewriter: of the pass.
        shared: by program, caller's numbers, and sizes.
    """

    rewriter: Rewriter
    shared: dict[tuple[Function | Value | int, ...], Shared] = field(
        default_factory=dict[tuple[Function | Value | int, ...], Shared]
    )

    def roll(self, layer: WindowLayer, ring: int) -> None:
        """Let the caches of one layer have ``ring`` slots in one program.

        A program that attends to no more slots than there are goes on as before: its positions are
        below their number.
        """
        shared = self._shared(layer, ring) if layer.attended > ring else None
        for cache, update in zip(layer.caches, layer.updates, strict=True):
            rows, _, *rest = cache.shape
            cache.type = update.result.type = tensor(cache.dtype, (rows, ring, *rest))
        if shared is None:
            return
        read: list[Value] = []
        for op, update in zip(layer.reads, layer.updates, strict=True):
            if _overtakes(layer, ring):
                old = self._read(layer, op, update.operands[0], update)
                b = self.rewriter.before(layer.function, op)
                read.append(b.concatenate([old, update.operands[1]], 1))
            else:
                read.append(self._read(layer, op, update.result, op))
            update.set_operands((*update.operands[:3], shared.slots))
        self._attend(layer, read, shared.mask)

    def _shared(self, layer: WindowLayer, ring: int) -> Shared:
        key = layer.function, *layer.mask.operands, layer.window, layer.slots, ring
        found = self.shared.get(key)
        if found is None:
            # It depends on what the program is given alone, so every layer finds it at the top.
            first = layer.function.block.first
            assert first is not None
            b = self.rewriter.before(layer.function, first)
            b.loc = layer.mask.loc.through(self.rewriter.pass_name)
            found = self.shared[key] = _shared(b, layer, ring)
        return found

    def _read(self, layer: WindowLayer, read: Op, cache: Value, before: Op) -> Value:
        """All slots of a ring, as ``read`` reads some."""
        b = self.rewriter.before(layer.function, before)
        attrs = {**read.attrs, "attended": cache.shape[1]}
        return b.emit("cache_read", (cache, read.operands[1]), attrs).result

    def _attend(self, layer: WindowLayer, read: list[Value], mask: Value) -> None:
        op, function = layer.attention, layer.function
        b = self.rewriter.before(function, op)
        made = b.emit("attention", (op.operands[0], *read, mask), dict(op.attrs)).result
        self.rewriter.replace(function, op, [made])
        for old in layer.reads:
            self.rewriter.erase(function, old)
        if not layer.mask.result.users:
            self.rewriter.erase(function, layer.mask)


def _overtakes(layer: WindowLayer, ring: int) -> bool:
    """True if the tokens of one call may overwrite slots that its first ones read."""
    return layer.active > ring - layer.window + 1


def _shared(b: Builder, layer: WindowLayer, ring: int) -> Shared:
    positions, lengths = layer.mask.operands
    # What is beyond the cache was dropped, and is.
    lengths = b.binary("minimum", lengths, layer.slots)
    real = b.compare(positions, b.full(0, positions.type), "GE")
    real = b.binary("and", real, b.compare(positions, b.full(layer.slots, positions.type), "LT"))
    kept = real
    if layer.active > ring:
        oldest = b.broadcast_in_dim(b.binary("subtract", lengths, ring), positions.shape, [0])
        kept = b.binary("and", real, b.compare(positions, oldest, "GE"))
    slots = b.select(kept, b.modulo(positions, ring), b.full(-1, positions.type))
    if not _overtakes(layer, ring):
        return Shared(slots, b.attention_mask(positions, lengths, ring, layer.window, ring))
    earlier = b.binary("subtract", lengths, b.reduce(b.convert(real, s32), [1], "add"))
    past = b.attention_mask(positions, earlier, ring, layer.window, ring)
    return Shared(slots, b.concatenate([past, _each_other(b, positions, real, layer.window)], 2))


def _each_other(b: Builder, positions: Value, real: Value, window: int) -> Value:
    """pred [B,S,S]: which tokens of its own call a token reads."""
    shape = (*positions.shape, positions.shape[1])
    reader = b.broadcast_in_dim(positions, shape, [0, 1])
    token = b.broadcast_in_dim(positions, shape, [0, 2])
    causal = b.binary(
        "and", b.broadcast_in_dim(real, shape, [0, 2]), b.compare(token, reader, "LE")
    )
    first = b.binary("subtract", reader, window)
    return b.binary("and", causal, b.compare(token, first, "GT"))
