"""Sharded programs before XLA splits them, as one program that all ranks run.

In JAX's ``shard_map`` a part of a program is written for one device, between two custom calls: the
first takes a device's part of each array, the second puts the parts together. Here every rank
holds the arrays outside whole: a part is a slice by the rank, and parts are gathered. Statements of
shardings change no number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.ir import WHOLE_ARRAYS, AttrValue, Function, Literal, Module, Op, Value, tensor
from graphgen.ir.dtype import encode, s32, u32
from graphgen.lowering.hlo.annotations import SHARDING, frontend_map
from graphgen.lowering.hlo.partitioning import partitioning_of
from graphgen.lowering.hlo_text.hlo_sharding import HloSharding, parse_sharding
from graphgen.lowering.in_place import ops_after, replace_op
from graphgen.lowering.stablehlo.manual_computation import TO_GLOBAL, TO_LOCAL
from graphgen.lowering.stablehlo.shardy import ShardyMesh, meshes_of_module, value_shardings
from graphgen.ops import make_attrs

# The targets of JAX before Shardy.
OLD_TO_LOCAL: Final = "SPMDFullToShardShape"
OLD_TO_GLOBAL: Final = "SPMDShardToFullShape"
_BETWEEN: Final = (TO_LOCAL, TO_GLOBAL, OLD_TO_LOCAL, OLD_TO_GLOBAL)
_MANUAL_AXES: Final = re.compile(r'"([^"]*)"')


def has_manual_parts(module: Module) -> bool:
    """True for a module with parts that are written for one device."""
    return any(_target(op) in _BETWEEN for op in _ops(module))


def on_ranks(module: Module) -> Module:
    """Have all ranks run a program with parts for one device, in place; other modules stay.

    Raises:
        GraphgenError: GG0205 for a sharding that does not say which part a device has.
    """
    if not has_manual_parts(module):
        return module
    meshes = meshes_of_module(module)
    stated = partitioning_of(module)
    ranks = max(
        [stated.partitions if stated is not None else 1, *[mesh.size for mesh in meshes.values()]]
    )
    for function in module.functions.values():
        for op in list(function.block):
            if _target(op) in _BETWEEN:
                _Between(function, op, meshes, ranks).write()
            elif op.name == "hlo.opaque" and op.attrs.get("opcode") == "partition-id":
                # A launch of several ranks has replicas.
                attrs = dict(op.attrs.items())
                op.attrs = make_attrs(op.name, {**attrs, "opcode": "replica-id"})
    module.mesh.clear()
    module.mesh["replica"] = ranks
    module.level = "sharded"
    module.meta[WHOLE_ARRAYS] = "true"
    return module


def _ops(module: Module) -> list[Op]:
    return [op for function in module.functions.values() for op in function.block]


def _target(op: Op) -> str:
    return op.attrs.text("target") if op.name == "custom_call" else ""


class _Between:
    """The ops in the place of one of the custom calls."""

    def __init__(
        self, function: Function, op: Op, meshes: Mapping[str, ShardyMesh], ranks: int
    ) -> None:
        self.function = function
        self.op = op
        self.ranks = ranks
        self.target = _target(op)
        self.to_local = self.target in (TO_LOCAL, OLD_TO_LOCAL)
        self.rank: Value | None = None
        self.shardings = self._shardings(meshes)

    def write(self) -> None:
        """Replace the custom call."""
        with ops_after(self.function, self.op) as self.b:
            made = self._made()
        replace_op(self.function, self.op, made)

    def _made(self) -> list[Value]:
        made: list[Value] = []
        for value, result, sharding in zip(
            self.op.operands, self.op.results, self.shardings, strict=True
        ):
            whole, part = (value, result) if self.to_local else (result, value)
            tiles = self._tiles(sharding, whole, part)
            for dim, places in tiles.items():
                value = (
                    self._part(value, dim, places, part.type.dims[dim])
                    if self.to_local
                    else self._gathered(value, dim, places, tiles)
                )
            made.append(value)
        return made

    # ---- shardings -------------------------------------------------------------------------------

    def _shardings(self, meshes: Mapping[str, ShardyMesh]) -> list[HloSharding]:
        """Of each value, restricted to the axes over which the part is written for one device."""
        if self.target in (OLD_TO_LOCAL, OLD_TO_GLOBAL):
            return [self._old_sharding()]
        entries = frontend_map(self.op.annotations)
        key = "xla.sdy.in_shardings" if self.to_local else "xla.sdy.out_shardings"
        axes = _MANUAL_AXES.findall(entries.get("xla.sdy.manual_axes", ""))
        found = value_shardings(entries.get(key, ""), meshes, axes)
        if len(found) != len(self.op.operands) or any(each is None for each in found):
            raise self._error(f"cannot read {entries.get(key, 'no sharding'):.200}")
        return [each for each in found if each is not None]

    def _old_sharding(self) -> HloSharding:
        """Read the sharding of the operand that is split, or of the result that is put together."""
        noted = self.op.annotations
        if self.to_local:
            maker = self.op.operands[0].op
            noted = (maker or self.op.operands[0]).annotations
        text = str(noted.get(SHARDING, ""))
        if not text:
            raise self._error("no sharding states the part of a device")
        return parse_sharding(text)

    def _tiles(
        self, sharding: HloSharding, whole: Value, part: Value
    ) -> dict[int, tuple[int, ...]]:
        """Of each dimension that is split, the place of every rank's part along it."""
        sizes, parts = whole.type.dims, sharding.parts
        wanted = {
            d: n // p for d, (n, p) in enumerate(zip(sizes, part.type.dims, strict=True)) if n != p
        }
        if not wanted:
            return {}
        order = sharding.order
        if sharding.kind != "devices" or sorted(order) != list(range(self.ranks)):
            raise self._error(f"{sharding.text} does not give each of {self.ranks} devices a part")
        for dim, count in wanted.items():
            if parts[dim] != count or part.type.dims[dim] * count != sizes[dim]:
                what = f"{part.type.text} is not a part of {whole.type.text} by {sharding.text}"
                raise self._error(what)
        place = {device: number for number, device in enumerate(order)}
        found: dict[int, tuple[int, ...]] = {}
        for dim in wanted:
            inner = prod(sharding.dims[dim + 1 :])
            found[dim] = tuple([place[r] // inner % parts[dim] for r in range(self.ranks)])
        return found

    def _error(self, what: str) -> GraphgenError:
        return GraphgenError("GG0205", f"{self.target}: {what}", where=repr(self.op.loc))

    # ---- parts -----------------------------------------------------------------------------------

    def _part(self, x: Value, dim: int, places: Sequence[int], size: int) -> Value:
        """The part of this rank along one dimension."""
        if self.rank is None:
            opcode: dict[str, AttrValue] = {"opcode": "replica-id", "results": (tensor(u32, ()),)}
            number = self.b.emit("hlo.opaque", [], opcode).result
            self.rank = self.b.convert(number, s32)
        numbers = b"".join([encode(s32, place * size) for place in places])
        starts = Literal(s32, (self.ranks,), numbers)
        table = self.b.emit("constant", [], {"value": starts}).result
        start = self.b.emit("dynamic_slice", [table, self.rank], {"slice_sizes": (1,)}).result
        start, zero = self.b.reshape(start, ()), self.b.literal(0, s32)
        at = [start if d == dim else zero for d in range(x.type.rank)]
        sizes = [size if d == dim else n for d, n in enumerate(x.type.dims)]
        return self.b.emit("dynamic_slice", [x, *at], {"slice_sizes": tuple(sizes)}).result

    def _gathered(
        self, x: Value, dim: int, places: Sequence[int], tiles: Mapping[int, Sequence[int]]
    ) -> Value:
        """The parts along one dimension, of the ranks that are alike in all others."""
        count = max(places) + 1
        members: dict[object, list[list[int]]] = {}
        for rank, place in enumerate(places):
            others = tuple([tiles[d][rank] for d in tiles if d != dim])
            members.setdefault(others, [[] for _ in range(count)])[place].append(rank)
        groups = [group for columns in members.values() for group in zip(*columns, strict=True)]
        attrs: dict[str, AttrValue] = {"dimension": dim, "replica_groups": tuple(groups)}
        return self.b.emit("all_gather", [x], attrs).result
