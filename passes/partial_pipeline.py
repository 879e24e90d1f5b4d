"""The rest of the default pipeline for a module at any level."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.analysis import free_symbols
from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Module
from graphgen.ops import OPS
from graphgen.passes.canonical.cse import CommonSubexpressions
from graphgen.passes.canonical.dce import DeadCodeElimination
from graphgen.passes.core import Pass
from graphgen.passes.core.invariants import facts_of
from graphgen.passes.legalize.legalize import Legalize
from graphgen.passes.pipelines import default
from graphgen.passes.programs.specialize import Specialize
from graphgen.passes.sharding.pad_to_mesh import PadToMesh
from graphgen.passes.spmd.partition import Partition
from graphgen.targets import find_target

# The passes before a program is split, and the levels at which they still have something to do.
_FRONT = {"canonicalize": ("logical",), "unfuse-projections": ("logical", "canonical")}


def remaining(module: Module, target: str = "cpu", dims: Sequence[str] = ()) -> list[Pass]:
    """The passes of the default pipeline that bring ``module`` to level ``target``.

    A program read from a form that compilers exchange runs as it stands, unless composites were
    found in it or its sizes are open.
    """
    if module.level == "target" or as_it_stands(module):
        return []
    facts = facts_of(module)
    passes: list[Pass] = []
    for item in default(CompileConfig(target=target, dims=tuple(dims))):
        if "raw-weights" in item.requires and "raw-weights" not in facts:
            continue
        if isinstance(item, Specialize):
            if "specialized" not in facts:
                passes.append(item)
            if "partitioned" not in facts:
                passes += [PadToMesh(), Partition()]
        elif module.level in _FRONT.get(item.name, (module.level,)):
            passes.append(item)
    return passes


def foreign(module: Module, target: str) -> list[Pass]:
    """The passes that legalize an imported module for an accelerator."""
    if (
        not as_it_stands(module)
        or module.level == "target"
        or not find_target(target).is_accelerator
    ):
        return []
    return [Legalize(target=target), CommonSubexpressions(), DeadCodeElimination()]


def as_it_stands(module: Module) -> bool:
    """True for a program read from HLO or StableHLO, to be written as it stands."""
    if "format" not in module.meta or module.level == "canonical":
        return False
    functions = module.functions.values()
    raised = any(OPS[op.name].composite for function in functions for op in function.block)
    return not raised and not free_symbols(functions)
