"""Cost of partitioned programs as ``partition`` counts it: bytes that a rank sends, and its work.

A collective counts as ``latency`` bytes beside those that it sends, and ``memory`` bytes of a
rank's own memory, or operations that take as long, as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphgen.ir import Function, Module, Op
from graphgen.ops import OPS
from graphgen.passes.core import Pass
from graphgen.passes.sharding.collectives.collective_cost import sent
from graphgen.passes.sharding.collectives.merge_collectives import MergeCollectives
from graphgen.passes.sharding.partition import Partition
from graphgen.passes.sharding.solver.strategies import op_work
from graphgen.passes.specialize.specialize import Specialize
from graphgen.passes.weights.derived import PreparedValues


def partitioned_only(passes: Sequence[Pass]) -> Sequence[Pass]:
    """The passes up to the programs of a rank whose collectives are merged, or of a lone rank."""
    names = [item.name for item in passes]
    last = MergeCollectives.name if MergeCollectives.name in names else Specialize.name
    return passes[: names.index(last) + 1]


def sent_cost(module: Module, function: Function, ops: Iterable[Op]) -> int:
    """The cost of some ops of a rank's program, without dead ops."""
    prepared, live, found = PreparedValues(module, function, {}), _live(function), 0
    for op in ops:
        if op in live and not prepared.of_weights(op.results[0]):
            collective = OPS[op.name].collective
            found += sent(op) // module.ranks + collective * Partition.latency
            found += op_work(op) // Partition.memory
    return found


def _live(function: Function) -> set[Op]:
    """Ops whose results something reads that is returned."""
    live: set[Op] = set()
    for op in reversed(function.block):
        users = [user for value in op.results for user in value.users]
        if not live.isdisjoint(users) or any(map(function.returns, op.results)):
            live.add(op)
    return live
