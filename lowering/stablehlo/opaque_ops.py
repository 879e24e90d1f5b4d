"""Ops on types that no op of the IR computes with: kept as their text, and written again as it was.

These are quantized elements, sizes that are only bounded, and tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from graphgen.errors import GraphgenError
from graphgen.ir import Op, Value, attrs_of
from graphgen.lowering.hlo.annotations import of_part
from graphgen.lowering.mlir.mlir_types import is_open, read_bounded_type
from graphgen.lowering.mlir.syntax_tree import MlirOp, MlirRegion
from graphgen.lowering.mlir.tokens import MlirTokens
from graphgen.lowering.stablehlo.bounded_sizes import (
    bounds_annotation,
    dynamic_sizes,
    value_type_text,
)
from graphgen.lowering.stablehlo.read_context import StableHloReadContext
from graphgen.ops import Trait, ops_with
from graphgen.ops.external import SILENT

_ELEMENTWISE = frozenset(ops_with(Trait.ELEMENTWISE))
_OPERAND = re.compile(r"%(\d+)")
_LOCAL = re.compile(r"%\$(\d+)")


def why_kept(node: MlirOp, operands: Sequence[Value]) -> str:
    """Why an op is kept as its text; empty for one that is read by its row."""
    types = " ".join(node.types)
    if "!quant." in types or any(value.dtype.is_quantized for value in operands):
        return "it has quantized elements"
    if "#stablehlo.bounds" in types or any(any(dynamic_sizes(value)) for value in operands):
        return "it has bounded sizes"
    if "!stablehlo.token" in types or any(value.dtype.is_token for value in operands):
        return "it has tokens"
    return ""


def keep_op(to: StableHloReadContext, node: MlirOp, operands: Sequence[Value]) -> list[Value]:
    """Read an op as its text; what a region reads from around it becomes an operand.

    Raises:
        GraphgenError: GG0102 and GG0101 for types of its results, GG0202 for undefined values.
    """
    inside = _inside(node.regions)
    outside = list(node.operands)
    text = _text(to, node, inside, outside)
    captured = [to.value(name, node) for name in outside[len(operands) :]]
    # Operands of an elementwise op have the sizes of its result.
    like = operands if node.name.partition(".")[2] in _ELEMENTWISE else ()
    stated = [read_bounded_type(item) for item in node.types]
    found = [(to.source.closed(type_, like), dynamic) for type_, dynamic in stated]
    made = to.emit_all(
        "hlo.opaque",
        [*operands, *captured],
        opcode=node.name,
        text=text,
        results=tuple([type_ for type_, _ in found]) or (SILENT,),
    )
    noted: dict[str, str] = {}
    for index, (type_, dynamic) in enumerate(found):
        bounds = bounds_annotation(type_, dynamic)
        noted |= bounds if len(found) == 1 else of_part(bounds, f"element{index}")
    if made[0].op is not None:
        made[0].op.annotations = attrs_of(noted)
    for key in node.attrs:
        # All of them are in the text.
        node.attrs.get(key)
    return list(made)[: len(found)]


def _inside(regions: Sequence[MlirRegion]) -> dict[str, str]:
    """The values that regions define, and the name of each in the text."""
    found: dict[str, str] = {}
    work = list(regions)
    while work:
        region = work.pop()
        names = [argument.name for argument in region.args]
        for node in region.body:
            names += [name.partition("#")[0] for name in node.results]
            work += node.regions
        for name in names:
            found.setdefault(name, f"%${len(found)}")
    return found


def _text(
    to: StableHloReadContext, node: MlirOp, inside: dict[str, str], outside: list[str]
) -> str:
    """The text of an op: operands by number, values of its regions by numbers of their own.

    ``outside`` has the operands, and gets the values that regions read from around them.
    """
    source = to.source
    tokens = MlirTokens(source.tokens.source[node.begin : node.end], source.tokens.filename)
    numbers = {name: index for index, name in enumerate(outside)}
    parts: list[str] = []
    last = 0
    while tokens.kind != "end":
        if tokens.text == "loc" and tokens.kind == "word":
            _skip_location(tokens)
            last = 0
            continue
        blank = " " if tokens.at > last and parts else ""
        kind, text = tokens.kind, tokens.advance()
        last = tokens.passed
        if kind == "value":
            text = _renamed(text, inside, numbers, outside)
        elif kind == "alias":
            text = source.aliases.get(text, text)
        elif kind == "string":
            # A sign of percent begins the name of a value.
            text = text.replace("%", "\\25")
        parts.append(blank + text)
    return "".join(parts)


def _renamed(text: str, inside: dict[str, str], numbers: dict[str, int], outside: list[str]) -> str:
    """The name of a value in the text of an op."""
    base = re.split("[#:]", text, maxsplit=1)[0]
    if base in inside:
        return inside[base] + text.removeprefix(base)
    if text not in numbers:
        numbers[text] = len(outside)
        outside.append(text)
    return f"%{numbers[text]}"


def _skip_location(tokens: MlirTokens) -> None:
    tokens.advance()
    depth = 0
    while tokens.kind != "end":
        depth += {"(": 1, ")": -1}.get(tokens.advance(), 0)
        if depth == 0:
            return


def emit_kept(op: Op, out: str, x: Sequence[str]) -> str:
    """Write an op that was kept as its text.

    Raises:
        GraphgenError: GG0401 where a pass changed the types of its operands or results.
    """
    text = op.attrs.text("text")
    # Types of what only a region reads are not in the text.
    head = {int(number) for number in _OPERAND.findall(text.partition("({")[0])}
    # A short form states the sizes of its operands by those of its result.
    reads = [
        value
        for index, value in enumerate(op.operands)
        if index in head and not is_open(value.type)
    ]
    for value in (*reads, *op.results):
        spelled = value_type_text(value)
        if value.type is not SILENT and _packed(spelled) not in _packed(text):
            what = (
                f"the text of {op.attrs.text('opcode')} has no {spelled}, which it reads or gives"
            )
            help = "a pass changed the types around an op that it does not know"
            raise GraphgenError("GG0401", what, where=repr(op.loc), help=help)
    stem = out.split(", ")[0][1:]
    named = _LOCAL.sub(lambda found: f"%${found[1]}.{stem}", text)
    whole = _OPERAND.sub(lambda found: x[int(found[1])], named)
    return whole if op.results[0].type is SILENT else f"{out} = {whole}"


def _packed(text: str) -> str:
    return "".join(text.split())
