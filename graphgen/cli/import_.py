"""``graphgen import``: a graph that was made elsewhere, as one that every pass works on."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Annotated

import typer

from graphgen.cli.console import Json, note
from graphgen.cli.files import STANDARD, check_output
from graphgen.cli.module_file import read_module, write_module
from graphgen.errors import GraphgenError
from graphgen.ir import Module, Role


def import_(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="StableHLO, an HLO proto or HLO text; or FILE.py:function, which returns "
            "jax.jit(f).lower(...).",
        ),
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE.gg", help="Where to write; - is stdout.")
    ] = STANDARD,
    weight: Annotated[
        list[str] | None,
        typer.Option("--weight", metavar="PATTERN", help="Arguments that are weights: 'params.*'."),
    ] = None,
    no_raise: Annotated[
        bool, typer.Option("--no-raise", help="Leave the ops as they were read.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was written as JSON; needs -o FILE.gg.")
    ] = False,
) -> None:
    """Take a graph that was made elsewhere.

    Norms, activations, rope, lookups and attention are found in what they were lowered to and
    become one op each, so that heads are laid out, weights quantized and models split as if they
    had been built here. Loops over layers are written out. Which arguments are weights is for you
    to say; what is kept from call to call shows in the file.

    \b
    Examples:
      graphgen import model.mlir --weight 'params.*' -o model.gg
      graphgen import model.py:lowered --weight 'params.*' -o model.gg
      graphgen import graph.hlo --no-raise -o graph.gg
    """
    if as_json and output == STANDARD:
        raise typer.BadParameter(
            "needs -o FILE.gg: standard output is the module", param_hint="'--json'"
        )
    check_output(output)
    module = _read(source)
    _mark_weights(module, weight or [])
    found = {} if no_raise else _raise(module)
    if output != STANDARD and not as_json and not no_raise:
        told = ", ".join(f"{count} {name}" for name, count in found.items()) or "nothing"
        note(f"found {told}")
    more: dict[str, Json] = {"found": {**found}}
    write_module(module, output, as_json=as_json, more=more)


def _read(source: str) -> Module:
    from lowering.traced import is_function, traced

    if not is_function(source):
        return read_module(source)
    from graphgen.ops import verify
    from lowering.stablehlo.read import read_stablehlo

    module = read_stablehlo(traced(source), source)
    verify(module)
    return module


def _mark_weights(module: Module, patterns: list[str]) -> None:
    """Make weights of the arguments that a pattern matches (GG0705 if it matches none)."""
    inputs = list(module.entries(Role.INPUT))
    for pattern in patterns:
        matching = [row for row in inputs if fnmatchcase(row.name, pattern)]
        if not matching:
            shown = ", ".join([row.name for row in inputs][:8]) or "none"
            raise GraphgenError(
                "GG0705", f"no input is called '{pattern}'", help=f"the inputs are {shown}"
            )
        for row in matching:
            module.interface[row.name] = replace(row, role=Role.WEIGHT)


def _raise(module: Module) -> dict[str, int]:
    """Run the pipeline ``imported``; how many of each composite there are now."""
    from graphgen.ops import OPS
    from passes.core import run_pipeline
    from passes.pipelines import parse

    run_pipeline(module, parse("imported"))
    found: dict[str, int] = {}
    for function in module.functions.values():
        for op in function.block:
            if OPS[op.name].composite:
                found[op.name] = found.get(op.name, 0) + 1
    return found
