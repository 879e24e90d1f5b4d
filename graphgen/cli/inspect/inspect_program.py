"""What ``graphgen inspect`` prints of a program: one screen, or JSON with everything."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from graphgen.cli.console import Json, table
from graphgen.cli.units import folded, groups, number, pattern, short, size, spans
from graphgen.errors import GraphgenError
from graphgen.ir import Dim, Loc, Module, Value
from graphgen.ir.loc import UNKNOWN

if TYPE_CHECKING:
    from graphgen.analysis.overview import Output, Overview, Place

# Rows of a table that could have any number.
_MOST = 8


def module_text(module: Module) -> str:
    """The module in a line or two."""
    mesh = ", ".join(f"{axis} = {count}" for axis, count in module.mesh.items())
    ranks = f", {module.ranks} ranks ({mesh})" if mesh else ""
    lines = [f"@{module.name}: level {module.level}{ranks}, {len(module.functions)} functions"]
    if "opaque" in module.meta:
        lines.append(f"  kept as they are, for want of an op: {module.meta['opaque']}")
    if "dropped" in module.meta:
        lines.append(f"  left out: {module.meta['dropped']}")
    return "\n".join(lines) + "\n"


def program_text(item: Overview) -> str:
    """A program on one screen."""
    function = item.function
    phase = f" ({function.phase})" if function.phase else ""
    lines = [f"@{function.name}{phase}: {function.block.size} ops"]
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
    if item.opaque:
        shown = ", ".join(f"{name} {count}" for name, count in item.opaque.items())
        lines.append(f"  {'opaque':<12}{shown}")
    for code, inner in _inside(item).items():
        lines.append(f"  {'inside':<12}{code}: {_counted(inner)}")
    for body in item.bodies[:_MOST]:
        turns = f", {body.turns} turns" if body.turns is not None else ""
        what = f"{body.op} @{body.name}{turns}: {_counted(body.histogram) or 'nothing'}"
        lines.append(f"  {'inside':<12}{what}")
    return "\n".join([*lines, "", *_tables(item)])


def _counted(histogram: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in [*histogram.items()][:8])


def _inside(item: Overview) -> dict[str, dict[str, int]]:
    """What is in the computations that opaque instructions call, by opcode; it is not counted."""
    from graphgen.lowering.hlo.dialect.subcomputations import opcodes

    found: dict[str, dict[str, int]] = {}
    for op in item.function.block:
        if op.name == "hlo.opaque" and op.attrs["regions"]:
            counts = found.setdefault(op.attrs.text("opcode"), {})
            for code, count in opcodes(op.attrs.text("regions")).items():
                counts[code] = counts.get(code, 0) + count
    return found


def _names(names: list[str]) -> str:
    """The first few, those that differ in numbers only as one."""
    found = groups(names)
    shown = [folded(group) for group in found[:4]]
    return ", ".join(short(name, 60) for name in shown) + (", ..." if len(found) > 4 else "")


def _flops(item: Overview) -> str:
    if not item.flops:
        return "no arithmetic"
    return ", ".join(f"{number(count)} flops in {kind}" for kind, count in item.flops.items())


def _tables(item: Overview) -> list[str]:
    out: list[str] = []
    if item.outputs:
        headers = ["output", "name", "type", "bytes", "takes over", "made by", "at"]
        out.append(table(headers, _output_rows(item), sys.stdout))
    if item.exchanges:
        rows = [
            [x.op, str(x.count), size(x.bytes), x.type, x.algorithm or "-", _groups(x.groups)]
            for x in item.exchanges
        ]
        headers = ["collective", "count", "bytes", "type", "algorithm", "groups"]
        out.append(table(headers, rows, sys.stdout, numeric=2))
    if item.calls:
        rows = [[x.target, str(x.count), x.text, _first(x.first)] for x in item.calls]
        headers = ["custom call", "count", "configuration", "first at"]
        out.append(table(headers, rows, sys.stdout, numeric=1))
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
        out.append(table(headers, rows, sys.stdout, numeric=5))
    if item.largest:
        rows = [_large(item, value) for value in item.largest]
        headers = ["largest", "bytes", "type", "made by", "layer", "at"]
        out.append(table(headers, rows, sys.stdout, numeric=1))
    return out


def _groups(text: str) -> str:
    """``[[0,1,2,3],[4,5,6,7]]`` as ``[0..3] [4..7]``."""
    found = [[int(n) for n in part.split(",") if n] for part in re.findall(r"\[([\d,]*)\]", text)]
    shown = " ".join(f"[{spans(group)}]" for group in found[:4])
    return shown if len(found) <= 4 else f"{shown} ... ({len(found)} groups)"


def _first(op: object) -> str:
    where = getattr(op, "loc", UNKNOWN)
    return _where(cast(Loc, where))


def _output_rows(item: Overview) -> list[list[str]]:
    """Outputs that differ in numbers only are one row."""
    found: dict[tuple[str, ...], list[Output]] = {}
    for output in item.outputs:
        made = output.value.op.name if output.value.op else "argument"
        over = "" if output.argument is None else "kept"
        key = (pattern(output.name), output.value.type.text, made, over)
        found.setdefault(key, []).append(output)
    rows = [_output_row(item, outputs) for outputs in found.values()]
    if len(rows) <= _MOST:
        return rows
    return [*rows[:_MOST], [f"{len(rows) - _MOST} more", "", "", "", "", "", ""]]


def _output_row(item: Overview, outputs: list[Output]) -> list[str]:
    first = outputs[0]
    over = [output.argument for output in outputs if output.argument is not None]
    place = item.place(first.value)
    return [
        spans([output.index for output in outputs]),
        folded([output.name for output in outputs]),
        first.value.type.text,
        size(first.value.type.nbytes) if first.value.type.static else "-",
        f"argument {spans(over)}" if over else "-",
        first.value.op.name if first.value.op else "argument",
        _at(place),
    ]


def _large(item: Overview, value: Value) -> list[str]:
    place = item.place(value)
    made = value.op.name if value.op else "argument"
    name = f"%{value.name or '-'}"
    return [name, size(value.type.nbytes), value.type.text, made, place.layer or "-", _at(place)]


def _at(place: Place) -> str:
    where = _where(place.where)
    return f"read at {where}" if place.read and where != "-" else where


def _where(where: Loc) -> str:
    return f"{where.file}:{where.line}" if where is not UNKNOWN else "-"


def find_output(item: Overview, wanted: str) -> Output:
    """An output by position or name (GG0705 naming those there are)."""
    for output in item.outputs:
        if wanted in (str(output.index), output.name):
            return output
    names = ", ".join(folded(group) for group in groups([o.name for o in item.outputs]))
    raise GraphgenError(
        "GG0705",
        f"@{item.function.name} has no output '{wanted}'",
        help=f"it has 0 to {len(item.outputs) - 1}: {names}",
    )


def output_text(item: Overview, output: Output) -> str:
    """All about one output."""
    place, value = item.place(output.value), output.value
    made = f"{value.op.name} " if value.op else "argument, "
    bytes_ = f", {size(value.type.nbytes)}" if value.type.static else ""
    lines = [
        f"@{item.function.name}, output {output.index} of {len(item.outputs)}: {output.name}",
        f"  type        {value.type.text}{bytes_}",
        f"  takes over  {_argument(item, output)}",
        f"  made by     {made}%{value.name or '-'} {_at(place)}",
        f"  layer       {place.layer or '-'}",
    ]
    return "\n".join(lines) + "\n"


def _argument(item: Overview, output: Output) -> str:
    if output.argument is None:
        return "nothing: it has memory of its own"
    name = item.function.args[output.argument].name
    return f"argument {output.argument}, %{name}: updated in place"


def output_json(item: Overview, output: Output) -> Json:
    """All about one output."""
    return {"program": item.function.name, **_output_json(item, output)}


def module_json(module: Module) -> dict[str, Json]:
    """The module itself."""
    return {
        "name": module.name,
        "level": module.level,
        "mesh": dict[str, Json](module.mesh),
        "ranks": module.ranks,
        "opaque": module.meta.get("opaque"),
        "dropped": module.meta.get("dropped"),
    }


def _plain(count: Dim) -> Json:
    """A number, or a polynomial as text."""
    return count if isinstance(count, int) else str(count)


def program_json(item: Overview) -> dict[str, Json]:
    """A program with all that is known of it."""
    return {
        "name": item.function.name,
        "phase": item.function.phase or None,
        "ops": item.function.block.size,
        "arguments": {
            part.kind: {
                "count": len(part.values),
                "bytes": _plain(part.bytes),
                "guessed": part.guessed,
                "values": [{"name": v.name, "type": v.type.text} for v in part.values],
            }
            for part in item.parts
        },
        "outputs": [_output_json(item, output) for output in item.outputs],
        "flops": {kind: _plain(count) for kind, count in item.flops.items()},
        "transcendentals": _plain(item.work.transcendentals),
        "bytes_moved": _plain(item.work.bytes),
        "peak_bytes": item.peak.bytes if item.peak else None,
        "histogram": dict[str, Json](item.histogram),
        "opaque": dict[str, Json](item.opaque),
        "inside_opaque": {code: dict[str, Json](inner) for code, inner in _inside(item).items()},
        "bodies": [
            {
                "op": body.op,
                "name": body.name,
                "turns": body.turns,
                "histogram": dict[str, Json](body.histogram),
            }
            for body in item.bodies
        ],
        **_repeats_json(item),
        "largest": [_large_json(item, value) for value in item.largest],
    }


def _output_json(item: Overview, output: Output) -> dict[str, Json]:
    over = output.argument
    return {
        "index": output.index,
        "name": output.name,
        "type": output.value.type.text,
        "takes_over": output.argument,
        "argument": None if over is None else item.function.args[over].name,
        **_place_json(item, output.value),
    }


def _place_json(item: Overview, value: Value) -> dict[str, Json]:
    place = item.place(value)
    return {
        "op": value.op.name if value.op else None,
        "layer": place.layer or None,
        "where": _where(place.where),
        "scope": place.where.scope or None,
        "where_is_of_a_reader": place.read,
    }


def _large_json(item: Overview, value: Value) -> dict[str, Json]:
    return {
        "name": value.name,
        "type": value.type.text,
        "bytes": value.type.nbytes,
        **_place_json(item, value),
    }


def _repeats_json(item: Overview) -> dict[str, Json]:
    """What is there more than once."""
    return {
        "custom_calls": [
            {
                "target": x.target,
                "count": x.count,
                "configuration": cast(Json, x.facts),
                "first_at": _first(x.first),
            }
            for x in item.calls
        ],
        "collectives": [
            {
                "op": x.op,
                "type": x.type,
                "groups": x.groups,
                "count": x.count,
                "bytes": _plain(x.bytes),
                "algorithm": x.algorithm or None,
            }
            for x in item.exchanges
        ],
        "layers": [
            {
                "first": x.first,
                "last": x.last,
                "count": x.count,
                "ops": x.ops,
                "flops": _plain(x.work.flops),
                "bytes_moved": _plain(x.work.bytes),
                "weight_bytes": _plain(x.weights),
            }
            for x in item.layers
        ],
    }
