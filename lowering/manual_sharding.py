"""Sharded programs before XLA splits them, as one program that all ranks run.

In JAX's ``shard_map`` a part of a program is written for one device, between two custom calls: the
first takes a device's part of each array, the second puts the parts together. Here every rank
holds the arrays outside whole: a part is a slice by the rank, and parts are gathered. Statements of
shardings change no number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.ir import WHOLE_ARRAYS, AttrValue, Function, Module, Op, Value, attrs_of
from graphgen.lowering.hlo.annotations import SHARDING, frontend_map
from graphgen.lowering.hlo.partitioning import partitioning_of
from graphgen.lowering.hlo_text.hlo_sharding import HloSharding, parse_sharding
from graphgen.lowering.in_place import ops_after, replace_op
from graphgen.lowering.rank_parts import RankParts, Tiles, tiles_of
from graphgen.lowering.stablehlo.manual_computation import TO_GLOBAL, TO_LOCAL
from graphgen.lowering.stablehlo.shardy import SHARDING as SHARDY
from graphgen.lowering.stablehlo.shardy import ShardyMesh, meshes_of_module, value_shardings
from graphgen.ops import make_attrs

# The targets of JAX before Shardy.
OLD_TO_LOCAL: Final = "SPMDFullToShardShape"
OLD_TO_GLOBAL: Final = "SPMDShardToFullShape"
# The target of a result that a jit states the sharding of.
RESULT_SHARDING: Final = "xla.sdy.FuncResultSharding"
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


def note_result_shardings(module: Module) -> None:
    """Annotate functions with the shardings of results that custom calls state, in place.

    The calls are gone where all ranks run the parts that are written for one device. Where these
    are so for some axes of the mesh alone, the others are left to XLA.
    """
    meshes = meshes_of_module(module)
    for function in module.functions.values() if meshes else ():
        found: dict[str, AttrValue] = {}
        for place, (_, value) in enumerate(function.outputs):
            sharding = _stated(value, meshes)
            if sharding is not None:
                found[result_sharding(place)] = sharding.text
        if found:
            function.annotations = attrs_of({**found, **dict(function.annotations.items())})


def result_sharding(place: int) -> str:
    """The annotation of a function that has the sharding of a result."""
    return f"hlo.result{place}.sharding"


def _stated(value: Value, meshes: Mapping[str, ShardyMesh]) -> HloSharding | None:
    """The sharding of a result that the custom call before it states."""
    op = value.op
    target = "" if op is None else _target(op)
    if op is None or target not in (RESULT_SHARDING, TO_GLOBAL):
        return None
    entries = frontend_map(op.annotations)
    axes = [axis for mesh in meshes.values() for axis, _ in mesh.axes]
    if target == RESULT_SHARDING:
        found = value_shardings(entries.get(SHARDY, ""), meshes, axes)
    else:
        manual = _MANUAL_AXES.findall(entries.get("xla.sdy.manual_axes", ""))
        text = "" if {*axes} - {*manual} else entries.get("xla.sdy.out_shardings", "")
        found = value_shardings(text, meshes, manual)
    return found[op.results.index(value)] if len(found) == len(op.results) else None


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
        self.shardings = self._shardings(meshes)

    def write(self) -> None:
        """Replace the custom call."""
        with ops_after(self.function, self.op) as b:
            made = self._made(RankParts(b, self.ranks))
        replace_op(self.function, self.op, made)

    def _made(self, ops: RankParts) -> list[Value]:
        made: list[Value] = []
        for value, result, sharding in zip(
            self.op.operands, self.op.results, self.shardings, strict=True
        ):
            whole, part = (value, result) if self.to_local else (result, value)
            tiles = self._tiles(sharding, whole, part)
            if self.to_local:
                made.append(ops.part(value, part.type, tiles))
            else:
                made.append(ops.whole(value, tiles))
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

    def _tiles(self, sharding: HloSharding, whole: Value, part: Value) -> Tiles:
        try:
            return tiles_of(sharding, whole.type, part.type, self.ranks)
        except GraphgenError as error:
            raise self._error(error.what) from error

    def _error(self, what: str) -> GraphgenError:
        return GraphgenError("GG0205", f"{self.target}: {what}", where=repr(self.op.loc))
