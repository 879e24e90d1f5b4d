"""Values of a module after its passes, by name or by line of the StableHLO."""

from __future__ import annotations

from graphgen.errors import GraphgenError
from graphgen.ir import Module, Value
from graphgen.numbers import is_digits
from graphgen.passes.inspect.result_json import LoweredLines
from graphgen.text.printer import value_names


def find_lowered(module: Module, lines: LoweredLines, text: str, program: str) -> Value:
    """Find the value called ``%name`` after the passes, or defined on a line of the StableHLO.

    Args:
        module: after the passes.
        lines: of its ops in StableHLO.
        text: a name, or a line number.
        program: the function to look in; empty for all.

    Raises:
        GraphgenError: GG0705 if no value, or several, match; GG0202 for an unknown function.
    """
    functions = module.functions
    if program and program not in functions:
        module.function(program)
    homes = [name for name in functions if program in ("", name)]
    if is_digits(text):
        found = [
            op.results[0]
            for op, (home, line, _) in lines.items()
            if line == int(text) and home in homes
        ]
    else:
        wanted = f"%{text.removeprefix('%')}"
        named = [value_names(functions[home]) for home in homes]
        found = [value for names in named for value, name in names.items() if name == wanted]
    if len(found) == 1:
        return found[0]
    if found:
        what, help = f"'{text}' is in {len(found)} functions", "choose one with --program"
    else:
        what = f"nothing is called, or stands on, '{text}' after the passes"
        help = "graphgen lower prints a program with the names and lines that are meant here"
    named_functions = ", ".join(f"@{name}" for name in functions)
    raise GraphgenError("GG0705", what, note=f"functions: {named_functions}", help=help)
