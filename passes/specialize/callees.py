"""Bodies, branches and callees of programs, specialized for the sizes of one bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from graphgen.analysis import called, free_symbols, run_by_programs
from graphgen.ir import Function, Module
from graphgen.ir.clone import Cloner
from graphgen.ops.control import CONTROL, renamed
from graphgen.passes.core import Rewriter


def bind_bodies(
    module: Module, program: Function, cloner: Callable[[], Cloner], rewriter: Rewriter
) -> Iterator[Function]:
    """Functions with symbols that ``program`` runs, bound as it is, which runs them from now on.

    Args:
        module: has the functions with symbols.
        program: a bucket's program, whose loops, choices and calls still name those.
        cloner: makes cloners like the one that bound it.
        rewriter: whose pass it is.
    """
    symbolic = [item for item in called(module, program) if free_symbols([item])]
    names = {item.name: f"{item.name}.{program.name}" for item in symbolic}
    if not names:
        return
    for item in symbolic:
        made = Function(names[item.name], dims=dict(program.dims))
        rewriter.copied(cloner().function(item, made))
        _rename(made, names)
        yield made
    _rename(program, names)


def _rename(function: Function, names: dict[str, str]) -> None:
    for op in function.block:
        if op.name in CONTROL:
            op.attrs = renamed(op, names)


def drop_unused(module: Module, functions: dict[str, Function]) -> None:
    """Take those out of ``functions`` that programs of ``module`` ran and nothing runs any more."""
    left = run_by_programs(Module(module.name, functions=functions))
    for name in run_by_programs(module) - left:
        del functions[name]
