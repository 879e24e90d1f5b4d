"""Caches of layers with a sliding window become rings that hold no more than the window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from graphgen.build import Builder
from graphgen.ir import Function, Module, Op, Value
from graphgen.ir.dtype import s32
from graphgen.passes.core import NoMatch, Pass, Rewriter, no_match, register
from graphgen.passes.kv_cache.rolled_layout import RolledLayout
from graphgen.passes.kv_cache.window_layers import WindowLayer, find_layer, ring_slots
from graphgen.passes.weights.layout_change import repack


@dataclass(frozen=True, slots=True)
class SharedRing:
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
_Key = tuple[Function, Value, Value, tuple[int, ...], RolledLayout]


@dataclass(slots=True)
class RingProgram:
    """Changes the programs of a module, layer by layer.

    Attributes:
        rewriter: of the pass.
        shared: by program, caller's numbers, window and layout.
    """

    rewriter: Rewriter
    shared: dict[_Key, SharedRing] = field(default_factory=dict[_Key, SharedRing])

    def roll(self, layer: WindowLayer, ring: int) -> None:
        """Let the caches of one layer have ``ring`` slots in one program.

        A program that attends to no more slots than there are goes on as before: its positions are
        below their number.
        """
        layout = RolledLayout(layer.slots, ring)
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

    def _shared(self, layer: WindowLayer, layout: RolledLayout) -> SharedRing:
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


def _shared(b: Builder, layer: WindowLayer, layout: RolledLayout) -> SharedRing:
    """The slots and the mask of a program, by the functions of the layout."""
    (positions, _, *ancestors), (lengths,) = layer.mask.operands, layer.keys.operands
    ring, reach = layout.ring, layer.reach
    if ancestors:
        # Slots are given out as if the nodes of a tree followed each other, and no node overtakes.
        slots = layout.slot_of(b, b.op("tree_slots", positions))
        keys = layout.position_of(b, lengths, ring)
        return SharedRing(slots, b.op("tree_mask", positions, keys, *ancestors, **reach))
    slots = layout.slot_of(b, positions)
    if not _overtakes(layer, ring):
        keys = layout.position_of(b, lengths, ring)
        return SharedRing(slots, b.attention_mask(positions, keys, **reach))
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
    return SharedRing(slots, b.attention_mask(positions, keys, **reach))


_RULE = "roll-layer"


@register
@dataclass(frozen=True)
class RollWindowCache(Pass):
    """Shrink caches of layers with a window of W positions to W slots: position p is in p mod W.

    Chunks of W positions are such a window. Layers without one keep their caches. Programs that
    attend to no more slots than the ring has stay as they are. In the others each token is written
    to its slot, unless a newer one of the same call takes it, and masks go by the position that a
    slot holds. Where a call's tokens would overwrite what its first ones read, they read the ring
    as it was and each other; where a decoding call has S tokens, the ring has S - 1 slots more, so
    that these may be taken back.

    Given:
        module @m level=canonical {
          input %new : f32[2,1,1,4]
          input %positions : s32[2,1]
          input %lengths : s32[2]
          input %seq_ids : s32[2]
          state %k : f32[2,8,1,4]
          state %v : f32[2,8,1,4]
          output %y : f32[2,1,1,4]
        }

        func @f phase=decode {
          arg %k : f32[2,8,1,4]
          arg %v : f32[2,8,1,4]
          arg %new : f32[2,1,1,4]
          arg %positions : s32[2,1]
          arg %lengths : s32[2]
          arg %seq_ids : s32[2]
          %p = key_positions(%lengths) attended=8 : s32[2,8]
          %m = attention_mask(%positions, %p) window=4 : pred[2,1,8]
          %0 = kv_update(%k, %new, %seq_ids, %positions) : f32[2,8,1,4]
          %1 = cache_read(%0, %seq_ids) attended=8 : f32[2,8,1,4]
          %2 = kv_update(%v, %new, %seq_ids, %positions) : f32[2,8,1,4]
          %3 = cache_read(%2, %seq_ids) attended=8 : f32[2,8,1,4]
          %y = attention(%new, %1, %3, %m) scale=0.5 : f32[2,1,1,4]
          return k = %0
          return v = %2
          return y = %y
        }

    Result:
        module @m level=canonical {
          input %new : f32[2,1,1,4]
          input %positions : s32[2,1]
          input %lengths : s32[2]
          input %seq_ids : s32[2]
          state %k : f32[2,8,1,4] as f32[2,4,1,4] pack=@pack.f32.2x8x1x4.ring4 \
unpack=@unpack.f32.2x8x1x4.ring4 last=4
          state %v : f32[2,8,1,4] as f32[2,4,1,4] pack=@pack.f32.2x8x1x4.ring4 \
unpack=@unpack.f32.2x8x1x4.ring4 last=4
          output %y : f32[2,1,1,4]
        }

        func @f phase=decode {
          arg %k : f32[2,4,1,4]
          arg %v : f32[2,4,1,4]
          arg %new : f32[2,1,1,4]
          arg %positions : s32[2,1]
          arg %lengths : s32[2]
          arg %seq_ids : s32[2]
          %0 = constant() value=s32[](0) : s32[]
          %1 = broadcast_in_dim(%0) shape=[2,1] : s32[2,1]
          %2 = compare(%positions, %1) direction=GE : pred[2,1]
          %3 = constant() value=s32[](8) : s32[]
          %4 = broadcast_in_dim(%3) shape=[2,1] : s32[2,1]
          %5 = compare(%positions, %4) direction=LT : pred[2,1]
          %6 = and(%2, %5) : pred[2,1]
          %7 = constant() value=s32[](3) : s32[]
          %8 = broadcast_in_dim(%7) shape=[2,1] : s32[2,1]
          %9 = and(%positions, %8) : s32[2,1]
          %10 = constant() value=s32[](-1) : s32[]
          %11 = broadcast_in_dim(%10) shape=[2,1] : s32[2,1]
          %12 = select(%6, %9, %11) : s32[2,1]
          %13 = constant() value=s32[](8) : s32[]
          %14 = broadcast_in_dim(%13) shape=[2] : s32[2]
          %15 = minimum(%lengths, %14) : s32[2]
          %16 = constant() value=s32[](1) : s32[]
          %17 = broadcast_in_dim(%16) shape=[2] : s32[2]
          %18 = subtract(%15, %17) : s32[2]
          %19 = broadcast_in_dim(%18) shape=[2,4] dimensions=[0] : s32[2,4]
          %20 = iota() dtype=s32 shape=[2,4] dimension=1 : s32[2,4]
          %21 = subtract(%19, %20) : s32[2,4]
          %22 = constant() value=s32[](3) : s32[]
          %23 = broadcast_in_dim(%22) shape=[2,4] : s32[2,4]
          %24 = and(%21, %23) : s32[2,4]
          %25 = subtract(%19, %24) : s32[2,4]
          %26 = attention_mask(%positions, %25) window=4 : pred[2,1,4]
          %27 = kv_update(%k, %new, %seq_ids, %12) : f32[2,4,1,4]
          %28 = cache_read(%27, %seq_ids) attended=4 : f32[2,4,1,4]
          %29 = kv_update(%v, %new, %seq_ids, %12) : f32[2,4,1,4]
          %30 = cache_read(%29, %seq_ids) attended=4 : f32[2,4,1,4]
          %y = attention(%new, %28, %30, %26) scale=0.5 : f32[2,1,1,4]
          return k = %27
          return v = %29
          return y = %y
        }

        func @pack.f32.2x8x1x4.ring4 {
          arg %whole : f32[2,8,1,4]
          arg %rank : s32[1]
          %0 = slice(%whole) start_indices=[0,0,0,0] limit_indices=[2,4,1,4] : f32[2,4,1,4]
          return part = %0
        }

        func @unpack.f32.2x8x1x4.ring4 {
          arg %parts : f32[1,2,4,1,4]
          %0 = concatenate(%parts, %parts) dimension=2 : f32[1,2,8,1,4]
          %1 = slice(%0) start_indices=[0,0,0,0,0] limit_indices=[1,2,8,1,4] : f32[1,2,8,1,4]
          %2 = reshape(%1) shape=[2,8,1,4] : f32[2,8,1,4]
          return whole = %2
        }
    """

    name: ClassVar[str] = "roll-window-cache"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    requires: ClassVar[tuple[str, ...]] = ("specialized",)
    # Scores are the same numbers in another order, and 16-bit types round their sums differently.
    rounding: ClassVar[float] = 2e-2

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """WindowLayer by layer, each in all programs at once: they share its caches."""
        rings, made = RingProgram(rewriter), Counter[tuple[int, int]]()
        for layers in _layers(module, rewriter):
            if rewriter.exhausted:
                return
            one = layers[0]
            ring, slots = ring_slots(layers), one.slots
            if isinstance(ring, NoMatch):
                rewriter.decline(one.function, _RULE, one.attention, ring)
                continue
            with rewriter.joined():
                for layer in layers:
                    rings.roll(layer, ring)
                for state in one.states:
                    _keep_last(module, state, ring)
            what = f"rings of {ring} for {' and '.join(one.states)}"
            rewriter.note(one.function, what, one.updates[0])
            made[slots, ring] += 1
        for (slots, ring), count in made.items():
            rewriter.remark(
                f"the caches of {count} layers hold {ring} positions instead of {slots}"
            )
        if not made:
            rewriter.remark("no layer has a window that is smaller than its caches")


def _layers(module: Module, rewriter: Rewriter) -> Iterator[Sequence[WindowLayer]]:
    """Each layer that has a window: one for every program that has its caches."""
    found: dict[tuple[str, ...], list[WindowLayer]] = {}
    for function in module.programs():
        for op in function.ops:
            if op.name != "attention":
                continue
            layer = find_layer(module, function, op)
            if isinstance(layer, WindowLayer):
                found.setdefault(layer.states, []).append(layer)
            else:
                rewriter.decline(function, _RULE, op, layer)
    programs = [{value.name for value in f.args} for f in module.programs()]
    for states, layers in found.items():
        taking = sum(not names.isdisjoint(states) for names in programs)
        if len(layers) == taking:
            yield layers
            continue
        why = no_match(
            "another program does something else with the cache", layers[0].caches[0], depth=14
        )
        rewriter.decline(layers[0].function, _RULE, layers[0].attention, why)


def _keep_last(module: Module, state: str, ring: int) -> None:
    """Say in the interface that a state is a ring now."""
    row = module.interface[state]
    layout = RolledLayout(row.physical.dims[1], ring)
    physical = layout.physical(row.physical)
    repack(module, row, physical, f"ring{ring}", (layout.pack, layout.unpack))
    module.interface[state] = replace(module.interface[state], last=ring)
