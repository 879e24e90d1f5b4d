"""Match layers with windowed attention, and their cache updates and reads per program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.ir import Function, Module, Op, Role, Value
from graphgen.ops.attention import attention_terms
from graphgen.passes.core import NoMatch, no_match

# Inputs of language models with the positions of tokens.
_POSITION_INPUTS = ("positions", "lengths", "seq_ids")
# Attributes of masks that limit what a token reads.
REACH = ("window", "chunk")
# Ops of one operand, row by row.
_WIDENING = ("convert",)


@dataclass(frozen=True, slots=True)
class WindowLayer:
    """One layer's attention in one program.

    Attributes:
        function: the program.
        attention: the op.
        caches: the states of the keys and of the values, as the program takes them.
        updates: the ``kv_update`` of each.
        reads: the ``cache_read`` of each.
        widening: the ops between each read and the attention, in order: of caches in 8 bits.
        mask: the ``attention_mask``, or the ``tree_mask``.
        keys: the ``key_positions`` of the mask.
    """

    function: Function
    attention: Op
    caches: tuple[Value, ...]
    updates: tuple[Op, ...]
    reads: tuple[Op, ...]
    widening: tuple[tuple[Op, ...], ...]
    mask: Op
    keys: Op

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the caches."""
        return tuple(cache.name or "" for cache in self.caches)

    @property
    def window(self) -> int:
        """Positions a token reads at most, its own the last of them."""
        return _reach(self.mask)

    @property
    def reach(self) -> dict[str, int]:
        """The window and the chunk of the mask, as its attributes; 0 for none."""
        return {name: self.mask.attrs.integer(name) for name in REACH}

    @property
    def active(self) -> int:
        """S, tokens of a call."""
        return self.mask.operands[0].type.dims[1]

    @property
    def attended(self) -> int:
        """C, slots that are read."""
        return self.mask.result.type.dims[2]

    @property
    def slots(self) -> int:
        """M, slots of a cache row."""
        return self.caches[0].type.dims[1]

    @property
    def extends(self) -> bool:
        """True if calls continue the sequence, with one or a few tokens each."""
        return self.function.phase != "prefill"


def find_layer(module: Module, function: Function, attention: Op) -> WindowLayer | NoMatch:
    """The caches and the mask of an attention op, or the reason that they cannot be rings."""
    _, *read, masked = attention.operands[:4]
    mask = masked.producer("attention_mask") or masked.producer("tree_mask")
    if mask is None:
        return no_match("the mask is made otherwise", masked)
    keys = mask.operands[1].producer("key_positions")
    if keys is None:
        return no_match("the cache is not one of plain rows", masked, depth=2)
    if not _reach(mask):
        return no_match("the layer reads all positions", masked, depth=3)
    terms = attention_terms(attention.operands)
    for at in (terms.distance, terms.bias):
        if at is not None:
            return no_match(
                "biases are measured from slot to slot", attention.operands[at], depth=4
            )
    found_reads: list[tuple[Op, ...]] = []
    for value in read:
        found = _read_of(value)
        if isinstance(found, NoMatch):
            return found
        found_reads.append(found)
    reads = tuple(ops[0] for ops in found_reads)
    widening = tuple(ops[1:] for ops in found_reads)
    updates: list[Op] = []
    for op in reads:
        found = _update_of(module, function, op, mask, keys)
        if isinstance(found, NoMatch):
            return found
        updates.append(found)
    caches = tuple(op.operands[0] for op in updates)
    return WindowLayer(function, attention, caches, tuple(updates), reads, widening, mask, keys)


def _reach(mask: Op) -> int:
    """Positions a token reads at most: those of its window or of its chunk; 0 for all."""
    return min((mask.attrs.integer(name) for name in REACH if mask.attrs.integer(name)), default=0)


def _read_of(value: Value) -> tuple[Op, ...] | NoMatch:
    """The ``cache_read`` of a value, and the ops that widen what a cache of 8 bits holds."""
    found: list[Op] = []
    while value.op is not None and value.op.name in _WIDENING:
        found.append(value.op)
        value = value.op.operands[0]
        if len(value.users) != 1:
            return no_match("something else reads it", value, depth=11)
    read = value.producer("cache_read")
    if read is None:
        return no_match("this is not read from a cache", value, depth=5)
    return (read, *reversed(found))


def _update_of(module: Module, function: Function, read: Op, mask: Op, keys: Op) -> Op | NoMatch:
    """The update before the read of a cache that only this attention reads."""
    update = read.operands[0].producer("kv_update")
    if update is None:
        return no_match("it is not read after its update", read.result, depth=6)
    cache, _, rows, slots = update.operands
    row = module.interface.get(cache.name or "")
    if cache.op is not None or row is None or row.role is not Role.STATE:
        return no_match("it is not a state", cache, depth=7)
    written: Value | None = slots
    if mask.name == "tree_mask":
        places = slots.producer("tree_slots")
        written = None if places is None else places.operands[0]
    said = (mask.operands[0], keys.operands[0], rows)
    if (written, rows) != (mask.operands[0], read.operands[1]):
        return no_match("it is written, read and masked at different positions", slots, depth=8)
    if any(value.op is not None or value.name not in _POSITION_INPUTS for value in said):
        return no_match("it is not the caller who says the positions", slots, depth=9)
    if function.outputs.get(row.name) is not update.result:
        return no_match("the update is not what is kept", update.result, depth=10)
    alone = (cache, update), (update.result, read), (read.result, None)
    for value, user in alone:
        if len(value.users) != 1 or (user is not None and user not in value.users):
            return no_match("something else reads it", value, depth=11)
    return update


def ring_slots(layers: Sequence[WindowLayer]) -> int | NoMatch:
    """The smallest ring for the caches of one layer, of which there is one in each program.

    A call of S tokens overwrites the S oldest slots before its first token reads. That token reads
    ``window`` positions with its own, so S - 1 more are needed; and what a later call would then
    take back, as when guessed tokens are refused, is still in the window's place.
    """
    one = layers[0]
    if any(layer.reach != one.reach for layer in layers):
        return no_match("its window is another one in another program", one.mask.result, depth=12)
    ring = one.window + max((layer.active for layer in layers if layer.extends), default=1) - 1
    if ring >= one.slots:
        why = f"the {one.slots} slots of a row are no more than the ring needs, {ring}"
        return no_match(why, one.caches[0], depth=13)
    return ring
