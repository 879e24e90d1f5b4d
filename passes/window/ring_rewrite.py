"""Rewrite a program for a ring cache: its layout gives the slots, and the positions of the mask."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphgen.build import Builder
from graphgen.ir import Function, Op, Value
from graphgen.ir.dtype import s32
from graphgen.passes.core import Rewriter
from graphgen.passes.window.rolled_layout import RolledRows
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


# Program, positions, lengths, window and chunk, layout.
_Key = tuple[Function, Value, Value, tuple[int, ...], RolledRows]


@dataclass(slots=True)
class Rings:
    """Changes the programs of a module, layer by layer.

    Attributes:
        rewriter: of the pass.
        shared: by program, caller's numbers, window and layout.
    """

    rewriter: Rewriter
    shared: dict[_Key, Shared] = field(default_factory=dict[_Key, Shared])

    def roll(self, layer: WindowLayer, ring: int) -> None:
        """Let the caches of one layer have ``ring`` slots in one program.

        A program that attends to no more slots than there are goes on as before: its positions are
        below their number.
        """
        layout = RolledRows(layer.slots, ring)
        shared = self._shared(layer, layout) if layer.attended > ring else None
        for cache, update in zip(layer.caches, layer.updates, strict=True):
            cache.type = update.result.type = layout.physical(cache.type)
        if shared is None:
            return
        read: list[Value] = []
        for op, update, widening in zip(layer.reads, layer.updates, layer.widening, strict=True):
            b = self.rewriter.before(layer.function, op)
            if _overtakes(layer, ring):
                old = self._read(layer, op, update.operands[0], update)
                found = b.concatenate([old, update.operands[1]], 1)
            else:
                found = self._read(layer, op, update.result, op)
            for step in widening:
                found = b.emit(step.name, (found,), dict(step.attrs)).result
            read.append(found)
            update.set_operands((*update.operands[:3], shared.slots))
        self._attend(layer, read, shared.mask)

    def _shared(self, layer: WindowLayer, layout: RolledRows) -> Shared:
        positions, lengths = layer.mask.operands[0], layer.keys.operands[0]
        key = layer.function, positions, lengths, tuple(layer.reach.values()), layout
        found = self.shared.get(key)
        if found is None:
            # It depends on what the program is given alone, so every layer finds it at the top.
            first = layer.function.block.first
            assert first is not None
            b = self.rewriter.before(layer.function, first)
            b.loc = layer.mask.loc.through(self.rewriter.pass_name)
            found = self.shared[key] = _shared(b, layer, layout)
        return found

    def _read(self, layer: WindowLayer, read: Op, cache: Value, before: Op) -> Value:
        """All slots of a ring, as ``read`` reads some."""
        b = self.rewriter.before(layer.function, before)
        attrs = {**read.attrs, "attended": cache.shape[1]}
        return b.emit("cache_read", (cache, read.operands[1]), attrs).result

    def _attend(self, layer: WindowLayer, read: list[Value], mask: Value) -> None:
        op, function = layer.attention, layer.function
        b = self.rewriter.before(function, op)
        operands = (op.operands[0], *read, mask, *op.operands[4:])
        made = b.emit("attention", operands, dict(op.attrs)).result
        self.rewriter.replace(function, op, [made])
        for old, widening in zip(layer.reads, layer.widening, strict=True):
            for step in (*reversed(widening), old):
                self.rewriter.erase(function, step)
        for old in (layer.mask, layer.keys):
            if not old.result.users:
                self.rewriter.erase(function, old)


def _overtakes(layer: WindowLayer, ring: int) -> bool:
    """True if the tokens of one call may overwrite slots that its first ones read."""
    return layer.active > ring - layer.window + 1


def _shared(b: Builder, layer: WindowLayer, layout: RolledRows) -> Shared:
    """The slots and the mask of a program, by the functions of the layout."""
    (positions, _, *ancestors), (lengths,) = layer.mask.operands, layer.keys.operands
    ring, reach = layout.ring, layer.reach
    if ancestors:
        # Slots are given out as if the nodes of a tree followed each other, and no node overtakes.
        slots = layout.slot_of(b, b.op("tree_slots", positions))
        keys = layout.position_of(b, lengths, ring)
        return Shared(slots, b.op("tree_mask", positions, keys, *ancestors, **reach))
    slots = layout.slot_of(b, positions)
    if not _overtakes(layer, ring):
        keys = layout.position_of(b, lengths, ring)
        return Shared(slots, b.attention_mask(positions, keys, **reach))
    real = b.compare(slots, b.full(0, slots.type), "GE")
    # Slots beyond the cache were dropped, and still are.
    lengths = b.binary("minimum", lengths, layout.slots)
    earlier = b.binary("subtract", lengths, b.reduce(b.convert(real, s32), [1], "add"))
    # Before the update; then the tokens of the call, of which padding holds no position.
    own = b.select(real, positions, b.full(-1, positions.type))
    keys = b.concatenate([layout.position_of(b, earlier, ring), own], 1)
    if layer.active > ring:
        oldest = b.broadcast_in_dim(b.binary("subtract", lengths, ring), positions.shape, [0])
        kept = b.compare(positions, oldest, "GE")
        slots = b.select(kept, slots, b.full(-1, slots.type))
    return Shared(slots, b.attention_mask(positions, keys, **reach))
