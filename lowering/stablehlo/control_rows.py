"""Rows of calls, loops, conditionals and custom calls.

Emitted: the region of a loop or a conditional is one call of a function, so each function is
written once, and its ops keep their lines. Read: a region becomes a function; the values it reads
from around it become state of the loop or operands of the branch, and constants are copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.ir import AttrValue, Function, Op, TensorType, Value, tensor
from graphgen.ir.dtype import pred
from graphgen.lowering.stablehlo.assembly import parse_types
from graphgen.lowering.stablehlo.op_row import (
    StableHloRow,
    signature,
    types_text,
)
from graphgen.lowering.stablehlo.read_context import StableHloReadContext
from graphgen.lowering.stablehlo.text.mlir_attributes import read_dict, read_operands, read_type
from graphgen.lowering.stablehlo.text.mlir_parser import ReadRegion
from graphgen.lowering.stablehlo.text.mlir_types import read_tensor_type, string, type_text
from graphgen.lowering.stablehlo.text.syntax_tree import (
    BlockArgument,
    MlirOp,
    MlirRegion,
    SymbolRef,
)
from graphgen.lowering.stablehlo.text.tokens import MlirTokens
from graphgen.lowering.stablehlo.text.value_names import author_name
from graphgen.ops.control import branch_operands, callees

_BRANCHES = {"stablehlo.if": ("true", "false"), "stablehlo.case": ()}
CONTROL = ("stablehlo.while", *_BRANCHES)
# Ops that are copied into a region's function, instead of passed to it.
_COPIED = frozenset(("constant", "iota"))
# The usual ``more`` of a custom call that was read from HLO: its field 77, the API version, is 1.
_ORIGINAL_API = "e80401"


def callee_symbol(name: str) -> str:
    """Spell the symbol of a called function, which differs from the entry ``@main``."""
    return f"@{string(f'call.{name}')}"


def _emit_call(op: Op, out: str, x: Sequence[str]) -> str:
    callee = callee_symbol(op.attrs.text("to_apply"))
    types = f"({types_text(op.operands)}) -> ({types_text(op.results)})"
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
        _region(first, condition, state, types, [type_text(tensor(pred))], head),
        _region(first, body, state, types, [type_text(type_) for type_ in types], head),
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
        regions.append(_region(first, name, reads, [value.type for value in operands], results))
    kind = "if" if op.operands[0].dtype is pred else "case"
    shape = f"({types_text(op.operands[:1])}) -> ({', '.join(results)})"
    return f'{out} = "stablehlo.{kind}"({x[0]}) ({", ".join(regions)}) : {shape}'


def _region(
    out: str,
    name: str,
    reads: Sequence[str],
    types: Sequence[TensorType],
    results: Sequence[str],
    head: str = "",
) -> str:
    """Spell a region that calls the function ``name`` and returns its results."""
    values = ", ".join([f"%$r{i}.{out[1:]}" for i in range(len(results))])
    taken = ", ".join([type_text(type_) for type_ in types])
    returned = ", ".join(results)
    called = f"func.call {callee_symbol(name)}({', '.join(reads)}) : ({taken}) -> ({returned})"
    lines = [
        *([f"      {head}"] if head else []),
        f"        {values} = {called}",
        f"        stablehlo.return {values} : {returned}",
    ]
    return "\n".join(["{", *lines, "    }"])


def _emit_custom_call(op: Op, out: str, x: Sequence[str]) -> str:
    config = op.attrs.text("config")
    attrs = f" {{backend_config = {string(config)}}}" if config else ""
    target = string(op.attrs.text("target"))
    if op.attrs.text("fields") or op.attrs.text("more") not in ("", _ORIGINAL_API):
        what = f"custom_call {op.attrs.text('target')} says more than StableHLO has words for here"
        raise GraphgenError("GG0401", what, where=repr(op.loc), help="write HLO instead")
    return f"{out} = stablehlo.custom_call @{target}({', '.join(x)}){attrs} : {signature(op)}"


def _read_conditional(
    to: StableHloReadContext, node: MlirOp, operands: Sequence[Value]
) -> list[Value]:
    names = _BRANCHES[node.name] or tuple([f"branch{i}" for i in range(len(node.regions))])
    if len(operands) != 1 or len(names) != len(node.regions) or not names:
        raise GraphgenError("GG0104", f"{node.name} needs one operand and its branches")
    passed: list[list[Value]] = []
    branches: list[str] = []
    for name, region in zip(names, node.regions, strict=True):
        captured = _captured(to, node, [region])
        function = to.function(f"{node.name.partition('.')[2]}.{name}")
        to.fill(function, region, _inside(function, captured), [])
        passed.append(_passed(captured))
        branches.append(function.name)
    attrs: dict[str, AttrValue] = {
        "branches": tuple(branches),
        "takes": tuple(map(len, passed)),
        "results": tuple([read_tensor_type(text) for text in node.types]),
    }
    flat = [*operands, *[value for part in passed for value in part]]
    return list(to.emit_all("conditional", flat, **attrs))


def _read_while(to: StableHloReadContext, node: MlirOp, operands: Sequence[Value]) -> list[Value]:
    regions = node.regions
    if len(regions) != 2 or any(len(region.args) != len(operands) for region in regions):
        raise GraphgenError("GG0104", f"{node.name} needs a condition and a body of its operands")
    captured = _captured(to, node, regions)
    names: dict[str, AttrValue] = {}
    for key, region in zip(("condition", "body"), regions, strict=True):
        function = to.function(f"while.{key}")
        values: dict[str, Value] = {}
        for index, argument in enumerate(region.args):
            name = author_name(argument.name) or f"state{index}"
            values[argument.name] = function.block.add_arg(read_tensor_type(argument.type), name)
        values |= _inside(function, captured)
        # The body returns captured values unchanged.
        more = function.args[len(operands) :] if key == "body" else []
        to.fill(function, region, values, more)
        names[key] = function.name
    results = to.emit_all("while", [*operands, *_passed(captured)], **names)
    return list(results[: len(operands)])


def _captured(
    to: StableHloReadContext, node: MlirOp, regions: Sequence[MlirRegion]
) -> dict[str, Value]:
    """Find the values that regions read from around them, by name, in order of first use."""
    names = dict.fromkeys(name for region in regions for name in _free(region))
    return {name: to.value(name, node) for name in names}


def _free(region: MlirRegion) -> Iterator[str]:
    """List the names that a region reads and does not define."""
    known = {argument.name for argument in region.args}
    for node in region.body:
        for name in node.operands:
            if name not in known and name.removesuffix("#0") not in known:
                yield name
        for inner in node.regions:
            yield from (name for name in _free(inner) if name not in known)
        known.update(node.results)


def _passed(captured: Mapping[str, Value]) -> list[Value]:
    """Select the captured values that are not copied, each once."""
    return [
        value
        for value in dict.fromkeys(captured.values())
        if value.op is None or value.op.name not in _COPIED
    ]


def _inside(function: Function, captured: Mapping[str, Value]) -> dict[str, Value]:
    """Map names of captured values to arguments of a function, and to copies of constants."""
    values: dict[Value, Value] = {}
    for value in _passed(captured):
        values[value] = function.block.add_arg(value.type, value.name or f"outer{len(values)}")
    for value in captured.values():
        if value not in values and value.op is not None:
            op = value.op
            types = [result.type for result in op.results]
            copy = Op(op.name, (), types, op.attrs, op.loc, [result.name for result in op.results])
            function.block.append(copy)
            values.update(zip(op.results, copy.results, strict=True))
    return {name: values[value] for name, value in captured.items()}


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
        node.attrs |= read_dict(t)
    if node.results == [] or len(node.results) == len(node.types):
        for word in ("cond", "do"):
            t.expect(word)
            body = region()
            body.args = [
                BlockArgument(n, type_) for n, type_ in zip(names, node.types, strict=True)
            ]
            node.regions.append(body)


def _parse_custom_call(t: MlirTokens, node: MlirOp, region: ReadRegion) -> None:
    """Parse ``@target(%a, %b) {attributes} : (types) -> types``."""
    node.attrs["call_target_name"] = SymbolRef(t.need("symbol", "a target")[1:])
    node.operands = read_operands(t)
    if t.text == "{":
        node.attrs |= read_dict(t)
    t.expect(":")
    node.types = parse_types(t, node)


CONTROL_ROWS: Final[Sequence[StableHloRow]] = (
    StableHloRow("call", "", emit=_emit_call),
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
    StableHloRow("custom_call", "", emit=_emit_custom_call),
    StableHloRow("", "stablehlo.custom_call", parse=_parse_custom_call),
)
