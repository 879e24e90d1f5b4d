"""Find the values of a program that differ between ranks, by propagation over its ops.

A value is the same on every rank if it is computed from such values alone, or if a collective has
given it to all ranks. A cut at a value that is not, and that has the shape of the whole, is one
addend of a sum over the ranks: a split along a dimension would show in the shape.
"""

from __future__ import annotations

from graphgen.exec.weights import weight_programs
from graphgen.ir import RANK, Entry, Function, Module, Op, Role, Value
from graphgen.ops import Trait, has_trait

# Collectives after which every rank of a group has the same.
_JOINING = ("all_reduce", "all_gather")


def varying_values(module: Module, function: Function) -> set[Value]:
    """The values of a program that differ from rank to rank.

    Args:
        module: has the interface, the mesh and the weight programs.
        function: a program without calls.
    """
    prepared: set[str] = set()
    for program in weight_programs(module):
        varying = _varying(module, program, prepared)
        prepared |= {name for name, value in program.outputs if value in varying}
    return _varying(module, function, prepared)


def _varying(module: Module, function: Function, prepared: set[str]) -> set[Value]:
    found = {value for value in function.args if _differs(module, value.name or "", prepared)}
    for op in function.block:
        differs = any(value in found for value in op.operands)
        if has_trait(op, Trait.COLLECTIVE):
            differs = not _joins_all(module, op)
        if differs:
            found.update(op.results)
    return found


def _differs(module: Module, name: str, prepared: set[str]) -> bool:
    row = module.interface.get(name)
    if name in prepared or (name == RANK and row is None):
        return True
    return row is not None and row.role is Role.STATE and _packed_by_rank(module, row)


def _packed_by_rank(module: Module, row: Entry) -> bool:
    """True if each rank keeps its own part of a state."""
    if not row.pack:
        return False
    pack = module.function(row.pack)
    varying = _varying(module, pack, set())
    return any(value in varying for _, value in pack.outputs)


def _joins_all(module: Module, op: Op) -> bool:
    groups = op.attrs.groups("replica_groups") if op.name in _JOINING else ()
    return len(groups) == 1 and len(groups[0]) == module.ranks
