"""Move collectives past other ops to send fewer bytes: before widening, after narrowing.

Collectives that only move elements (gather, all-to-all) go past elementwise ops; reductions
over ranks go past ops that drop elements or reduce alike.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import AttrValue, Op, Value
from graphgen.ops import Trait, ops_with
from graphgen.ops.linalg import REDUCERS
from graphgen.passes.core import NoMatch, Rule, no_match, rule
from graphgen.passes.core.rule import Replacement
from graphgen.passes.sharding.collective_cost import groups_of
from graphgen.passes.sharding.op_factors import nominal_bytes
from graphgen.passes.spmd.merge_rules import GROUPED, MergeContext

# Collectives whose results are elements of their operands, unchanged.
DATA_COLLECTIVES = ops_with(Trait.COLLECTIVE, Trait.DATA_MOVEMENT)


def move_rules(program: MergeContext) -> tuple[Rule, ...]:
    """The rules for one program."""
    return (
        _elementwise_before(program),
        _widening_behind(program),
        _broadcast_behind(program),
        _slice_before(program),
        _reduce_before(program),
    )


def _reaches_all(op: Op, ranks: int) -> bool:
    """True if every rank receives a part, so that none has zeros."""
    return op.name != "collective_permute" or len(groups_of(op)) == ranks


def _elementwise_before(program: MergeContext) -> Rule:
    @rule(*ops_with(Trait.ELEMENTWISE))
    def elementwise_before(op: Op, b: Builder) -> Replacement | NoMatch:
        """``f(gather(x), gather(y))`` is ``gather(f(x, y))``, where that is less to send.

        Between the two may be transposes and reshapes; other operands of ``f`` are one number
        everywhere.
        """
        found = _moved_operands(program, op)
        if isinstance(found, NoMatch):
            return found
        chains, first = found
        if len(chains) > 1 and any(len(chain) > 1 for chain in chains.values()):
            return no_match("of several operands some are turned around", op.operands[0])
        gone = [chain[-1] for chain in chains.values()]
        if op.result.dtype.bits >= sum([each.result.dtype.bits for each in gone]):
            return no_match("no less would be sent", first.result, depth=2)
        local = first.operands[0]
        parts = [
            chains[value][-1].operands[0] if value in chains else _one_number(b, value, local)
            for value in op.operands
        ]
        made = b.emit(op.name, parts, dict(op.attrs)).result
        made = b.emit(first.name, (made,), dict(first.attrs)).result
        for step in reversed(next(iter(chains.values()))[:-1]):
            made = b.emit(step.name, (made,), dict(step.attrs)).result
        return program.merged(b, [made], *gone)

    return elementwise_before


def _moved_operands(program: MergeContext, op: Op) -> tuple[dict[Value, list[Op]], Op] | NoMatch:
    """The operands that collectives move, each with its chain of ops, and the first collective."""
    chains: dict[Value, list[Op]] = {}
    for value in dict.fromkeys(op.operands):
        if value.type.shape != op.result.shape:
            return no_match("an operand has another shape", value, depth=3)
        chain = _chain(program, value, op)
        if chain is not None:
            chains[value] = chain
        elif not _is_one_number(value):
            return no_match("it is neither handed on nor one number everywhere", value, depth=4)
    if not op.result.dtype.is_number:
        return no_match(f"{op.result.dtype} is not a numeric type", op.result, depth=5)
    if not chains:
        return no_match("no operand is handed on by a collective", depth=6)
    first, *others = [chain[-1] for chain in chains.values()]
    if any(each.name != first.name or each.attrs != first.attrs for each in others):
        return no_match("the operands are not handed on alike", others[0].result, depth=7)
    if not _reaches_all(first, program.ranks):
        return no_match("some ranks are given zeros", first.result, depth=8)
    return chains, first


def _chain(program: MergeContext, value: Value, reader: Op) -> list[Op] | None:
    """The chain from a data collective to ``value`` through transposes and reshapes."""
    ops: list[Op] = []
    while value.op is not None and program.only(value, reader):
        reader = value.op
        ops.append(reader)
        if reader.name in DATA_COLLECTIVES:
            return ops
        if reader.name not in ("transpose", "reshape"):
            return None
        value = reader.operands[0]
    return None


def _is_one_number(value: Value) -> bool:
    spread = value.producer("broadcast_in_dim")
    return spread is not None and not spread.operands[0].shape


def _one_number(b: Builder, value: Value, like: Value) -> Value:
    spread = value.producer("broadcast_in_dim")
    assert spread is not None
    return b.broadcast_in_dim(spread.operands[0], like.shape, ())


def _widening_behind(program: MergeContext) -> Rule:
    @rule(*DATA_COLLECTIVES)
    def widening_behind(op: Op, b: Builder) -> Replacement | NoMatch:
        """``collective(widen(x)) = widen(collective(x))``."""
        convert = op.operands[0].producer("convert")
        if convert is None:
            return no_match("the operand is not converted", op.operands[0])
        (source,) = convert.operands
        if source.dtype.bits >= op.result.dtype.bits or not source.dtype.is_number:
            return no_match(f"{source.dtype} is not a narrower number", source, depth=2)
        made = b.emit(op.name, (source,), dict(op.attrs)).result
        return program.merged(b, [b.convert(made, op.result.dtype)], op)

    return widening_behind


def _broadcast_behind(program: MergeContext) -> Rule:
    @rule("all_reduce", "all_gather", "collective_permute")
    def broadcast_behind(op: Op, b: Builder) -> Replacement | NoMatch:
        """``collective(broadcast(x)) = broadcast(collective(x))``."""
        spread = op.operands[0].producer("broadcast_in_dim")
        if spread is None:
            return no_match("the operand repeats nothing", op.operands[0])
        (source,) = spread.operands
        if nominal_bytes(source.type) >= nominal_bytes(op.operands[0].type):
            return no_match("the operand is not larger than what it repeats", source, depth=2)
        attrs, dimensions = dict(op.attrs), spread.attrs.integers("dimensions")
        if op.name == "all_gather":
            dim = op.attrs.integer("dimension")
            at = dimensions.index(dim) if dim in dimensions else -1
            if at < 0 or source.shape[at] != op.operands[0].shape[dim]:
                return no_match("the gathered dimension is broadcast", source, depth=3)
            attrs["dimension"] = at
        made = b.emit(op.name, (source,), attrs).result
        return program.merged(b, [b.broadcast_in_dim(made, op.result.shape, dimensions)], op)

    return broadcast_behind


def _slice_before(program: MergeContext) -> Rule:
    @rule("slice")
    def slice_before(op: Op, b: Builder) -> Replacement | NoMatch:
        """``slice(collective(x)) = collective(slice(x))``."""
        source = op.operands[0].op
        if source is None or source.name not in (*GROUPED, "collective_permute"):
            return no_match("the operand is not the result of a collective", op.operands[0])
        if not program.only(source.result, op):
            return no_match("others read all of it", source.result, depth=2)
        if nominal_bytes(op.result.type) >= nominal_bytes(source.result.type):
            return no_match("nothing is left out", source.result, depth=3)
        whole, given = source.result.shape, source.operands[0].shape
        touched = _touched(source)
        starts, limits = op.attrs.dims("start_indices"), list(op.attrs.dims("limit_indices"))
        strides = op.attrs.integers("strides") or (1,) * len(limits)
        for dim in touched:
            if (starts[dim], limits[dim], strides[dim]) != (0, whole[dim], 1):
                return no_match("parts of ranks are left out", source.result, depth=4)
            limits[dim] = given[dim]
        attrs = {**op.attrs, "limit_indices": tuple(limits)}
        made = b.emit("slice", source.operands, attrs).result
        made = b.emit(source.name, (made,), dict(source.attrs)).result
        return program.merged(b, [made], source)

    return slice_before


def _touched(op: Op) -> Sequence[int]:
    """The dimensions that a collective splits or concatenates."""
    keys = ("dimension", "split_dimension", "concat_dimension")
    return [op.attrs.integer(key) for key in keys if key in op.attrs]


def _reduce_before(program: MergeContext) -> Rule:
    @rule("reduce")
    def reduce_before(op: Op, b: Builder) -> Replacement | NoMatch:
        """``reduce(collective(x)) = collective(reduce(x))``."""
        source = op.operands[0].op
        if source is None or source.name not in ("all_gather", "all_reduce"):
            return no_match("the operand is not the result of a collective", op.operands[0])
        if not program.only(source.result, op):
            return no_match("others read all of it", source.result, depth=2)
        collective = _behind_reduction(op, source)
        if isinstance(collective, NoMatch):
            return collective
        name, attrs = collective
        made = b.emit("reduce", source.operands, dict(op.attrs)).result
        return program.merged(b, [b.emit(name, (made,), attrs).result], source)

    return reduce_before


def _behind_reduction(op: Op, source: Op) -> tuple[str, dict[str, AttrValue]] | NoMatch:
    """The collective of the reduced value, and its attributes."""
    dims, kind = op.attrs.integers("dimensions"), op.attrs.text("kind")
    if source.name == "all_reduce":
        if source.attrs.text("kind") != kind:
            return no_match(
                f"{source.attrs.text('kind')} over ranks does not go with {kind}", depth=3
            )
        return "all_reduce", dict(source.attrs)
    dim, groups = source.attrs.integer("dimension"), groups_of(source)
    if dim not in dims:
        kept = dim - sum([reduced < dim for reduced in dims])
        return "all_gather", {**source.attrs, "dimension": kept}
    if kind not in REDUCERS:
        return no_match(f"no collective computes {kind}", depth=3)
    part = source.operands[0].type
    if 2 * nominal_bytes(op.result.type) >= len(groups[0]) * nominal_bytes(part):
        return no_match("no less would be sent", source.result, depth=4)
    return "all_reduce", {"kind": kind, "replica_groups": groups}
