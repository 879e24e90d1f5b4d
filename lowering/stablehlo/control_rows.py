"""Rows of calls, loops and conditionals.

Emitted: the region of a loop or a conditional is one call of a function, so each function is
written once, and its ops keep their lines. Read: a region becomes a function; the values it reads
from around it become state of the loop or operands of the branch, and constants are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.ir import AttrValue, Op, TensorType, Value, tensor
from graphgen.ir.dtype import pred
from graphgen.lowering.mlir.mlir_attributes import read_dict, read_type
from graphgen.lowering.mlir.mlir_parser import ReadRegion
from graphgen.lowering.mlir.mlir_types import is_open, read_tensor_type, string, type_text
from graphgen.lowering.mlir.syntax_tree import BlockArgument, MlirOp, MlirRegion, SymbolRef
from graphgen.lowering.mlir.tokens import MlirTokens
from graphgen.lowering.stablehlo import manual_computation
from graphgen.lowering.stablehlo.captured_values import (
    add_arguments,
    captured_values,
    inside_values,
    passed_values,
)
from graphgen.lowering.stablehlo.composite_notes import (
    composite_text,
    is_composite,
    parse_composite,
)
from graphgen.lowering.stablehlo.op_row import (
    StableHloRow,
    types_text,
)
from graphgen.lowering.stablehlo.read_context import StableHloReadContext
from graphgen.ops.control import branch_operands, callees, kernel_of
from graphgen.ops.custom_calls import NKI

_BRANCHES = {"stablehlo.if": ("true", "false"), "stablehlo.case": ()}
CONTROL = ("stablehlo.while", *_BRANCHES)


def callee_symbol(name: str) -> str:
    """Spell the symbol of a called function, which differs from the entry ``@main``."""
    # XLA expects what calls a function of that name in one place only.
    return f"@{string(f'call.{name.replace(manual_computation.BODY, manual_computation.PLAIN)}')}"


def _emit_call(op: Op, out: str, x: Sequence[str]) -> str:
    part = manual_computation.parts_of(op)
    if part is not None:
        return manual_computation.emit_part(part, op, out, x)
    types = f"({types_text(op.operands)}) -> ({types_text(op.results)})"
    if kernel_of(op) == NKI:
        given = f"{{backend_config = {string(op.attrs.text('config'))}}}"
        return f"{out} = stablehlo.custom_call @{NKI}({', '.join(x)}) {given} : {types}"
    callee = callee_symbol(op.attrs.text("to_apply"))
    if is_composite(op):
        return composite_text(op, out, ", ".join(x), callee, types)
    return f"{out} = func.call {callee}({', '.join(x)}) : {types}"


def _emit_while(op: Op, out: str, x: Sequence[str]) -> str:
    """Write a loop; the arguments of its regions are its state."""
    first = out.split(", ")[0]
    state = [f"%$s{i}.{first[1:]}" for i in range(len(x))]
    types = [value.type for value in op.operands]
    pairs = zip(state, types, strict=True)
    head = f"^bb0({', '.join([f'{name}: {type_text(type_)}' for name, type_ in pairs])}):"
    condition, body = callees(op)
    regions = [
        calling_region(first, condition, state, types, [type_text(tensor(pred))], head),
        calling_region(first, body, state, types, [type_text(type_) for type_ in types], head),
    ]
    shape = f"({types_text(op.operands)}) -> ({types_text(op.results)})"
    return f'{out} = "stablehlo.while"({", ".join(x)}) ({", ".join(regions)}) : {shape}'


def _emit_conditional(op: Op, out: str, x: Sequence[str]) -> str:
    """Write a conditional; its regions read their operands from around them."""
    first = out.split(", ")[0]
    names = list(x[1:])
    results = [type_text(value.type) for value in op.results]
    regions: list[str] = []
    for name, operands in zip(callees(op), branch_operands(op), strict=True):
        reads, names = names[: len(operands)], names[len(operands) :]
        regions.append(
            calling_region(first, name, reads, [value.type for value in operands], results)
        )
    kind = "if" if op.operands[0].dtype is pred else "case"
    shape = f"({types_text(op.operands[:1])}) -> ({', '.join(results)})"
    return f'{out} = "stablehlo.{kind}"({x[0]}) ({", ".join(regions)}) : {shape}'


def calling_region(
    out: str,
    name: str,
    reads: Sequence[str],
    types: Sequence[TensorType],
    results: Sequence[str],
    head: str = "",
    *,
    held: bool = False,
) -> str:
    """Spell a region that calls the function ``name`` and returns its results.

    Args:
        out: the first result of the op, from which names of the region follow.
        name: of the function.
        reads: names of the function's arguments.
        types: of the arguments.
        results: types of the results, as text.
        head: the block's own arguments.
        held: put an optimization barrier before the results.
    """
    values = ", ".join([f"%$r{i}.{out[1:]}" for i in range(len(results))])
    taken = ", ".join([type_text(type_) for type_ in types])
    returned = ", ".join(results)
    called = f"func.call {callee_symbol(name)}({', '.join(reads)}) : ({taken}) -> ({returned})"
    given = values.replace("%$r", "%$h") if held else values
    lines = [
        *([f"      {head}"] if head else []),
        f"        {values} = {called}",
        *(
            [f"        {given} = stablehlo.optimization_barrier {values} : {returned}"]
            if held
            else []
        ),
        f"        stablehlo.return {given} : {returned}",
    ]
    return "\n".join(["{", *lines, "    }"])


def _read_conditional(
    to: StableHloReadContext, node: MlirOp, operands: Sequence[Value]
) -> list[Value]:
    names = _BRANCHES[node.name] or tuple([f"branch{i}" for i in range(len(node.regions))])
    if len(operands) != 1 or len(names) != len(node.regions) or not names:
        raise GraphgenError("GG0104", f"{node.name} needs one operand and its branches")
    passed: list[list[Value]] = []
    branches: list[str] = []
    results = tuple([read_tensor_type(text) for text in node.types])
    for name, region in zip(names, node.regions, strict=True):
        captured = captured_values(to, node, [region])
        function = to.function(f"{node.name.partition('.')[2]}.{name}")
        wanted = results if branches or not any(map(is_open, results)) else ()
        to.fill(function, region, inside_values(function, captured), [], wanted)
        passed.append(passed_values(captured))
        branches.append(function.name)
        made = tuple([value.type for _, value in function.outputs])
        if not passed[1:] and any(map(is_open, results)) and len(made) == len(results):
            # The text leaves sizes open that the first branch has.
            results = made
    attrs: dict[str, AttrValue] = {
        "branches": tuple(branches),
        "takes": tuple(map(len, passed)),
        "results": results,
    }
    flat = [*operands, *[value for part in passed for value in part]]
    return list(to.emit_all("conditional", flat, **attrs))


def _read_while(to: StableHloReadContext, node: MlirOp, operands: Sequence[Value]) -> list[Value]:
    regions = node.regions
    if len(regions) != 2 or any(len(region.args) != len(operands) for region in regions):
        raise GraphgenError("GG0104", f"{node.name} needs a condition and a body of its operands")
    captured = captured_values(to, node, regions)
    kept = _kept_constants(to, regions[1], operands) if to.source.bound is not None else {}
    names: dict[str, AttrValue] = {}
    for key, region in zip(("condition", "body"), regions, strict=True):
        function = to.function(f"while.{key}")
        values = add_arguments(function, region, "state", operands)
        known = {region.args[index].name: value for index, value in kept.items()}
        values |= inside_values(function, {**captured, **known})
        # The body returns captured values unchanged.
        more = function.args[len(operands) :] if key == "body" else []
        types = [value.type for value in operands] if key == "body" else []
        to.fill(function, region, values, more, types)
        names[key] = function.name
    results = to.emit_all("while", [*operands, *passed_values(captured)], **names)
    return list(results[: len(operands)])


def _kept_constants(
    to: StableHloReadContext, body: MlirRegion, operands: Sequence[Value]
) -> dict[int, Value]:
    """Constants among the state of a loop that its body hands on: sizes may depend on them."""
    return {
        index: value
        for index, value in enumerate(operands)
        if value.producer("constant") is not None and _hands_on(to, body, index)
    }


def _hands_on(to: StableHloReadContext, body: MlirRegion, index: int) -> bool:
    """A body returns this argument as it is, itself or through a function that it calls."""
    if not body.body or index >= len(body.body[-1].operands):
        return False
    name, argument = body.body[-1].operands[index], body.args[index].name
    for node in body.body:
        symbol = node.attrs.get("callee") if name in node.results else None
        callee = to.source.callees.get(symbol.name) if isinstance(symbol, SymbolRef) else None
        if callee is not None and callee.regions and callee.regions[0].body:
            inner = callee.regions[0]
            returned = inner.body[-1].operands[node.results.index(name)]
            names = [each.name for each in inner.args]
            return returned in names and node.operands[names.index(returned)] == argument
    return name == argument


def _parse_while(t: MlirTokens, node: MlirOp, region: ReadRegion) -> None:
    """Parse ``(%i = %a, %j = %b) : types cond { ops } do { ops }``."""
    t.expect("(")
    names: list[str] = []
    for _ in t.items(")"):
        names.append(t.need("value", "an argument"))
        t.expect("=")
        node.operands.append(t.need("value", "an operand"))
    if t.take(":"):
        node.types = [read_type(t)]
        while t.take(","):
            node.types.append(read_type(t))
    if t.take("attributes"):
        node.attrs.add(read_dict(t))
    if node.results == [] or len(node.results) == len(node.types):
        for word in ("cond", "do"):
            t.expect(word)
            body = region()
            body.args = [
                BlockArgument(n, type_) for n, type_ in zip(names, node.types, strict=True)
            ]
            node.regions.append(body)


CONTROL_ROWS: Final[Sequence[StableHloRow]] = (
    StableHloRow("call", "", emit=_emit_call),
    StableHloRow("", "stablehlo.composite", parse=parse_composite),
    StableHloRow(
        "while",
        "stablehlo.while",
        form="generic",
        emit=_emit_while,
        read=_read_while,
        parse=_parse_while,
    ),
    StableHloRow("conditional", "", emit=_emit_conditional),
    StableHloRow("", "stablehlo.if", form="generic", read=_read_conditional),
    StableHloRow("", "stablehlo.case", form="generic", read=_read_conditional),
)
