"""``graphgen explain``: why a pass did, or did not, rewrite something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from graphgen.cli.console import Json, write_json, write_stdout

if TYPE_CHECKING:
    from graphgen.passes.debug.explain import Explanation


def explain(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A module; - is standard input.")],
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
    program: Annotated[
        str | None, typer.Option("--program", metavar="NAME", help="Only this program.")
    ] = None,
    rule: Annotated[
        str | None, typer.Option("--rule", metavar="RULE", help="Only this rule of the pass.")
    ] = None,
    plugin: Annotated[
        list[str] | None, typer.Option("--plugin", metavar="FILE.py", help="A file with passes.")
    ] = None,
    most: Annotated[int, typer.Option("--most", min=1, help="How many entries to show.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what a pass rewrote at a place, and why its rules left the rest alone.

    For each rule the reasons come in the order of how far the rule got: the first is the one to
    look at.

    \b
    Examples:
      graphgen explain mini.gg -p default --pass fuse-projections --scope model.layers.0.mlp
      graphgen explain simple.gg --pass simplify-shape --at %reshape.7 --json
    """
    from graphgen.cli.module_file import read_module
    from graphgen.cli.pass_list import load_passes
    from graphgen.passes.core.plugins import load_file
    from graphgen.passes.debug.explain import Place
    from graphgen.passes.debug.explain import explain as find
    from graphgen.passes.pipelines import parse

    load_passes()
    for path in plugin or []:
        load_file(path)
    passes = parse(pipeline or pass_name)
    place = Place((at or "").lstrip("%"), scope or "", program or "", rule or "")
    found = find(read_module(file), passes, pass_name, place)
    if as_json:
        write_json(_json(found))
    else:
        write_stdout(_text(found, most))


def _text(found: Explanation, most: int) -> str:
    lines = [f"{found.pass_name}: {len(found.applications)} rewrites here"]
    for item in found.applications[:most]:
        gain = f": {item.gain}" if item.gain else ""
        lines.append(f"  #{item.number} {item.rule}: {item.root}{gain}")
        lines.append(f"      --> @{item.function} {item.loc!r}, by the rule at {item.source}")
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
    if len(found.reasons) > most:
        lines.append(f"... and {len(found.reasons) - most} more reasons (--most)")
    return "\n".join([*lines, ""])


def _json(found: Explanation) -> Json:
    return {
        "pass": found.pass_name,
        "applications": [
            {
                "number": item.number,
                "rule": item.rule,
                "function": item.function,
                "op": item.root,
                "where": repr(item.loc),
                "rule_at": item.source,
                "gain": item.gain,
            }
            for item in found.applications
        ],
        "misses": [
            {
                "rule": reason.rule,
                "reason": reason.reason,
                "value": reason.at or None,
                "last_touched_by": reason.touched or None,
                "function": reason.function,
                "op": reason.root,
                "where": repr(reason.loc),
                "count": reason.count,
            }
            for reason in found.reasons
        ],
    }
