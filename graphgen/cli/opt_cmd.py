"""``graphgen opt``: run passes over a module."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import colored, note, note_remarks, paint_diff
from graphgen.cli.files import STANDARD
from graphgen.cli.module_file import read_module, write_module
from graphgen.cli.shared_options import ModuleFile, OutputFile, Plugins, check_outputs, load_plugins
from graphgen.json_value import Json
from graphgen.report.table import Table, render

if TYPE_CHECKING:
    from graphgen.passes.core import Pass, PassReport
    from graphgen.passes.core.instrument import PassInstrument
    from graphgen.passes.core.journal import Journal
    from graphgen.passes.core.registry import Phase
    from graphgen.passes.inspect.debug_log import PrintAfter
    from graphgen.passes.spmd.explain_sharding import ExplainSharding

COMMAND: Final = Command("passes", "Run passes over a module.", order=1)

Pipeline = Annotated[
    str,
    typer.Option(
        "-p",
        "--pipeline",
        metavar="PIPELINE",
        help="Passes and pipelines: name,name{option=value}.",
    ),
]
Before = Annotated[
    str, typer.Option("--print-before", metavar="PASS|ALL", help="Show the module before a pass.")
]
After = Annotated[
    str,
    typer.Option(
        "--print-after",
        metavar="CHANGED|PASS|ALL",
        help="Show the module after a pass; CHANGED is a diff of what each pass changed.",
    ),
]
DumpTo = Annotated[
    str,
    typer.Option("--dump", metavar="DIR", help="Write the module after each pass that changes it."),
]
Start = Annotated[
    str,
    typer.Option("--start-at", metavar="PASS|PHASE", help="Leave out the passes before this one."),
]
Stop = Annotated[
    str,
    typer.Option("--stop-after", metavar="PASS|PHASE", help="Leave out the passes after this one."),
]
FuelText = Annotated[
    str,
    typer.Option(
        "--fuel", metavar="N|PASS=N", help="Make at most this many rewrites, in total or in a pass."
    ),
]
Stats = Annotated[bool, typer.Option("--stats", help="Show on stderr what each pass did.")]
Time = Annotated[bool, typer.Option("--time", help="The same, with the time it took.")]
Tell = Annotated[
    bool,
    typer.Option(
        "--decisions", help="Show which rule applied where, and what came near and why not."
    ),
]
Explain = Annotated[
    bool,
    typer.Option(
        "--explain-sharding",
        help="Show the sharding of every value, who decided it, and what is sent.",
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print what each pass did as JSON; needs -o OUT.gg.")
]


def opt(
    file: ModuleFile,
    pipeline: Pipeline,
    output: OutputFile = STANDARD,
    plugin: Plugins = None,
    print_before: Before = "",
    print_after: After = "",
    dump: DumpTo = "",
    start_at: Start = "",
    stop_after: Stop = "",
    fuel: FuelText = "",
    stats: Stats = False,
    time: Time = False,
    decisions: Tell = False,
    explain_sharding: Explain = False,
    as_json: AsJson = False,
) -> None:
    """Run passes over a module and write the module that results.

    The module is checked after every pass. Reports go to stderr. A pass is named as in the
    pipeline; cse#2 is its second cse. 'graphgen passes' lists the passes and their options. Phases
    are those of 'graphgen pipeline default --show'; phase:shard where a pass has that name too.

    \b
    Examples:
      graphgen opt m.gg -p canonicalize,dce --stats -o out.gg
      graphgen opt m.gg -p 'specialize{batch=[1,4],context=[128],tokens=[128]}' --time
      graphgen opt m.gg -p 'default{tp=2}' --print-after CHANGED -o out.gg
      graphgen opt m.gg -p default --stop-after fuse --dump passes/ -o fused.gg
      graphgen opt fused.gg -p default --start-at weights --decisions -o out.gg
      graphgen build llama-3.1-8b --mini | graphgen opt - -p 'shard{tp=2},pad-to-mesh,partition'
      graphgen opt m.gg -p 'default{tp=2}' --explain-sharding -o out.gg
    """
    from graphgen.lowering.plugin_file import check_plugins_named
    from graphgen.passes.core import run_pipeline
    from graphgen.passes.core.fuel import parse_fuel
    from graphgen.passes.core.journal import Journal
    from graphgen.passes.pipelines import parse_in_phases, passes_of

    check_outputs(output, as_json)
    loaded = load_plugins(plugin)
    phases = parse_in_phases(pipeline)
    check_plugins_named(loaded, pipeline, passes_of(phases))
    passes = _part(phases, start_at, stop_after)
    changes = _changes(print_after, silent=as_json)
    watch = _watchers(passes, print_before, print_after, dump, changes)
    why = _sharding_watcher() if explain_sharding else None
    watch += [why] if why else []
    module = read_module(file)
    journal = Journal() if decisions else None
    limit = parse_fuel(fuel, "--fuel") if fuel else None
    reports = run_pipeline(module, passes, fuel=limit, journal=journal, instruments=watch)
    _note(reports)
    write_module(module, output, as_json=as_json, more=_facts(reports, changes, journal, why))
    if not as_json:
        shown = [_table(reports, time=time)] if stats or time else []
        shown += _decisions(journal) if journal is not None else []
        sys.stderr.write("".join(render(part, sys.stderr) for part in [*shown, *_sharding(why)]))


def _sharding_watcher() -> ExplainSharding:
    from graphgen.passes.spmd.explain_sharding import ExplainSharding

    return ExplainSharding()


def _note(reports: Sequence[PassReport]) -> None:
    """Print remarks of passes, and the pass that ran out of fuel."""
    note_remarks(reports)
    for report in reports:
        if report.stopped:
            note(f"the fuel was used up in {report.name}")


def _part(phases: list[Phase], start: str, stop: str) -> list[Pass]:
    """The passes from one pass or phase to another."""
    from graphgen.passes.pipelines import passes_of, range_of

    passes = passes_of(phases)
    first = range_of(phases, start, "--start-at").start if start else 0
    last = range_of(phases, stop, "--stop-after").stop if stop else len(passes)
    if start and stop and last <= first:
        raise typer.BadParameter(f"{stop} comes before {start}", param_hint="'--stop-after'")
    return passes[first:last]


def _changes(print_after: str, *, silent: bool) -> PrintAfter | None:
    """The instrument that collects a diff per pass; ``None`` unless requested."""
    from graphgen.passes.inspect.debug_log import CHANGED, PrintAfter

    if print_after != CHANGED:
        return None
    return PrintAfter(CHANGED, (lambda text: None) if silent else _write_diff)


def _watchers(
    passes: Sequence[Pass], before: str, after: str, dump: str, changes: PrintAfter | None
) -> list[PassInstrument]:
    from graphgen.passes.inspect.debug_log import ALL, Dump, PrintAfter, PrintBefore, pick

    def number(name: str, option: str) -> int | str:
        return name if name == ALL else pick(passes, name, option) + 1

    watch: list[PassInstrument] = []
    if before:
        watch.append(PrintBefore(number(before, "--print-before"), sys.stderr.write))
    if changes is not None:
        watch.append(changes)
    elif after:
        watch.append(PrintAfter(number(after, "--print-after"), sys.stderr.write))
    if dump:
        watch.append(Dump(Path(dump)))
    return watch


def _write_diff(text: str) -> None:
    sys.stderr.write(paint_diff(text) if colored(sys.stderr) else text)


def _facts(
    reports: Sequence[PassReport],
    changes: PrintAfter | None,
    journal: Journal | None,
    why: ExplainSharding | None,
) -> dict[str, Json]:
    from graphgen.passes.inspect.result_json import decisions_json, report_json
    from graphgen.passes.spmd.explain_sharding import sharding_json

    diffs: list[dict[str, Json]] = [{} for _ in reports]
    if changes is not None:
        diffs = [{"diff": diff} for diff in changes.diffs]
    passes = [{**report_json(r), **diff} for r, diff in zip(reports, diffs, strict=True)]
    facts: dict[str, Json] = {"passes": passes}
    if journal is not None:
        facts["decisions"] = decisions_json(journal)
    if why is not None:
        facts["sharding"] = sharding_json(why)
    return facts


def _sharding(why: ExplainSharding | None) -> list[Table]:
    from graphgen.passes.spmd.explain_sharding import sharding_table

    return [] if why is None else [sharding_table(why)]


def _table(reports: Sequence[PassReport], *, time: bool) -> Table:
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
    return Table(headers, rows, 4)


def _decisions(journal: Journal) -> list[str | Table]:
    from graphgen.passes.inspect.decisions import decisions

    found = decisions(journal)
    rows = [
        [site.pass_name, site.rule, f"@{site.function}", site.scope, _times(counts)]
        for site, counts in found.made.items()
    ]
    columns = ["pass", "rule", "function", "scope"]
    applied = Table([*columns, ""], rows)
    rows = [
        [site.pass_name, site.rule, f"@{site.function}", site.scope, why]
        for site, why in found.near.items()
    ]
    missed = Table([*columns, "did not apply: nearest"], rows)
    return ["\n", applied, *(["\n", missed] if rows else [])]


def _times(counts: Mapping[int, int]) -> str:
    """``2 x in 32 places``: rewrites per layer, number of layers."""
    return ", ".join(
        f"{times} x" + (f" in {layers} places" if layers > 1 else "")
        for times, layers in sorted(counts.items())
    )
