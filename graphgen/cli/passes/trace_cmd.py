"""``graphgen trace``: everything a pipeline did, as one page of HTML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphgen.cli.console import note, write_json
from graphgen.cli.files import STANDARD, check_output, write_text

if TYPE_CHECKING:
    from graphgen.ir import Module, Op


def trace(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A module; - is standard input.")],
    pipeline: Annotated[
        str, typer.Option("-p", "--pipeline", metavar="PIPELINE", help="Passes; 'default' too.")
    ] = "default",
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="OUT.html", help="Where to write the page.")
    ] = "trace.html",
    plugin: Annotated[
        list[str] | None, typer.Option("--plugin", metavar="FILE.py", help="A file with passes.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what is in the page as JSON instead.")
    ] = False,
) -> None:
    """Run passes and write one HTML file that shows everything they did.

    A timeline of the passes; for each the diff, the cost of the programs, every rewrite with its
    rule and what was there before and after, and the near misses; and for every source line the
    ops it wrote and the lowered ops these became, both ways. Identical layers are shown once. The
    file needs nothing else, and no network.

    \b
    Examples:
      graphgen trace mini.gg -p default -o trace.html
      graphgen trace mini.gg -p 'default{tp=2}' --json
    """
    from graphgen.cli.module_file import read_module
    from graphgen.cli.pass_list import load_passes
    from graphgen.passes.core.plugins import load_file
    from graphgen.passes.debug.recording import record
    from graphgen.passes.debug.report import report
    from graphgen.passes.pipelines import parse
    from graphgen.report import trace_page

    if not as_json:
        check_output(output)
    load_passes()
    for path in plugin or []:
        load_file(path)
    passes = parse(pipeline)
    recording = record(read_module(file), passes)
    data = report(recording, stablehlo_places(recording.module))
    if as_json:
        write_json(data)
        return
    text = trace_page(f"graphgen trace {Path(file).name}", data)
    write_text(output, text)
    if output != STANDARD:
        made = sum(stage.report.applications for stage in recording.stages)
        note(f"wrote {output}: {len(passes)} passes, {made} rewrites, {len(text) / 1e6:.1f} MB")


def stablehlo_places(module: Module) -> Mapping[Op, tuple[str, int, str]]:
    """For each op its program, line and text in StableHLO; empty for what cannot be lowered yet."""
    if module.level != "target":
        return {}
    from graphgen.lowering.stablehlo import stablehlo_lines

    found: dict[Op, tuple[str, int, str]] = {}
    for function in module.programs():
        for op, (number, text) in stablehlo_lines(module, function).items():
            # A function that several programs call stands in the text of each.
            found.setdefault(op, (function.name, number, text))
    return found
