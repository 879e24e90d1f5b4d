"""``graphgen trace``: a run of a pipeline as one page of HTML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphgen.cli.console import note, write_json
from graphgen.cli.files import STANDARD, check_output, write_text
from graphgen.cli.module_file import read_module
from graphgen.cli.shared_options import ModuleFile, PipelineOption, Plugins, load_pipeline


def trace(
    file: ModuleFile,
    pipeline: PipelineOption = "default",
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="OUT.html", help="Where to write the page.")
    ] = "trace.html",
    plugin: Plugins = None,
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
    from graphgen.lowering.stablehlo import stablehlo_places
    from graphgen.passes.inspect.recording import record
    from graphgen.passes.inspect.report import report
    from graphgen.report import trace_page

    if not as_json:
        check_output(output)
    passes = load_pipeline(pipeline, plugin)
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
