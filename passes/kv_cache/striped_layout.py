"""The order of slots in stripes: slot s of a row is in stripe s modulo n, at place s div n."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.build.range_check import in_range
from graphgen.ir import TensorType, Value, tensor
from graphgen.ir.dtype import Kind, pred


@dataclass(frozen=True, slots=True)
class StripedLayout:
    """Slots in n stripes, one after the other, each as long as any other.

    The meaning of slots does not matter: positions of plain rows, or those of a ring. With one
    stripe a rank, ranks hold about as many of the slots that are filled, however many these are.

    Attributes:
        stripes: n.
    """

    stripes: int

    def padded(self, slots: int) -> int:
        """The number of slots, filled up to a multiple of the stripes."""
        return -(-slots // self.stripes) * self.stripes

    def physical(self, plain: TensorType) -> TensorType:
        """The type of the stripes of a cache [R,M,...]."""
        rows, slots, *window = plain.dims
        return tensor(plain.dtype, (rows, self.padded(slots), *window))

    def place_of(self, b: Builder, slots: Value, count: int) -> Value:
        """The places of ``slots`` s32 [B,S]; -1 for those outside of ``count`` plain slots."""
        inside = in_range(b, slots, count)
        stripe = b.modulo(slots, self.stripes)
        start = b.binary("multiply", stripe, self.padded(count) // self.stripes)
        place = b.binary("add", start, b.binary("divide", slots, self.stripes))
        return b.select(inside, place, b.full(-1, place.type))

    def striped(self, b: Builder, value: Value, dim: int) -> Value:
        """A value with a dimension of plain slots in the order of the stripes, filled up.

        Slots that are added hold false, -1 or, in floats and in bits of caches, 0: masks exclude
        them.
        """
        slots = value.shape[dim]
        assert isinstance(slots, int)
        size = self.padded(slots)
        if size != slots:
            value = self._filled(b, value, dim, size - slots)
        return _turned(b, value, dim, size // self.stripes)

    def plain(self, b: Builder, value: Value, dim: int, slots: int) -> Value:
        """The first ``slots`` plain slots of a dimension of stripes."""
        size = value.shape[dim]
        assert isinstance(size, int)
        whole = _turned(b, value, dim, self.stripes)
        return whole if size == slots else b.slice_dim(whole, dim, 0, slots)

    def joined(self, b: Builder, values: Sequence[Value], dim: int) -> Value:
        """Values in the order of the stripes as one: of each stripe the parts of all of them."""
        apart: list[Value] = []
        total = 0
        for value in values:
            shape = list(value.shape)
            size = shape[dim]
            assert isinstance(size, int)
            total += size
            parts = (self.stripes, size // self.stripes)
            apart.append(b.reshape(value, (*shape[:dim], *parts, *shape[dim + 1 :])))
        shape = list(values[0].shape)
        shape[dim] = total
        return b.reshape(b.concatenate(apart, dim + 1), shape)

    def _filled(self, b: Builder, value: Value, dim: int, more: int) -> Value:
        kind, none = value.dtype, [0] * value.type.rank
        # Unsigned integers are the bits of a cache.
        absent = 0.0 if kind.is_float else False if kind is pred else 0
        zero = -1 if kind.kind is Kind.SIGNED else absent
        high = [more if at == dim else 0 for at in range(value.type.rank)]
        return b.pad(value, b.literal(zero, kind), none, high)


def _turned(b: Builder, value: Value, dim: int, rows: int) -> Value:
    """A dimension as a matrix of ``rows`` rows, read column by column."""
    *outer, size = value.shape[: dim + 1]
    assert isinstance(size, int)
    apart = b.reshape(value, (*outer, rows, size // rows, *value.shape[dim + 1 :]))
    order = list(range(apart.type.rank))
    order[dim], order[dim + 1] = dim + 1, dim
    return b.reshape(b.transpose(apart, order), value.shape)
