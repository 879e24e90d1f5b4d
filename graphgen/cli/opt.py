"""``graphgen opt``: passes over a module."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from graphgen.cli.console import Json, note_remarks, table
from graphgen.cli.files import STANDARD, check_output
from graphgen.cli.module_file import read_module, write_module
from graphgen.cli.pass_list import load_passes

if TYPE_CHECKING:
    from passes.core import PassReport


def opt(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="IR text, StableHLO or HLO; - is standard input.")
    ],
    pipeline: Annotated[
        str,
        typer.Option(
            "-p", "--pipeline", metavar="PIPELINE", help="Passes: name,name{option=value}."
        ),
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="OUT.gg", help="Where to write; - is stdout.")
    ] = STANDARD,
    plugin: Annotated[
        list[str] | None, typer.Option("--plugin", metavar="FILE.py", help="A file with passes.")
    ] = None,
    stats: Annotated[
        bool, typer.Option("--stats", help="Show on stderr what each pass did.")
    ] = False,
    time: Annotated[bool, typer.Option("--time", help="The same, with the time it took.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what each pass did as JSON; needs -o OUT.gg.")
    ] = False,
) -> None:
    """Run passes over a module and write the module that results.

    The module is checked after every pass. 'graphgen passes' lists the passes and their options.

    \b
    Examples:
      graphgen opt m.gg -p canonicalize,dce --stats -o out.gg
      graphgen opt m.gg -p 'specialize{batch=[1,4],context=[128],tokens=[128]}' --time
      graphgen build llama-3.1-8b --mini | graphgen opt - -p 'shard{tp=2},partition'
    """
    if as_json and output == STANDARD:
        raise typer.BadParameter(
            "needs -o OUT.gg: standard output is the module", param_hint="'--json'"
        )
    from passes.core import run_pipeline
    from passes.core.plugins import load_file
    from passes.pipelines import parse

    check_output(output)
    load_passes()
    for path in plugin or []:
        load_file(path)
    passes = parse(pipeline)
    module = read_module(file)
    reports = run_pipeline(module, passes)
    note_remarks(reports)
    write_module(module, output, as_json=as_json, more={"passes": _facts(reports)})
    if (stats or time) and not as_json:
        sys.stderr.write(_table(reports, time=time))


def _facts(reports: Sequence[PassReport]) -> list[Json]:
    return [
        {
            "pass": report.name,
            "ops_before": report.ops_before,
            "ops_after": report.ops_after,
            "applications": report.applications,
            "seconds": report.seconds,
            "remarks": report.remarks,
        }
        for report in reports
    ]


def _table(reports: Sequence[PassReport], *, time: bool) -> str:
    headers = ["pass", "ops before", "ops after", "rewrites", *(["ms"] if time else [])]
    rows = [
        [
            report.name,
            str(report.ops_before),
            str(report.ops_after),
            str(report.applications),
            *([f"{report.seconds * 1000:.1f}"] if time else []),
        ]
        for report in reports
    ]
    return table(headers, rows, sys.stderr, numeric=4)
