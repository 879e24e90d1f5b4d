"""Two files in one form, for a comparison.

XLA's converter to HLO simplifies what it writes: it folds broadcasts of constants, puts the state
of a loop in another order, and makes functions of ops. So HLO and the StableHLO that it came from
differ in writing. jaxlib has that converter.
"""

from __future__ import annotations

from graphgen.errors import GraphgenError
from graphgen.ir import Module, loc
from graphgen.lowering.hlo import read_hlo
from graphgen.lowering.mlir.generic_form import generic_text, hlo_of
from graphgen.lowering.open import Source, give_stated_names, stablehlo_of
from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo


def in_hlo(source: Source) -> Module | None:
    """StableHLO as XLA's converter writes it in HLO.

    Returns:
        ``None`` for a file of another form, and where jaxlib does not convert it or is not there.
    """
    data = stablehlo_of(source)
    if data is None:
        return None
    try:
        module = read_hlo(hlo_of(data), source.name)
        give_stated_names(module, Source(source.name, data))
        _name_places(module, source.name)
    except (GraphgenError, ModuleNotFoundError, RuntimeError, ValueError):
        return None
    return module


def _name_places(module: Module, name: str) -> None:
    """Name the file in places of its text, which MLIR calls ``-``."""
    for op in [op for function in module.functions.values() for op in function.block]:
        if op.loc.file == "-":
            op.loc = loc(name, op.loc.line, op.loc.scope, op.loc.via)


def program_in_hlo(module: Module) -> Module | None:
    """The only program of a module that was read from StableHLO; see :func:`in_hlo`."""
    programs = module.programs()
    if len(programs) != 1:
        return None
    try:
        text = emit_stablehlo(module, programs[0])
    except GraphgenError:
        return None
    return in_hlo(Source(module.name, text.encode()))


def in_generic_form(source: Source) -> Module | None:
    """StableHLO with its ops in MLIR's generic form, in which kept texts have one spelling.

    Returns:
        ``None`` for a file of another form, and where jaxlib does not read it or is not there.
    """
    data = stablehlo_of(source)
    if data is None:
        return None
    try:
        return read_stablehlo(generic_text(data, source.name), source.name)
    except (GraphgenError, ModuleNotFoundError):
        return None
