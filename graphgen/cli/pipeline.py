"""Running passes on a module, and what is left of the default pipeline for it."""

from __future__ import annotations

from graphgen.cli.sizes import bind_functions, free_symbols
from graphgen.ir import Function, Module
from passes.core import Pass, PassReport, run_pipeline
from passes.pipelines import Buckets, default
from passes.sharding.partition import Partition
from passes.specialize.specialize import Specialize
from passes.weights.lift import LiftWeights


def remaining(module: Module) -> list[Pass]:
    """The passes of the default pipeline that bring ``module`` to level ``target``."""
    if module.level == "target":
        return []
    passes: list[Pass] = []
    for item in default(Buckets()):
        if isinstance(item, LiftWeights) and _lifted(module):
            continue
        if isinstance(item, Specialize):
            if free_symbols(module.programs()):
                passes.append(item)
            if module.mesh and module.level != "sharded":
                passes.append(Partition())
        elif item.name != "canonicalize" or module.level == "logical":
            passes.append(item)
    return passes


def run_passes(module: Module, passes: list[Pass]) -> list[PassReport]:
    """Run passes in order, in place, checking the module after each.

    ``specialize`` binds programs; the functions that cut and join states of a module partitioned
    before are bound here, to the sizes that all programs share.
    """
    reports: list[PassReport] = []
    for item in passes:
        reports += run_pipeline(module, [item])
        if isinstance(item, Specialize):
            bind_functions(module, _shared(module.programs()))
    return reports


def _lifted(module: Module) -> bool:
    return any(name.startswith("weights.") for name in module.functions)


def _shared(programs: list[Function]) -> dict[str, int]:
    """R and M, which are the same in every program."""

    sizes = [(name, f.dims.get(name)) for f in programs for name in ("R", "M")]
    return {name: size for name, size in sizes if isinstance(size, int)}
