"""``graphgen slice``: a part of a program as a program of its own."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import write_json
from graphgen.cli.files import STANDARD
from graphgen.cli.module_file import HELP, check_form, choose_program, read_module, write_program
from graphgen.cli.shared_options import ModuleFile, WrittenAsJson
from graphgen.ir import Function, Module
from graphgen.json_value import Json

COMMAND: Final = Command("inspect", "Extract a part of a program.")


def slice_(
    file: ModuleFile,
    output_file: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help=HELP)],
    op: Annotated[
        list[str] | None,
        typer.Option(
            "--op", metavar="%NAME", help="The op that makes this value; may be repeated."
        ),
    ] = None,
    depth: Annotated[
        int, typer.Option("--depth", min=0, help="With --op: include this many levels of operands.")
    ] = 0,
    layer: Annotated[
        str | None, typer.Option("--layer", metavar="N", help="A layer, by number or name.")
    ] = None,
    result: Annotated[
        str | None,
        typer.Option(
            "--result", metavar="N", help="The ops that this output needs, by position or name."
        ),
    ] = None,
    program: Annotated[
        str | None, typer.Option("--program", metavar="NAME", help="The program.")
    ] = None,
    as_json: WrittenAsJson = False,
) -> None:
    """Cut a part out of a program: an op, a layer, or what one output needs.

    The result runs by itself. Values that the part reads from elsewhere become inputs of the same
    name, and values that others read outputs; constants come along. Types are those of one rank.
    Ops of loops, branches and fusions are found by their names too; where several have the name,
    @body/%dot or %w.body/%dot says which.

    \b
    Examples:
      graphgen slice decode.pb --layer 3 -o layer3.pb
      graphgen slice decode.pb --op %dot.17 --depth 2 -o dot.gg
      graphgen slice decode.pb --result logits -o logits.hlo && graphgen run logits.hlo
    """
    from graphgen.analysis import inlined

    given = [bool(op), layer is not None, result is not None]
    if sum(given) != 1:
        raise typer.BadParameter(
            "exactly one is needed", param_hint="'--op', '--layer', '--result'"
        )
    if as_json and output_file == STANDARD:
        raise typer.BadParameter("needs -o: standard output is the module", param_hint="'--json'")
    check_form(output_file)
    module = read_module(file)
    function = inlined(module, choose_program(module, program))
    function, part = _part(module, function, op or [], depth, layer, result)
    made = part.function(function.name)
    write_program(part, made, output_file)
    if as_json:
        inputs: list[Json] = [{"name": v.name, "type": v.type.text} for v in made.args]
        outputs: list[Json] = [{"name": n, "type": v.type.text} for n, v in made.outputs]
        write_json({"file": output_file, "ops": made.block.size, "inputs": inputs,
                    "outputs": outputs})  # fmt: skip


def _part(
    module: Module,
    function: Function,
    names: list[str],
    depth: int,
    layer: str | None,
    output: str | None,
) -> tuple[Function, Module]:
    """The function that is cut, the program or one that it runs, and the part of it."""
    from graphgen.passes.inspect.slice import (
        function_of,
        function_with_layer,
        ops_below,
        ops_called,
        ops_of_layer,
        sliced,
        without_interface,
    )

    if names or layer is not None:
        inner = (
            function_of(module, function, names)
            if names
            else function_with_layer(module, function, layer or "")
        )
        ops = ops_called(inner, names, depth) if names else ops_of_layer(inner, layer or "")
        whole = module if inner is function else without_interface(module)
        return inner, sliced(whole, inner, ops)
    known = [name for name, _ in function.outputs]
    wanted = output or ""
    ops = ops_below(function, wanted)
    only = wanted if wanted in known else known[int(wanted)]
    return function, sliced(module, function, ops, only)
