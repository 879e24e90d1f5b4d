"""What is left of the default pipeline for a module."""

from __future__ import annotations

from graphgen.cli.sizes import free_symbols
from graphgen.ir import Module
from passes.core import Pass
from passes.pipelines import Buckets, default
from passes.sharding.partition import Partition
from passes.specialize.specialize import Specialize
from passes.weights.lift import LiftWeights


def remaining(module: Module) -> list[Pass]:
    """The passes of the default pipeline that bring ``module`` to level ``target``.

    A program read from a form that compilers exchange runs as it stands.
    """
    if module.level == "target" or "format" in module.meta:
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


def _lifted(module: Module) -> bool:
    return any(name.startswith("weights.") for name in module.functions)
