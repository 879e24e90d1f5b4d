"""The program that copies one row of a cache onto another, made from the states of a module."""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.ir import Function, Module, Role, Value
from graphgen.ir.dtype import s32


def row_copy_module(module: Module) -> Module:
    """A module with one program ``copy_row`` over the states of another module.

    Its inputs are ``source`` and ``target``, s32 scalars in [0, R); row ``target`` of every state
    becomes row ``source``, and nothing else changes. The states keep their representations and the
    functions ``pack`` and ``unpack``, so the copy may be compared in logical terms.

    Where the states are kept in blocks, ``source`` and ``target`` are blocks.

    Args:
        module: whose states have the rows of the cache as their first dimension, in both
            representations, or are all kept in blocks.
    """
    states, layouts = module.entries(Role.STATE), module.entries(Role.LAYOUT)
    made = Module(f"{module.name}.copy_row", module.level, dict(module.mesh))
    entries = (*states, *layouts)
    for name in sorted({name for row in entries for name in (row.pack, row.unpack)} - {""}):
        made.add(module.function(name))
    function = made.add(Function("copy_row", "copy"))
    with Builder(function, made) as b:
        source, target = b.input("source", s32, ()), b.input("target", s32, ())
        zero = b.literal(0, s32)
        for row in states:
            type_ = row.physical
            state = b.state(row.name, type_.dtype, type_.shape)
            b.set_state(state, _copied(b, state, source, target, zero))
    for row in entries:
        made.interface[row.name] = row
    return made


def _copied(b: Builder, state: Value, source: Value, target: Value, zero: Value) -> Value:
    """A state whose row ``target`` is its row ``source``."""
    rest = [zero] * (len(state.shape) - 1)
    one = b.dynamic_slice(state, [source, *rest], [1, *state.shape[1:]])
    return b.dynamic_update_slice(state, one, [target, *rest])
