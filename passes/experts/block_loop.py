"""A loop over blocks of tokens, which reads the matrices of a block in place.

A block without tokens reads none: experts of other ranks, tokens that are padding, and blocks that
this routing leaves empty cost nothing. The choice between the two also keeps XLA from widening all
16-bit weights before the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from graphgen.build import Builder
from graphgen.composites.experts import ExpertCall
from graphgen.ir import Attrs, AttrValue, Function, Loc, Op, TensorType, Value, tensor
from graphgen.ir.dtype import f32, pred, s32
from graphgen.passes.experts.block_products import adapters_of_block, mlp, weights_of
from graphgen.passes.experts.expert_choices import fixed
from graphgen.passes.experts.token_blocks import TokenBlocks
from graphgen.passes.outline.op_templates import OpKind
from graphgen.passes.outline.shared_functions import SharedFunctions

# A stored value [E,...] -> its part [n,...].
Choose = Callable[[Value], Value]
# The first operand of ``experts`` that is a weight.
_WEIGHTS = 3
_ELEMENTWISE = ("convert", "multiply", "add", "subtract", "divide")


def stored_values(weights: Sequence[Value]) -> list[Value]:
    """The values [E,...] that weights [E,...] are widened from, each once."""
    found: dict[Value, None] = {}
    for weight in weights:
        _collect(weight, found)
    return list(found)


def part_of(b: Builder, weight: Value, count: int, choose: Choose) -> Value:
    """The part [n,...] of a weight [E,...], with its stored values chosen.

    Args:
        b: where to build.
        weight: of the program.
        count: n.
        choose: gives the part of a stored value.
    """
    op = _widening(weight)
    if op is None:
        return choose(weight)
    inner = [part_of(b, value, count, choose) for value in op.operands]
    attrs: dict[str, AttrValue] = {**op.attrs}
    if op.name == "broadcast_in_dim":
        attrs["shape"] = (count, *weight.shape[1:])
    return b.emit(op.name, inner, attrs).result


def experts_kind(op: Op, form: str, block: int) -> OpKind:
    """The kind of an op ``experts`` in a form: how its weights are widened."""
    key: list[object] = [op.attrs, form, block]
    reads: dict[Value, int] = {}
    for at, operand in enumerate(op.operands):
        key.append(reads.setdefault(operand, len(reads)))
        work = [operand]
        while work:
            value = work.pop()
            # Tokens, choices and their shares are read as they are.
            made = _widening(value) if at >= _WEIGHTS else None
            if made is None:
                key += [value.type, reads.setdefault(value, len(reads))]
            else:
                key += [value.type, made.name, made.attrs]
                work += made.operands[::-1]
    return OpKind(tuple(key), tuple(reads))


def _collect(weight: Value, found: dict[Value, None]) -> None:
    op = _widening(weight)
    if op is None:
        found[weight] = None
        return
    for value in op.operands:
        _collect(value, found)


def _widening(value: Value) -> Op | None:
    """The op that makes a value [E,...] expert by expert; ``None`` if another one does."""
    op, experts = value.op, value.shape[0]
    if op is None or any(not x.shape or x.shape[0] != experts for x in op.operands):
        return None
    if op.name in _ELEMENTWISE:
        return op
    if op.name == "dequantize":
        return op if op.attrs.integers("block")[0] == 1 else None
    broadcast = op.name == "broadcast_in_dim" and op.attrs.integers("dimensions")[:1] == (0,)
    return op if broadcast and op.operands else None


# (builder, arguments) -> outputs.
_Build = Callable[[Builder, Sequence[Value]], Sequence[Value]]


@dataclass(slots=True)
class LoopFunctions:
    """Loops over blocks of tokens, and the functions that they run.

    Attributes:
        shared: the functions of all loops of a module.
    """

    shared: SharedFunctions

    def name_of(self, part: str, types: Sequence[TensorType], build: _Build, loc: Loc) -> str:
        """The name of the function with these arguments that ``build`` fills."""
        function = Function(f"experts.{part}")
        args = [function.block.add_arg(type_, f"a{i}") for i, type_ in enumerate(types)]
        with Builder(function, loc=loc) as b:
            results = build(b, args)
        function.outputs = [(f"r{i}", value) for i, value in enumerate(results)]
        return self.shared.add(function.name, function)

    def looped(self, b: Builder, call: ExpertCall, blocks: TokenBlocks) -> Value:
        """The results f32 [N+1,B,H] of the blocks, one after the other, then zeros.

        The last block is one without tokens: what choices that are not computed have for a result.
        """
        loc, weights = _loc(b), weights_of(call)
        stored = stored_values(weights)
        count, size, _ = (fixed(dim) for dim in blocks.rows.shape)
        out = b.full(0.0, tensor(f32, (count + 1, size, fixed(call.down.shape[1]))))
        first = b.literal(0, s32)
        live = b.concatenate([blocks.live, b.full(0, tensor(pred, (1,)))], 0)
        adapters = [] if blocks.slots is None else [blocks.slots, *call.low_rank]
        read = [first, blocks.experts, blocks.rows, *stored, *adapters]
        state = [first, out, live, *read[1:]]
        make = partial(_block, call.attrs, weights, stored)
        block = self.name_of("block", [value.type for value in read], make, loc)
        empty = self.name_of("empty", [], partial(_zeros, tensor(f32, out.shape[1:])), loc)
        types = [value.type for value in state]
        body = self.name_of("body", types, partial(_block_body, block, empty), loc)
        more = self.name_of("more", types, partial(_more, count + 1), loc)
        names = {"condition": more, "body": body, "trip_count": count + 1}
        return b.emit("while", state, {**names}).results[1]


def _loc(b: Builder) -> Loc:
    assert b.loc is not None
    return b.loc


def _more(count: int, b: Builder, state: Sequence[Value]) -> Sequence[Value]:
    """True while there is another block."""
    return [b.compare(state[0], b.literal(count, s32), "LT")]


def _zeros(type_: TensorType, b: Builder, _: Sequence[Value]) -> Sequence[Value]:
    return [b.full(0.0, type_)]


def _block_body(block: str, empty: str, b: Builder, state: Sequence[Value]) -> Sequence[Value]:
    """Compute one block, or leave it out, and put the result at its place."""
    at, out, live, *read = state
    runs = b.reshape(b.dynamic_slice(live, [at], [1]), ())
    attrs = {"branches": (block, empty), "takes": (1 + len(read), 0)}
    one = tensor(f32, out.shape[1:])
    made = b.emit("conditional", (runs, at, *read), {**attrs, "results": (one,)}).result
    zero = b.literal(0, s32)
    placed = b.dynamic_update_slice(out, b.reshape(made, (1, *one.shape)), [at, zero, zero])
    return [at + b.literal(1, s32), placed, live, *read]


def _block(
    attrs: Attrs,
    weights: Sequence[Value],
    stored: Sequence[Value],
    b: Builder,
    read: Sequence[Value],
) -> Sequence[Value]:
    """The results f32 [B,H] of one block."""
    at, experts, rows, *given = read
    expert = b.reshape(b.dynamic_slice(experts, [at], [1]), ())
    held, low_rank = given[: len(stored)], given[len(stored) :]
    own = {value: _entry(b, arg, expert) for value, arg in zip(stored, held, strict=True)}
    parts = [_first(b, part_of(b, weight, 1, own.__getitem__)) for weight in weights]
    adapters = None
    if low_rank:
        slots = _first(b, _entry(b, low_rank[0], at))
        adapters = adapters_of_block(b, slots, low_rank[1:], expert)
    return [mlp(b, attrs, _first(b, _entry(b, rows, at)), parts, adapters)]


def _entry(b: Builder, x: Value, at: Value) -> Value:
    """Entry [1,...] of x [N,...]."""
    zero = b.literal(0, s32)
    starts = [at, *[zero] * (x.type.rank - 1)]
    return b.dynamic_slice(x, starts, (1, *x.shape[1:]))


def _first(b: Builder, x: Value) -> Value:
    """x [1,...] as [...]."""
    return b.reshape(x, x.shape[1:])
