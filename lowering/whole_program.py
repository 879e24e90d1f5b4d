"""Programs that XLA has split over partitions, as programs of whole arrays on all ranks.

Each rank takes its part of every argument, runs the split program, and the parts of the results
are gathered: the program before it was split, which can be compared with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import (
    WHOLE_ARRAYS,
    AttrValue,
    Entry,
    Function,
    Module,
    Role,
    TensorType,
    Value,
)
from graphgen.ir.clone import clone_module
from graphgen.ir.loc import UNKNOWN
from graphgen.lowering.hlo.annotations import SHARDING
from graphgen.lowering.hlo.partitioning import partitioning_of
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.hlo_text.hlo_sharding import HloSharding, parse_sharding, read_sharding
from graphgen.lowering.manual_sharding import result_sharding
from graphgen.lowering.rank_parts import RankParts, Tiles, tiles_of

# HloModuleProto.spmd_output_sharding.
_OUTPUTS, _NUMBER = "hlo.field_12", 12
REPLICATED = HloSharding("replicated")


@dataclass(frozen=True, slots=True)
class WholeProgram:
    """A split program as one of whole arrays.

    Attributes:
        module: with it.
        assumed: results of which no file states the sharding, with the one that their sizes say.
    """

    module: Module
    assumed: tuple[str, ...]


def is_split(module: Module) -> bool:
    """True for a module of one program that XLA has split over partitions."""
    if module.meta.get("format") != "hlo" or len(module.programs()) != 1:
        return False
    if WHOLE_ARRAYS in module.meta:
        return False
    found = partitioning_of(module)
    return found is not None and not found.before and found.partitions > 1 == found.replicas


def of_whole_arrays(split: Module, whole: Module) -> WholeProgram | None:
    """A split program that takes and gives what the program before it does.

    Args:
        split: the module after XLA's partitioner; it is not changed.
        whole: the one before it, of one program, of which arguments and results have the types.

    Returns:
        ``None`` where arguments and results cannot be paired in order, or have the same types.

    Raises:
        GraphgenError: GG0205 for a sharding that does not make the parts that the program has.
    """
    (theirs,), ours = split.programs(), whole.programs()
    if len(ours) != 1:
        return None
    wanted = [value.type for value in ours[0].args], [value.type for _, value in ours[0].outputs]
    given = [value.type for value in theirs.args], [value.type for _, value in theirs.outputs]
    if given == wanted or not all(map(_are_parts, wanted, given)):
        return None
    ranks = split.ranks
    texts = [str(value.annotations.get(SHARDING, "{replicated}")) for value in theirs.args]
    stated = _results(split, ours[0], len(given[1]))
    guessed = [_guessed(w, p, ranks) for w, p in zip(wanted[1], given[1], strict=True)]
    results = [one or other for one, other in zip(stated, guessed, strict=True)]
    sides = (
        (wanted[0], given[0], [parse_sharding(text) for text in texts]),
        (wanted[1], given[1], results),
    )
    inside, outside = ([_tiles(*row, ranks) for row in zip(*side, strict=True)] for side in sides)
    names = [name for name, _ in theirs.outputs]
    assumed = [
        f"{name} {sharding.text}"
        for name, own, sharding, tiles in zip(names, stated, results, outside, strict=True)
        if own is None and tiles
    ]
    return WholeProgram(_around(split, wanted, inside, outside), tuple(assumed))


def _are_parts(wanted: Sequence[TensorType], given: Sequence[TensorType]) -> bool:
    return len(wanted) == len(given) and all(
        whole.static and whole.dtype is part.dtype and whole.rank == part.rank
        for whole, part in zip(wanted, given, strict=True)
    )


def _results(split: Module, before: Function, count: int) -> list[HloSharding | None]:
    """The sharding of each result, as the split module or the one before it states it."""
    text = split.meta.get(_OUTPUTS, "")
    message = Message(bytes.fromhex(text)).message(_NUMBER) if text else None
    if message is not None:
        found = read_sharding(message)
        members = list(found.members) if found.kind == "tuple" else [found]
        if len(members) == count:
            return [*members]
    own = [before.annotations.get(result_sharding(place)) for place in range(count)]
    return [parse_sharding(str(item)) if item else None for item in own]


def _guessed(whole: TensorType, part: TensorType, ranks: int) -> HloSharding:
    """The sharding that explains the sizes of a whole array and of a part."""
    counts = [n // p if p else 1 for n, p in zip(whole.dims, part.dims, strict=True)]
    made = 1
    for count in counts:
        made *= count
    if made == 1 or ranks % made:
        return REPLICATED
    dims, copies = tuple(counts), ranks // made
    dims = (*dims, copies) if copies > 1 else dims
    return HloSharding("devices", dims, iota=((ranks,), (0,)), last_replicated=copies > 1)


def _tiles(whole: TensorType, part: TensorType, sharding: HloSharding, ranks: int) -> Tiles:
    try:
        return tiles_of(sharding, whole, part, ranks)
    except GraphgenError as error:
        error.help = (
            "graphgen equiv A B --relation NAME=shard{-,@} states the layout of a value; "
            "graphgen prove A B --relate NAME:{-,@} proves it for all inputs"
        )
        raise


def _around(
    split: Module,
    types: tuple[Sequence[TensorType], Sequence[TensorType]],
    inside: Sequence[Tiles],
    outside: Sequence[Tiles],
) -> Module:
    """A copy of the module whose program calls the one that it had."""
    made = clone_module(split)
    (inner,) = made.programs()
    program = Function(inner.name, inner.phase)
    del made.functions[inner.name]
    inner.name = f"{inner.name}.of_a_rank"
    inner.phase = ""
    b = Builder(program, made, loc=UNKNOWN)
    ops = RankParts(b, split.ranks)
    parts = [
        ops.part(program.block.add_arg(type_, value.name or ""), value.type, tiles)
        for type_, value, tiles in zip(types[0], inner.args, inside, strict=True)
    ]
    results = tuple([value.type for _, value in inner.outputs])
    attrs: dict[str, AttrValue] = {"to_apply": inner.name, "results": results}
    called = b.emit("call", parts, attrs).results
    names = [name for name, _ in inner.outputs]
    outputs: list[tuple[str, Value]] = []
    for (_, own), name, value, tiles in zip(inner.outputs, names, called, outside, strict=True):
        b.loc = UNKNOWN if own.op is None else own.op.loc
        outputs.append((name, ops.whole(value, tiles)))
    program.outputs = outputs
    made.add(inner)
    made.add(program)
    rows = [(value.name or "", value.type, Role.INPUT) for value in program.args]
    rows += [(name, value.type, Role.OUTPUT) for name, value in outputs]
    made.interface.clear()
    made.interface.update({n: Entry(role, n, type_, type_) for n, type_, role in rows})
    made.meta[WHOLE_ARRAYS] = "true"
    return made
