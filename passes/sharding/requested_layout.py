"""The annotated layout of a row of the interface, or of a weight in one program."""

from __future__ import annotations

from graphgen.ir import HELD_ROLES, Entry, Module, Sharding, Value, replicated


def row_sharding(row: Entry) -> Sharding:
    """The annotated layout of a row of the interface; replicated by default."""
    return row.sharding or replicated(row.logical.rank)


def requested_sharding(module: Module, value: Value) -> Sharding:
    """The annotated layout of an argument, or of a value that a program makes of weights.

    A weight may lie otherwise in one program than in others: its own layout there counts first.
    Inputs and states lie alike in all programs.
    """
    row = module.interface.get(value.name or "") if value.op is None else None
    if row is None:
        return value.sharding or replicated(value.type.rank)
    own = value.sharding if row.role in HELD_ROLES else None
    return own or row_sharding(row)
