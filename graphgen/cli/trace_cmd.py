"""``graphgen trace``: a run of a pipeline as one page of HTML."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import write_json
from graphgen.cli.files import check_output
from graphgen.cli.html_pages import write_trace_page
from graphgen.cli.module_file import read_module
from graphgen.cli.shared_options import ModuleFile, PipelineOption, Plugins, load_pipeline

COMMAND: Final = Command("passes", "Show all that passes did, as a page of HTML.")


def trace(
    file: ModuleFile,
    pipeline: PipelineOption = "default",
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="OUT.html", help="File to write the page to.")
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
    file needs nothing else, and no network. trace.html#pass=cse&rewrite=3 opens a rewrite,
    #op=NAME an op, #view=provenance and #search=WORDS a view.

    \b
    Examples:
      graphgen trace mini.gg -p default -o trace.html
      graphgen trace mini.gg -p 'default{tp=2}' --json
    """
    from graphgen.lowering.stablehlo import stablehlo_places
    from graphgen.passes.inspect.recording import record
    from graphgen.passes.inspect.report import report

    if not as_json:
        check_output(output)
    passes = load_pipeline(pipeline, plugin)
    module = read_module(file)
    if not as_json:
        return write_trace_page(output, file, module, passes)
    recording = record(module, passes)
    return write_json(report(recording, stablehlo_places(recording.module)))
