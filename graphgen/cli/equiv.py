"""``graphgen equiv``: do two modules compute the same?"""

from __future__ import annotations

from typing import Annotated

import typer

from graphgen.cli.console import Json, number, write_json, write_stdout
from graphgen.cli.module_file import read_module

Left = Annotated[str, typer.Argument(metavar="A.gg", help="A module's IR text.")]
Right = Annotated[str, typer.Argument(metavar="B.gg", help="Another; - is standard input.")]
Seed = Annotated[int, typer.Option("--seed", help="Of the random weights and inputs.")]
AsJson = Annotated[bool, typer.Option("--json", help="The finding as JSON.")]


def equiv(left: Left, right: Right, seed: Seed = 0, as_json: AsJson = False) -> None:
    """Compare two modules by numbers, whatever levels, ranks and buckets they have.

    Both are run over one script, in float64 without rounding, and compared through their interface
    tables. Exit status 1 when they differ.

    \b
    Examples:
      graphgen build smollm2-135m --mini -o a.gg
      graphgen build smollm2-135m --mini --tp 2 -o b.gg
      graphgen equiv a.gg b.gg
    """
    from passes.debug.equiv import equivalent

    found = equivalent(read_module(left), read_module(right), seed)
    worst = found.difference
    if as_json:
        facts: dict[str, Json] = {
            "equal": found.equal,
            "relative": number(worst.relative),
            "max_abs": number(worst.max_abs),
            "where": worst.name,
            "call": worst.call,
            "left": repr(found.left),
            "right": repr(found.right),
        }
        write_json(facts)
    elif found.equal:
        write_stdout(f"equal: worst relative difference {worst.relative:.1e}\n")
    else:
        write_stdout(
            f"different: {worst.name} of call {worst.call}, relative {worst.relative:.1e}, "
            f"absolute {worst.max_abs:.1e}\n  {left}: {found.left!r}\n  {right}: {found.right!r}\n"
        )
    if not found.equal:
        raise typer.Exit(1)
