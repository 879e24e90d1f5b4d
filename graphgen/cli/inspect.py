"""``graphgen inspect``: what is in a module, on one screen a program."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from graphgen.cli.console import Json, table, write_json, write_stdout

if TYPE_CHECKING:
    from graphgen.analysis.overview import Overview
    from graphgen.ir import Dim, Module, Value


def inspect(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A module: .gg, StableHLO, HLO; - is stdin.")
    ],
    program: Annotated[
        str | None, typer.Option("--program", metavar="NAME", help="Only this program.")
    ] = None,
    largest: Annotated[
        int, typer.Option("--largest", min=0, help="How many of the largest tensors to show.")
    ] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what a module takes, keeps, computes and exchanges; bytes are of one rank.

    \b
    Examples:
      graphgen inspect decode.pb
      graphgen inspect mini.gg --program decode --largest 3
      graphgen inspect step.mlir --json
    """
    from graphgen.analysis.overview import overview
    from graphgen.cli.module_file import read_module

    module = read_module(file)
    functions = module.programs() or list(module.functions.values())
    if program is not None:
        functions = [module.function(program)]
    looked = [overview(module, function, largest) for function in functions]
    if as_json:
        write_json({**_module_json(module), "programs": [_json(item) for item in looked]})
    else:
        write_stdout("\n".join([_head(module), *map(_text, looked)]))


def _head(module: Module) -> str:
    mesh = ", ".join(f"{axis} = {size}" for axis, size in module.mesh.items())
    ranks = f", {module.ranks} ranks ({mesh})" if mesh else ""
    return f"@{module.name}: level {module.level}{ranks}, {len(module.functions)} functions\n"


def _text(item: Overview) -> str:
    function = item.function
    phase = f" ({function.phase})" if function.phase else ""
    lines = [f"@{function.name}{phase}: {function.block.size} ops"]
    for part in item.parts:
        if part.values:
            guess = "  (guessed from use)" if part.guessed else ""
            lines.append(f"  {part.kind:<12}{len(part.values):>5}  {_size(part.bytes)}{guess}")
    lines.append(f"  {'outputs':<12}{len(function.outputs):>5}  {len(item.aliases)} kept in place")
    lines.append(f"  {'work':<12}{_flops(item)}; {_size(item.work.bytes)} moved without fusion")
    if item.peak is not None:
        at = f" at {item.peak.op.name} {item.peak.op.loc!r}" if item.peak.op else ""
        lines.append(f"  {'live':<12}{_size(item.peak.bytes)} at most{at}")
    if item.calls:
        shown = ", ".join(f"{name} ({count})" for name, count in item.calls.items())
        lines.append(f"  {'calls':<12}{shown}")
    top = sorted(item.histogram.items(), key=lambda pair: -pair[1])[:8]
    lines.append(f"  {'ops':<12}" + ", ".join(f"{name} {count}" for name, count in top))
    return "\n".join([*lines, "", *_tables(item)])


def _flops(item: Overview) -> str:
    if not item.flops:
        return "no arithmetic"
    return ", ".join(f"{_number(count)} flops in {kind}" for kind, count in item.flops.items())


def _tables(item: Overview) -> list[str]:
    out: list[str] = []
    if item.exchanges:
        rows = [
            [x.op, str(x.count), _size(x.bytes), x.type, x.algorithm or "-", _short(x.groups)]
            for x in item.exchanges
        ]
        headers = ["collective", "count", "bytes", "type", "algorithm", "groups"]
        out.append(table(headers, rows, sys.stdout, numeric=2))
    if item.layers:
        rows = [
            [
                x.first if x.count == 1 else f"{x.first} to {x.last}",
                str(x.count),
                str(x.ops),
                _number(x.work.flops),
                _size(x.work.bytes),
            ]
            for x in item.layers
        ]
        headers = ["layers", "count", "ops each", "flops each", "moved each"]
        out.append(table(headers, rows, sys.stdout, numeric=4))
    if item.largest:
        rows = [[*_value(value)] for value in item.largest]
        headers = ["largest", "bytes", "type", "made by", "at"]
        out.append(table(headers, rows, sys.stdout, numeric=1))
    return out


def _value(value: Value) -> list[str]:
    made, at = (value.op.name, repr(value.op.loc)) if value.op else ("argument", "")
    return [f"%{value.name or '-'}", _size(value.type.nbytes), value.type.text, made, at]


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


def _size(size: Dim) -> str:
    if not isinstance(size, int):
        return f"{size} bytes"
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.2f} {name}"
    return f"{size} B"


def _number(count: Dim) -> str:
    if not isinstance(count, int):
        return str(count)
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if count >= unit:
            return f"{count / unit:.2f} {name}"
    return str(count)


def _module_json(module: Module) -> dict[str, Json]:
    mesh: dict[str, Json] = dict(module.mesh)
    return {"name": module.name, "level": module.level, "mesh": mesh, "ranks": module.ranks}


def _plain(size: Dim) -> Json:
    """A number, or a polynomial as text."""
    return size if isinstance(size, int) else str(size)


def _json(item: Overview) -> dict[str, Json]:
    flops: dict[str, Json] = {kind: _plain(count) for kind, count in item.flops.items()}
    histogram: dict[str, Json] = dict(item.histogram)
    calls: dict[str, Json] = dict(item.calls)
    parts: dict[str, Json] = {
        part.kind: {
            "count": len(part.values),
            "bytes": _plain(part.bytes),
            "guessed": part.guessed,
            "values": [{"name": v.name, "type": v.type.text} for v in part.values],
        }
        for part in item.parts
    }
    return {
        "name": item.function.name,
        "phase": item.function.phase or None,
        "ops": item.function.block.size,
        "arguments": parts,
        "outputs": [{"name": n, "type": v.type.text} for n, v in item.function.outputs],
        "aliases": [{"output": output, "argument": argument} for output, argument in item.aliases],
        "flops": flops,
        "transcendentals": _plain(item.work.transcendentals),
        "bytes_moved": _plain(item.work.bytes),
        "peak_bytes": item.peak.bytes if item.peak else None,
        "histogram": histogram,
        "calls": calls,
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
            }
            for x in item.layers
        ],
        "largest": [
            {
                "name": value.name,
                "type": value.type.text,
                "bytes": value.type.nbytes,
                "op": value.op.name if value.op else None,
                "where": repr(value.op.loc) if value.op else None,
            }
            for value in item.largest
        ],
    }
