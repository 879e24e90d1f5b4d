"""Cost of collectives: bytes sent by all ranks together, in rings.

n ranks per group, b bytes per operand: all-gather n(n-1)b, all-reduce 2n(n-1)b/n = 2(n-1)b,
reduce-scatter and all-to-all (n-1)b; collective-permute b per pair. Per rank and for layouts, see
:mod:`graphgen.passes.sharding.reshard_ops`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphgen.ir import Op
from graphgen.ops import OPS
from graphgen.passes.sharding.mesh import Groups
from graphgen.passes.sharding.op_factors import nominal_bytes


def groups_of(op: Op) -> Groups:
    """The replica groups of a collective, or its source-target pairs."""
    pairs = op.name == "collective_permute"
    return op.attrs.groups("source_target_pairs" if pairs else "replica_groups")


def sent(op: Op) -> int:
    """Bytes that all ranks send for one op; 0 for an op that is not a collective."""
    if not OPS[op.name].collective:
        return 0
    size, groups = nominal_bytes(op.operands[0].type), groups_of(op)
    if op.name == "collective_permute":
        return size * sum([source != target for source, target in groups])
    return size * sum([_times(op.name, len(group)) for group in groups])


def _times(name: str, ranks: int) -> int:
    """The number of times that the operand of one rank is sent in a group."""
    if name == "all_gather":
        return ranks * (ranks - 1)
    return 2 * (ranks - 1) if name == "all_reduce" else ranks - 1


def total(ops: Iterable[Op]) -> int:
    """Bytes that all ranks send for ``ops``."""
    return sum(map(sent, ops))


def alone(groups: Sequence[Sequence[int]]) -> bool:
    """True if every group has a single rank."""
    return all(len(group) == 1 for group in groups)
