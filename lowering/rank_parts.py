"""Slices of a rank's part of a whole array, and gathers of the parts of all ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import AttrValue, Literal, TensorType, Value, tensor
from graphgen.ir.dtype import encode, s32, u32
from graphgen.lowering.hlo_text.hlo_sharding import HloSharding
from graphgen.lowering.hlo_text.sharding_tiles import part_places

# Of each dimension that is split, the place of every rank's part along it.
Tiles = Mapping[int, tuple[int, ...]]


def tiles_of(sharding: HloSharding, whole: TensorType, part: TensorType, ranks: int) -> Tiles:
    """Place the part of each rank along each dimension that is split.

    Args:
        sharding: of the whole array.
        whole: its type.
        part: the type of a part.
        ranks: their number.

    Raises:
        GraphgenError: GG0205 for a sharding that makes no parts of this type.
    """
    sizes, parts = whole.dims, sharding.parts
    wanted = {
        d: n // p if p else 1
        for d, (n, p) in enumerate(zip(sizes, part.dims, strict=True))
        if n != p
    }
    if not wanted:
        return {}
    if sharding.kind != "devices":
        raise GraphgenError(
            "GG0205", f"{sharding.text} does not give each of {ranks} devices a part"
        )
    places = part_places(sharding, whole.rank, ranks)
    for dim, count in wanted.items():
        if parts[dim] != count or part.dims[dim] * count != sizes[dim]:
            what = f"{part.text} is not a part of {whole.text} by {sharding.text}"
            raise GraphgenError("GG0205", what)
    return {dim: tuple([place[dim] for place in places]) for dim in wanted}


class RankParts:
    """Writes the ops that cut arrays into the parts of ranks, and that gather them.

    Args:
        builder: appends them.
        ranks: number of ranks.
    """

    def __init__(self, builder: Builder, ranks: int) -> None:
        self._b = builder
        self._ranks = ranks
        self._rank: Value | None = None

    def part(self, x: Value, part: TensorType, tiles: Tiles) -> Value:
        """The part of this rank of a whole array."""
        for dim, places in tiles.items():
            x = self._slice(x, dim, places, part.dims[dim])
        return x

    def whole(self, x: Value, tiles: Tiles) -> Value:
        """The whole array of a part."""
        for dim, places in tiles.items():
            x = self._gathered(x, dim, places, tiles)
        return x

    def _slice(self, x: Value, dim: int, places: Sequence[int], size: int) -> Value:
        """The part of this rank along one dimension."""
        b = self._b
        if self._rank is None:
            opcode: dict[str, AttrValue] = {"opcode": "replica-id", "results": (tensor(u32, ()),)}
            self._rank = b.convert(b.emit("hlo.opaque", [], opcode).result, s32)
        numbers = b"".join([encode(s32, place * size) for place in places])
        starts = Literal(s32, (self._ranks,), numbers)
        table = b.emit("constant", [], {"value": starts}).result
        start = b.emit("dynamic_slice", [table, self._rank], {"slice_sizes": (1,)}).result
        start, zero = b.reshape(start, ()), b.literal(0, s32)
        at = [start if d == dim else zero for d in range(x.type.rank)]
        sizes = [size if d == dim else n for d, n in enumerate(x.type.dims)]
        return b.emit("dynamic_slice", [x, *at], {"slice_sizes": tuple(sizes)}).result

    def _gathered(self, x: Value, dim: int, places: Sequence[int], tiles: Tiles) -> Value:
        """The parts along one dimension, of the ranks that are alike in all others."""
        count = max(places) + 1
        members: dict[object, list[list[int]]] = {}
        for rank, place in enumerate(places):
            others = tuple([tiles[d][rank] for d in tiles if d != dim])
            members.setdefault(others, [[] for _ in range(count)])[place].append(rank)
        groups = [group for columns in members.values() for group in zip(*columns, strict=True)]
        attrs: dict[str, AttrValue] = {"dimension": dim, "replica_groups": tuple(groups)}
        return self._b.emit("all_gather", [x], attrs).result
