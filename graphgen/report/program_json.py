"""Modules, programs and outputs as JSON, as ``graphgen inspect --json`` prints them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from graphgen.analysis.annotation_diff import control_edges
from graphgen.analysis.overview import OutputSummary, Overview
from graphgen.ir import Dim, Module, Value
from graphgen.ir.loc import UNKNOWN
from graphgen.json_value import Json
from graphgen.ops.external import shown_type
from graphgen.report.program_text import where_of


def output_json(item: Overview, output: OutputSummary) -> Json:
    """One output with its program."""
    return {"program": item.function.name, **_output_json(item, output)}


def module_json(module: Module) -> dict[str, Json]:
    """Name, level, mesh and what a reader kept or left out of a module."""
    return {
        "name": module.name,
        "level": module.level,
        "mesh": dict[str, Json](module.mesh),
        "ranks": module.ranks,
        **({"invalid": [*module.meta["invalid"].split("\n")]} if "invalid" in module.meta else {}),
        "opaque": module.meta.get("opaque"),
        "dropped": module.meta.get("dropped"),
    }


def _plain(count: Dim) -> Json:
    """A number, or a polynomial as text."""
    return count if isinstance(count, int) else str(count)


def program_json(
    item: Overview, inside: Mapping[str, Mapping[str, int]] | None = None
) -> dict[str, Json]:
    """Everything in an overview; ``inside`` as in :func:`~graphgen.report.program_text`."""
    return {
        "name": item.function.name,
        "phase": item.function.phase or None,
        "ops": item.function.block.size,
        "arguments": {
            part.kind: {
                "count": len(part.values),
                "bytes": _plain(part.bytes),
                "guessed": part.guessed,
                "values": [{"name": v.name, "type": shown_type(v)} for v in part.values],
            }
            for part in item.parts
        },
        "outputs": [_output_json(item, output) for output in item.outputs],
        "flops": {kind: _plain(count) for kind, count in item.flops.items()},
        "transcendentals": _plain(item.work.transcendentals),
        "bytes_moved": _plain(item.work.bytes),
        "peak_bytes": item.peak.bytes if item.peak else None,
        "histogram": dict[str, Json](item.histogram),
        "whole_histogram": dict[str, Json](item.whole_histogram),
        "control_dependencies": [
            [op.results[0].name for op in edge] for edge in control_edges(item.function)
        ],
        "opaque": dict[str, Json](item.opaque),
        "inside_opaque": {code: dict[str, Json](inner) for code, inner in (inside or {}).items()},
        "bodies": [
            {
                "op": body.op,
                "name": body.name,
                "turns": body.trip_count,
                "histogram": dict[str, Json](body.histogram),
            }
            for body in item.bodies
        ],
        **_repeats_json(item),
        "largest": [_large_json(item, value) for value in item.largest],
    }


def _output_json(item: Overview, output: OutputSummary) -> dict[str, Json]:
    over = output.argument
    return {
        "index": output.index,
        "name": output.name,
        "type": shown_type(output.value),
        "takes_over": output.argument,
        "argument": None if over is None else item.function.args[over].name,
        **_place_json(item, output.value),
    }


def _place_json(item: Overview, value: Value) -> dict[str, Json]:
    place = item.place(value)
    return {
        "op": value.op.name if value.op else None,
        "layer": place.layer or None,
        "where": where_of(place.where),
        "scope": place.where.scope or None,
        "where_is_of_a_reader": place.read,
    }


def _large_json(item: Overview, value: Value) -> dict[str, Json]:
    return {
        "name": value.name,
        "type": shown_type(value),
        "bytes": value.type.nbytes,
        **_place_json(item, value),
    }


def _repeats_json(item: Overview) -> dict[str, Json]:
    """Custom calls, collectives and layers, each kind once with its count."""
    return {
        "custom_calls": [
            {
                "target": x.target,
                "count": x.count,
                "configuration": cast(Json, x.facts),
                "first_at": where_of(x.first.loc if x.first else UNKNOWN),
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
