"""What the collectives of a program send, in bytes of all ranks together.

In a ring as in :mod:`graphgen.passes.sharding.steps`: of n ranks in a group, gathering parts of b
bytes
sends n(n-1)b, combining b bytes for all of them 2(n-1)b, scattering a sum of b bytes or exchanging
parts of them (n-1)b; a pair sends what it hands on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphgen.ir import Op, TensorType
from graphgen.ops import OPS
from graphgen.passes.sharding.mesh import Groups
from graphgen.passes.sharding.steps import nominal


def size_of(type_: TensorType) -> int:
    """Bytes of a value, each symbol being :data:`graphgen.passes.sharding.steps.NOMINAL`."""
    return -(-nominal(type_.size) * type_.dtype.bits // 8)


def groups_of(op: Op) -> Groups:
    """Which ranks talk to each other: groups, or pairs of a source and a target."""
    pairs = op.name == "collective_permute"
    return op.attrs.groups("source_target_pairs" if pairs else "replica_groups")


def sent(op: Op) -> int:
    """Bytes that all ranks send for one op; 0 for one that is no collective."""
    if not OPS[op.name].collective:
        return 0
    size, groups = size_of(op.operands[0].type), groups_of(op)
    if op.name == "collective_permute":
        return size * sum([source != target for source, target in groups])
    return size * sum([_times(op.name, len(group)) for group in groups])


def _times(name: str, ranks: int) -> int:
    """How often the operand of one rank is sent in a group."""
    if name == "all_gather":
        return ranks * (ranks - 1)
    return 2 * (ranks - 1) if name == "all_reduce" else ranks - 1


def total(ops: Iterable[Op]) -> int:
    """Bytes that all ranks send for some ops."""
    return sum(map(sent, ops))


def alone(groups: Sequence[Sequence[int]]) -> bool:
    """Whether no rank talks to another."""
    return all(len(group) == 1 for group in groups)
