"""Overviews of a module's programs, with the opcodes inside opaque HLO instructions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphgen.analysis.overview import Overview, overview
from graphgen.cli.inspect.inspect_files import Inspection
from graphgen.cli.inspect.partitioning_report import partitioning_report
from graphgen.ir import Function, Module
from graphgen.json_value import Json
from graphgen.paused_collector import paused_collector
from graphgen.report.program_json import module_json, program_json
from graphgen.report.program_text import module_text, program_text
from graphgen.report.table import Report


def overviews(module: Module, functions: Sequence[Function], largest: int) -> list[Overview]:
    """One overview per function, with its ``largest`` largest values."""
    with paused_collector():
        return [overview(module, function, largest) for function in functions]


def programs_inspection(
    module: Module,
    functions: Sequence[Function],
    largest: int,
    head: str = "",
    more: Mapping[str, Json] | None = None,
) -> Inspection:
    """A module and its programs.

    Args:
        module: of the programs.
        functions: the programs.
        largest: number of largest values to show.
        head: text before the module's.
        more: facts before the module's.
    """
    from graphgen.lowering.hlo.preserved.partitioning import partitioning_of

    items = overviews(module, functions, largest)
    partitioned = partitioning_of(module)

    def facts() -> Json:
        return {
            **(more or {}),
            **module_json(module),
            "partitioning": partitioned.to_json() if partitioned is not None else None,
            "programs": [program_facts(item) for item in items],
        }

    def report() -> Report:
        parts = [part for item in items for part in program_text(item, opcodes_inside(item))]
        split = partitioning_report(partitioned) if partitioned is not None else []
        return [head + module_text(module), *split, *parts]

    return Inspection(facts, report)


def program_facts(item: Overview) -> dict[str, Json]:
    """One program as JSON."""
    return program_json(item, opcodes_inside(item))


def opcodes_inside(item: Overview) -> dict[str, dict[str, int]]:
    """Opcodes in the computations that opaque instructions call, by the opcode of the caller."""
    from graphgen.lowering.hlo.dialect.subcomputations import opcodes

    found: dict[str, dict[str, int]] = {}
    for op in item.function.block:
        if op.name == "hlo.opaque" and op.attrs["regions"]:
            counts = found.setdefault(op.attrs.text("opcode"), {})
            for code, count in opcodes(op.attrs.text("regions")).items():
                counts[code] = counts.get(code, 0) + count
    return found
