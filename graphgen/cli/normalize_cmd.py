"""``graphgen normalize``: a module in a form that text tools can compare."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import write_json
from graphgen.cli.files import STANDARD
from graphgen.cli.module_file import HELP, check_form, choose_program, read_module, write_program
from graphgen.cli.shared_options import ModuleFile, WrittenAsJson
from graphgen.json_value import Json

COMMAND: Final = Command("inspect", "Write a module in a normal form for text diffs.")


def normalize(
    file: ModuleFile,
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help=HELP)] = STANDARD,
    keep_names: Annotated[
        bool, typer.Option("--keep-names", help="Keep names of arguments, outputs and functions.")
    ] = False,
    program: Annotated[
        str | None,
        typer.Option("--program", metavar="NAME", help="The program, if the form holds only one."),
    ] = None,
    as_json: WrittenAsJson = False,
) -> None:
    """Write a module with canonical names and order and without places.

    Two modules that compute the same in the same way give the same text, of whatever origin: ops
    stand in the order in which the outputs need them, dead ones are left out, equal ones shared,
    and values called by op and type. In HLO, ids are dense and fit in 32 bits, and replica groups
    are listed.

    \b
    Examples:
      graphgen normalize a.pb -o a.gg && graphgen normalize b.hlo -o b.gg && diff a.gg b.gg
      graphgen normalize dump.pb --keep-names
      graphgen normalize dump.pb -o clean.pb
    """
    from graphgen.passes.inspect.normalize import normalized

    if as_json and output == STANDARD:
        raise typer.BadParameter("needs -o: standard output is the module", param_hint="'--json'")
    ending = check_form(output)
    module = read_module(file)
    names = [function.name for function in module.programs()]
    chosen = 0
    if ending != ".gg" or program is not None or not names:
        wanted = choose_program(module, program).name
        chosen = names.index(wanted) if wanted in names else 0
    made = normalized(module, keep_names=keep_names)
    function = (made.programs() or list(made.functions.values()))[chosen]
    write_program(made, function, output)
    if as_json:
        functions: list[Json] = [
            {"name": item.name, "ops": item.block.size} for item in made.functions.values()
        ]
        write_json({"file": output, "functions": functions})
