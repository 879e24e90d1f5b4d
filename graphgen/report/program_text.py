"""Text reports on modules, programs and outputs, as ``graphgen inspect`` prints them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from graphgen.analysis.annotation_diff import control_edges
from graphgen.analysis.overview import OutputSummary, Overview, ValueOrigin
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Loc, Module, Value
from graphgen.ir.loc import UNKNOWN
from graphgen.ops.external import shown_type
from graphgen.report.table import Table
from graphgen.report.units import folded, groups, number, pattern, short, size, spans

# Most rows of outputs and of bodies.
_MOST = 8


def module_text(module: Module) -> str:
    """Level, ranks and number of functions of a module, in up to three lines."""
    mesh = ", ".join(f"{axis} = {count}" for axis, count in module.mesh.items())
    ranks = f", {module.ranks} ranks ({mesh})" if mesh else ""
    lines = [f"@{module.name}: level {module.level}{ranks}, {len(module.functions)} functions"]
    lines += [f"  warning: {line}" for line in module.meta.get("invalid", "").split("\n") if line]
    if "opaque" in module.meta:
        lines.append(f"  kept as they are, for want of an op: {module.meta['opaque']}")
    if "dropped" in module.meta:
        lines.append(f"  left out: {module.meta['dropped']}")
    return "\n".join(lines) + "\n"


def program_text(item: Overview, inside: Mapping[str, Mapping[str, int]]) -> list[str | Table]:
    """One screen about a program.

    Args:
        item: the program.
        inside: for each opcode of opaque instructions, the opcodes in the computations they call,
            with counts; :attr:`Overview.histogram` does not count these.
    """
    function = item.function
    phase = f" ({function.phase})" if function.phase else ""
    more = sum(item.whole_histogram.values()) - function.block.size
    inner = f", {more} more in loops and branches" if more else ""
    lines = [f"@{function.name}{phase}: {function.block.size} ops{inner}"]
    parts = [part for part in item.parts if part.values]
    # The bytes of symbolic shapes are polynomials, of any length.
    width = max([9, *(len(size(part.bytes)) for part in parts)])
    for part in parts:
        guess = "  (guessed from use)" if part.guessed else ""
        names = [value.name or "-" for value in part.values]
        count = f"{len(names):>5}  {size(part.bytes):<{width}}"
        lines.append(f"  {part.kind:<12}{count}  {_names(names)}{guess}")
    lines.append(f"  {'outputs':<12}{len(item.outputs):>5}  {item.kept} kept in place")
    lines.append(f"  {'work':<12}{_flops(item)}; {size(item.work.bytes)} moved without fusion")
    if item.peak is not None:
        at = f" at {item.peak.op.name} {item.peak.op.loc!r}" if item.peak.op else ""
        lines.append(f"  {'live':<12}{size(item.peak.bytes)} at most{at}")
    top = sorted(item.histogram.items(), key=lambda pair: -pair[1])[:8]
    lines.append(f"  {'ops':<12}" + ", ".join(f"{name} {count}" for name, count in top))
    if more:
        top = sorted(item.whole_histogram.items(), key=lambda pair: -pair[1])[:8]
        lines.append(f"  {'all ops':<12}" + ", ".join(f"{name} {count}" for name, count in top))
    ordered = _ordered(function)
    if ordered:
        lines.append(f"  {'ordered':<12}{ordered}")
    if item.opaque:
        shown = ", ".join(f"{name} {count}" for name, count in item.opaque.items())
        lines.append(f"  {'opaque':<12}{shown}")
    for code, inner in inside.items():
        lines.append(f"  {'inside':<12}{code}: {_counted(inner)}")
    for body in item.bodies[:_MOST]:
        turns = f", {body.trip_count} turns" if body.trip_count is not None else ""
        what = f"{body.op} @{body.name}{turns}: {_counted(body.histogram) or 'nothing'}"
        lines.append(f"  {'inside':<12}{what}")
    return [*lines, "", *_tables(item)]


def _ordered(function: Function) -> str:
    """The number of control dependencies and the first of them; empty without any."""
    edges = control_edges(function)
    if not edges:
        return ""
    pairs = [" before ".join([f"%{op.results[0].name}" for op in edge]) for edge in edges[:4]]
    return f"{len(edges)} control dependencies: {', '.join(pairs)}{', ...' if edges[4:] else ''}"


def _counted(histogram: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in [*histogram.items()][:8])


def _names(names: list[str]) -> str:
    """The first few names, those that differ in numbers only as one."""
    found = groups(names)
    shown = [folded(group) for group in found[:4]]
    return ", ".join(short(name, 60) for name in shown) + (", ..." if len(found) > 4 else "")


def _flops(item: Overview) -> str:
    if not item.flops:
        return "no arithmetic"
    return ", ".join(f"{number(count)} flops in {kind}" for kind, count in item.flops.items())


def _tables(item: Overview) -> list[str | Table]:
    out: list[str | Table] = []
    if item.outputs:
        headers = ["output", "name", "type", "bytes", "takes over", "made by", "at"]
        out.append(Table(headers, _output_rows(item)))
    if item.exchanges:
        rows = [
            [x.op, str(x.count), size(x.bytes), x.type, x.algorithm or "-", _groups(x.groups)]
            for x in item.exchanges
        ]
        headers = ["collective", "count", "bytes", "type", "algorithm", "groups"]
        out.append(Table(headers, rows, 2))
    if item.calls:
        rows = [
            [x.target, str(x.count), x.text, where_of(x.first.loc if x.first else UNKNOWN)]
            for x in item.calls
        ]
        headers = ["custom call", "count", "configuration", "first at"]
        out.append(Table(headers, rows, 1))
    if item.layers:
        rows = [
            [
                x.first if x.count == 1 else f"{x.first} to {x.last}",
                str(x.count),
                str(x.ops),
                number(x.work.flops),
                size(x.work.bytes),
                size(x.weights),
            ]
            for x in item.layers
        ]
        headers = ["layers", "count", "ops each", "flops each", "moved each", "weights each"]
        out.append(Table(headers, rows, 5))
    if item.largest:
        rows = [_large(item, value) for value in item.largest]
        headers = ["largest", "bytes", "type", "made by", "layer", "at"]
        out.append(Table(headers, rows, 1))
    return out


def _groups(text: str) -> str:
    """``[[0,1,2,3],[4,5,6,7]]`` as ``[0..3] [4..7]``."""
    found = [[int(n) for n in part.split(",") if n] for part in re.findall(r"\[([\d,]*)\]", text)]
    shown = " ".join(f"[{spans(group)}]" for group in found[:4])
    return shown if len(found) <= 4 else f"{shown} ... ({len(found)} groups)"


def _output_rows(item: Overview) -> list[list[str]]:
    """Outputs that differ in numbers only are one row."""
    found: dict[tuple[str, ...], list[OutputSummary]] = {}
    for output in item.outputs:
        made = output.value.op.name if output.value.op else "argument"
        over = "" if output.argument is None else "kept"
        key = (pattern(output.name), shown_type(output.value), made, over)
        found.setdefault(key, []).append(output)
    rows = [_output_row(item, outputs) for outputs in found.values()]
    if len(rows) <= _MOST:
        return rows
    return [*rows[:_MOST], [f"{len(rows) - _MOST} more", "", "", "", "", "", ""]]


def _output_row(item: Overview, outputs: list[OutputSummary]) -> list[str]:
    first = outputs[0]
    over = [output.argument for output in outputs if output.argument is not None]
    place = item.place(first.value)
    return [
        spans([output.index for output in outputs]),
        folded([output.name for output in outputs]),
        shown_type(first.value),
        size(first.value.type.nbytes) if first.value.type.static else "-",
        f"argument {spans(over)}" if over else "-",
        first.value.op.name if first.value.op else "argument",
        _at(place),
    ]


def _large(item: Overview, value: Value) -> list[str]:
    place = item.place(value)
    made = value.op.name if value.op else "argument"
    name = f"%{value.name or '-'}"
    return [name, size(value.type.nbytes), shown_type(value), made, place.layer or "-", _at(place)]


def _at(place: ValueOrigin) -> str:
    where = where_of(place.where)
    return f"read at {where}" if place.read and where != "-" else where


def where_of(where: Loc) -> str:
    """``FILE:LINE`` of a location, ``-`` if it is unknown."""
    return f"{where.file}:{where.line}" if where is not UNKNOWN else "-"


def find_output(item: Overview, wanted: str) -> OutputSummary:
    """An output by position or name (GG0705 naming all outputs)."""
    for output in item.outputs:
        if wanted in (str(output.index), output.name):
            return output
    names = ", ".join(folded(group) for group in groups([o.name for o in item.outputs]))
    raise GraphgenError(
        "GG0705",
        f"@{item.function.name} has no output '{wanted}'",
        help=f"it has 0 to {len(item.outputs) - 1}: {names}",
    )


def output_text(item: Overview, output: OutputSummary) -> str:
    """One output: its type, what it updates in place, the op that computes it, its layer."""
    place, value = item.place(output.value), output.value
    made = f"{value.op.name} " if value.op else "argument, "
    bytes_ = f", {size(value.type.nbytes)}" if value.type.static else ""
    lines = [
        f"@{item.function.name}, output {output.index} of {len(item.outputs)}: {output.name}",
        f"  type        {shown_type(value)}{bytes_}",
        f"  takes over  {_argument(item, output)}",
        f"  made by     {made}%{value.name or '-'} {_at(place)}",
        f"  layer       {place.layer or '-'}",
    ]
    return "\n".join(lines) + "\n"


def _argument(item: Overview, output: OutputSummary) -> str:
    if output.argument is None:
        return "nothing: it has memory of its own"
    name = item.function.args[output.argument].name
    return f"argument {output.argument}, %{name}: updated in place"
