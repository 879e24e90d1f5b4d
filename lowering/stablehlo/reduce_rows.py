"""Row of ``reduce``: an initial value, and a reducer as a word or as a region."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.ir import Op, Value, tensor
from graphgen.lowering.decompose import keeps_negative_zero
from graphgen.lowering.mlir.mlir_attributes import read_attr, read_dict, read_type
from graphgen.lowering.mlir.mlir_parser import ReadRegion, read_loc
from graphgen.lowering.mlir.mlir_types import dense_text, type_text
from graphgen.lowering.mlir.syntax_tree import BlockArgument, MlirOp, MlirRegion
from graphgen.lowering.mlir.tokens import MlirTokens
from graphgen.lowering.stablehlo.assembly import parse_types
from graphgen.lowering.stablehlo.captured_values import read_scalar_function
from graphgen.lowering.stablehlo.control_rows import calling_region
from graphgen.lowering.stablehlo.indexing_rows import SCATTER_NUMBERS
from graphgen.lowering.stablehlo.op_row import (
    StableHloRow,
    list_of,
    list_text,
    local,
    named_reducer,
    result_type,
    types_text,
)
from graphgen.lowering.stablehlo.promoted_operands import promoted
from graphgen.lowering.stablehlo.read_context import StableHloReadContext
from graphgen.lowering.stablehlo.window_rows import window_text
from graphgen.ops.control import scalar_signature
from graphgen.ops.linalg import neutral_element
from graphgen.ops.window import REDUCTION


def _list(values: Sequence[int]) -> str:
    return f"array<i64{': ' if values else ''}{', '.join(map(str, values))}>"


def _row(name: str, attrs: Callable[[Op], str]) -> StableHloRow:
    """The row of an op, which is written with its attributes and a region."""

    def emit(op: Op, out: str, x: Sequence[str]) -> str:
        first = out.split(", ")[0]
        takes, gives = scalar_signature(op)
        names = [f"%$e{i}.{first[1:]}" for i in range(len(takes))]
        pairs = zip(names, takes, strict=True)
        head = f"^bb0({', '.join([f'{name}: {type_text(type_)}' for name, type_ in pairs])}):"
        results = [type_text(type_) for type_ in gives]
        # XLA makes a map of nothing but a call into a call with whole arrays, which it refuses.
        held = op.name == "map"
        name = op.attrs.text("to_apply")
        region = calling_region(first, name, names, takes, results, head, held=held)
        kind = op.name.removesuffix("_by")
        shape = f"({types_text(op.operands)}) -> ({types_text(op.results)})"
        return f'{out} = "stablehlo.{kind}"({", ".join(x)}) <{{{attrs(op)}}}> ({region}) : {shape}'

    return StableHloRow(name, "", emit=emit)


def _scatter_numbers(op: Op) -> str:
    return f"{SCATTER_NUMBERS.key} = {SCATTER_NUMBERS.show(op.attrs)}"


def _sort(op: Op) -> str:
    return f"dimension = {op.attrs.integer('dimension')} : i64, is_stable = true"


def _window(op: Op) -> str:
    lists = (REDUCTION.stride, REDUCTION.base_dilation, REDUCTION.window_dilation)
    return window_text(op, lists)


def _read_map(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    name = read_scalar_function(to, node)
    dims, rank = list_of(node, "dimensions"), x[0].type.rank if x else 0
    if list(dims) != list(range(rank)):
        raise GraphgenError("GG0104", f"map over {list(dims)} of {rank} dimensions: all, in order")
    return [to.emit("map", x, to_apply=name, dtype=result_type(node).dtype)]


SCALAR_FUNCTION_ROWS: Final[Sequence[StableHloRow]] = (
    _row("map", lambda op: f"dimensions = {_list(range(op.operands[0].type.rank))}"),
    _row("reduce_by", lambda op: f"dimensions = {_list(op.attrs.integers('dimensions'))}"),
    _row("reduce_window_by", _window),
    _row("scatter_by", _scatter_numbers),
    _row("sort_by", _sort),
    StableHloRow("", "stablehlo.map", form="generic", read=_read_map),
)


def _emit_reduce(op: Op, out: str, x: Sequence[str]) -> str:
    kind, dtype = op.attrs.text("kind"), op.operands[0].dtype
    scalar = type_text(tensor(dtype))
    init = local(out, "init")
    first = f"{init} = stablehlo.constant {dense_text(neutral_element(kind, dtype))} : {scalar}"
    dims = list_text(op.attrs.integers("dimensions"))
    types = f"({type_text(op.operands[0].type)}, {scalar}) -> {type_text(op.results[0].type)}"
    second = (
        f"{out} = stablehlo.reduce({x[0]} init: {init}) applies stablehlo.{kind} "
        f"across dimensions = {dims} : {types}"
    )
    return f"{first}\n    {second}"


def _read_reduce(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    for value in x[len(x) // 2 :]:
        if value.type.rank:
            what = f"{node.name}: an initial value is {value.type.text}, not a scalar"
            raise GraphgenError("GG0105", what)
    kind = named_reducer(node, "reduce") if len(x) == 2 else ""
    x = promoted(to, node, x, node.regions[0].args)
    if not kind or keeps_negative_zero(x[1], kind):
        scalar = type_text(x[-1].type)
        for region in node.regions:
            # The short form does not state the types of the reducer's arguments.
            region.args = [replace(arg, type=arg.type or scalar) for arg in region.args]
        name = read_scalar_function(to, node)
        dims = list_of(node, "dimensions")
        return [*to.emit_all("reduce_by", x, dimensions=dims, to_apply=name)]
    operand, init = x
    found = to.emit("reduce", [operand], dimensions=list_of(node, "dimensions"), kind=kind)
    if _is_neutral(init, kind):
        to.idle(init)
        return [found]
    # Any other initial value enters each result once.
    whole = init
    if found.type.rank:
        whole = to.emit("broadcast_in_dim", [init], shape=found.shape, dimensions=())
    return [to.emit(kind, [found, whole])]


def _is_neutral(init: Value, kind: str) -> bool:
    constant = init.producer("constant")
    if constant is None:
        return False
    return constant.attrs.literal("value") == neutral_element(kind, init.dtype)


def _parse_reduce(t: MlirTokens, node: MlirOp, region: ReadRegion) -> None:
    """Parse ``(%a init: %b) applies stablehlo.add across dimensions = [1] : types``.

    Instead of ``applies``, ``reducer(%a: type, %b: type) { ops }`` may follow the types.
    """
    initial: list[str] = []
    while True:
        t.expect("(")
        node.operands.append(t.need("value", "an operand"))
        t.expect("init")
        t.expect(":")
        initial.append(t.need("value", "an initial value"))
        t.expect(")")
        if not t.take(","):
            break
    node.operands += initial
    applied = t.need("word", "an op") if t.take("applies") else ""
    for word in ("across", "dimensions", "="):
        t.expect(word)
    node.attrs["dimensions"] = read_attr(t)
    if t.text == "{":
        node.attrs.add(read_dict(t))
    t.expect(":")
    node.types = parse_types(t, node)
    node.regions = [_applied(applied, node.at)] if applied else [_parse_reducer(t, region)]


def _applied(name: str, at: int) -> MlirRegion:
    """Make the region of ``applies name``: one op of the two arguments."""
    args = [BlockArgument("%lhs", ""), BlockArgument("%rhs", "")]
    applied = MlirOp(name, at, ["%applied"], ["%lhs", "%rhs"], types=[""])
    return MlirRegion(args, [applied, MlirOp("stablehlo.return", at, [], ["%applied"])])


def _parse_reducer(t: MlirTokens, region: ReadRegion) -> MlirRegion:
    """Parse ``reducer(%a: type, %b: type) (%c: type, %d: type) { ops }``, a pair per input.

    The arguments of the region are the left ones of all pairs, then the right ones.
    """
    t.expect("reducer")
    left: list[BlockArgument] = []
    right: list[BlockArgument] = []
    while t.take("("):
        for side in (left, right):
            name = t.need("value", "an argument")
            t.expect(":")
            side.append(BlockArgument(name, read_type(t)))
            read_loc(t)
            if side is left:
                t.expect(",")
        t.expect(")")
    body = region()
    body.args = [*left, *right]
    return body


REDUCE_ROW: Final = StableHloRow(
    "reduce", "stablehlo.reduce", emit=_emit_reduce, read=_read_reduce, parse=_parse_reduce
)
