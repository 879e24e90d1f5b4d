"""Programs made ready to run: open sizes bound, quantized or asynchronous ops in plain form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from graphgen.cli.console import note
from graphgen.cli.module_file import choose_program
from graphgen.cli.shared_options import parse_sizes
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module

if TYPE_CHECKING:
    from graphgen.eval import Array

# The size of what nothing else says.
OPEN_SIZE = 4


def with_sizes(
    module: Module,
    program: str | None,
    dims: str,
    arrays: Mapping[str, Array] | None = None,
    *,
    default: bool = False,
) -> Module:
    """A module of one program with its open sizes bound, and integers for quantized elements.

    Any other module is returned as it is.

    Args:
        module: as it was read.
        program: the one of several.
        dims: ``x_0=3,n=2``: symbols of its arguments, and arguments on whose values sizes depend.
        arrays: inputs by name, whose shapes and values count where ``dims`` says nothing.
        default: give what is not known the size :data:`OPEN_SIZE`, and say so.

    Raises:
        GraphgenError: GG0705 for a size of no symbol, and where one is missing; the errors of
            :func:`~graphgen.lowering.stablehlo.bind_sizes.bind_sizes`.
    """
    from graphgen.lowering.hlo.synchronous_form import as_synchronous, has_asynchronous
    from graphgen.lowering.stablehlo.bind_sizes import (
        as_plain_integers,
        bind_sizes,
        has_quantized,
        leaves_sizes_open,
    )

    if has_asynchronous(module):
        note("asynchronous instructions run where they start")
        return as_synchronous(module, choose_program(module, program))
    open_, quantized = leaves_sizes_open(module), has_quantized(module)
    if not open_ and not quantized:
        return module
    function = choose_program(module, program)
    sizes, values = _chosen_sizes(function, parse_sizes(dims), arrays or {}, default=default)
    if open_:
        module = bind_sizes(module, function, sizes, values)
        function = module.programs()[0]
    if quantized:
        note("quantized elements are the integers that are stored")
        module = as_plain_integers(module, function)
    return module


def open_names(module: Module) -> list[str]:
    """Names of the sizes that the programs of a module leave open, as ``--dims`` takes them."""
    from graphgen.lowering.stablehlo.bind_sizes import (
        leaves_sizes_open,
        open_sizes,
        size_arguments,
    )

    if not leaves_sizes_open(module):
        return []
    return [
        name
        for function in module.programs()
        for name in (*open_sizes(function), *size_arguments(function))
    ]


def _chosen_sizes(
    function: Function, given: Mapping[str, int], arrays: Mapping[str, Array], *, default: bool
) -> tuple[dict[str, int], dict[str, int]]:
    """The sizes of a program's symbols, and the values of arguments that sizes depend on."""
    from graphgen.lowering.stablehlo.bind_sizes import open_sizes, size_arguments

    symbols, values = open_sizes(function), size_arguments(function)
    names = [*symbols, *values]
    unknown = given.keys() - set(names)
    if unknown:
        what = f"--dims: @{function.name} has no symbol '{min(unknown)}'"
        raise GraphgenError("GG0705", what, help=f"it has {', '.join(names) or 'none'}")
    sizes = {**_known_sizes(symbols, values, arrays), **given}
    missing = [name for name in names if name not in sizes]
    if missing and not default:
        wanted = ",".join(f"{name}={OPEN_SIZE}" for name in missing)
        what = f"@{function.name} leaves the sizes {', '.join(missing)} open"
        raise GraphgenError("GG0705", what, help=f"--dims {wanted} binds them")
    if missing:
        shown = ", ".join(f"{name}={OPEN_SIZE}" for name in missing)
        note(f"{shown} by default; --dims sets other sizes")
        sizes.update(dict.fromkeys(missing, OPEN_SIZE))
    return sizes, {name: sizes[name] for name in values}


def _known_sizes(
    symbols: Mapping[str, tuple[str, int]], values: Sequence[str], arrays: Mapping[str, Array]
) -> dict[str, int]:
    """The sizes that inputs have, by symbol and by the name of a scalar."""
    sizes: dict[str, int] = {}
    for name, (argument, place) in symbols.items():
        array = arrays.get(argument)
        if array is not None and place < array.ndim:
            sizes[name] = array.shape[place]
    for name in values:
        array = arrays.get(name)
        if array is not None and array.size == 1:
            sizes[name] = int(array.reshape(-1)[0])
    return sizes
