"""``graphgen explain``: rewrites of a pass, and reasons for near misses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import emit
from graphgen.cli.files import check_output
from graphgen.cli.html_pages import TraceFile, op_name, page_link, write_trace_page
from graphgen.cli.module_file import read_module
from graphgen.cli.shared_options import (
    AsJson,
    ModuleFile,
    Most,
    OnlyProgram,
    Plugins,
    load_pipeline,
)

if TYPE_CHECKING:
    from graphgen.passes.inspect.explain import Explanation

COMMAND: Final = Command("passes", "Show why a pass did, or did not, rewrite an op.")


def explain(
    file: ModuleFile,
    pass_name: Annotated[str, typer.Option("--pass", metavar="PASS", help="The pass to explain.")],
    pipeline: Annotated[
        str | None,
        typer.Option(
            "-p", "--pipeline", metavar="PIPELINE", help="Passes to run; default: the pass alone."
        ),
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="%VALUE", help="Only the op with this result.")
    ] = None,
    scope: Annotated[
        str | None, typer.Option("--scope", metavar="SCOPE", help="Only ops of this module scope.")
    ] = None,
    program: OnlyProgram = None,
    rule: Annotated[
        str | None, typer.Option("--rule", metavar="RULE", help="Only this rule of the pass.")
    ] = None,
    plugin: Plugins = None,
    most: Most = 10,
    trace: TraceFile = None,
    as_json: AsJson = False,
) -> None:
    """Show what a pass rewrote at a place, and why its rules left the rest alone.

    For each rule the reasons come in the order of how far the rule got: the first is the one to
    look at.

    \b
    Examples:
      graphgen explain mini.gg -p default --pass fuse-projections --scope model.layers.0.mlp
      graphgen explain simple.gg --pass simplify-shape --at %reshape.7 --json
      graphgen explain mini.gg -p default --pass fuse-projections --trace t.html
    """
    from graphgen.passes.inspect.explain import ExplainQuery
    from graphgen.passes.inspect.explain import explain as find
    from graphgen.passes.inspect.result_json import explanation_json

    if trace is not None:
        check_output(trace)
    passes = load_pipeline(pipeline or pass_name, plugin)
    place = ExplainQuery((at or "").lstrip("%"), scope or "", program or "", rule or "")
    found = find(read_module(file), passes, pass_name, place)
    if trace is not None:
        write_trace_page(trace, file, read_module(file), passes)
    emit(as_json, lambda: explanation_json(found), lambda: _text(found, most, trace))


def _text(found: Explanation, most: int, page: str | None) -> str:
    lines = [f"{found.pass_name}: {len(found.applications)} rewrites here"]
    for item in found.applications[:most]:
        gain = f": {item.gain}" if item.gain else ""
        lines.append(f"  #{item.number} {item.rule}: {item.root}{gain}")
        lines.append(f"      --> @{item.function} {item.loc!r}, by the rule at {item.source}")
        if page is not None:
            address = page_link(page, pass_=found.pass_name, rewrite=item.number)
            lines.append(f"      page: {address}")
    if len(found.applications) > most:
        lines.append(f"  ... and {len(found.applications) - most} more (--most)")
    if not found.applications and not found.reasons:
        lines.append("  none of its rules looked at anything here; --at wants a result's name")
    for reason in found.reasons[:most]:
        times = f" ({reason.count} ops)" if reason.count > 1 else ""
        lines.append(f"not {reason.rule}: {reason.reason}{times}")
        if reason.at:
            touched = f", last touched by {reason.touched}" if reason.touched else ""
            lines.append(f"  value: {reason.at}{touched}")
        lines.append(f"  looked at: {reason.root}")
        lines.append(f"  --> @{reason.function} {reason.loc!r}")
        if page is not None:
            lines.append(f"  page: {page_link(page, op=op_name(reason.root))}")
    if len(found.reasons) > most:
        lines.append(f"... and {len(found.reasons) - most} more reasons (--most)")
    return "\n".join([*lines, ""])
