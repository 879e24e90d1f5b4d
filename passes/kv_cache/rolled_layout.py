"""The layout of a ring: position p of a row is in slot p modulo the slots of the ring."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import Dim, TensorType, Value, tensor
from graphgen.ir.dtype import s32


@dataclass(frozen=True, slots=True)
class RolledLayout:
    """A :class:`~graphgen.models.family_module.CacheLayout` that keeps the newest positions.

    Attributes:
        slots: M, slots of a plain row; later positions are dropped by it, and so they are here.
        ring: W, slots of a row of this layout.
    """

    slots: int
    ring: int

    def physical(self, plain: TensorType) -> TensorType:
        """The type of the rings of a cache [R,M,...]."""
        return tensor(plain.dtype, (plain.shape[0], self.ring, *plain.shape[2:]))

    def slot_of(self, b: Builder, positions: Value) -> Value:
        """The position modulo W; -1 for padding and from position M on."""
        real = b.compare(positions, b.full(0, positions.type), "GE")
        inside = b.compare(positions, b.full(self.slots, positions.type), "LT")
        kept = b.binary("and", real, inside)
        return b.select(kept, b.modulo(positions, self.ring), b.full(-1, positions.type))

    def position_of(self, b: Builder, lengths: Value, attended: Dim) -> Value:
        """The newest position below the length in each slot; from -W to -1 in an empty one."""
        shape = (lengths.shape[0], attended)
        lengths = b.binary("minimum", lengths, self.slots)
        newest = b.broadcast_in_dim(b.binary("subtract", lengths, 1), shape, [0])
        # A row without tokens has the newest position -1, so this is -W at the least.
        steps_back = b.modulo(b.binary("subtract", newest, b.iota(s32, shape, 1)), self.ring)
        return b.binary("subtract", newest, steps_back)

    def pack(self, b: Builder, part: Value, rank: Value) -> Value:
        """The first W slots; :class:`~graphgen.exec.ring_buffer.RingOccupancy` turns rows to it."""
        return b.slice_dim(part, 1, 0, self.ring)

    def unpack(self, b: Builder, parts: Value) -> Value:
        """The slots of position p modulo W, for all p below M."""
        rounds = b.concatenate([parts] * -(-self.slots // self.ring), 2)
        return b.slice_dim(rounds, 2, 0, self.slots)
