"""The program that copies one row of a cache onto another, made from the states of a module."""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.ir import Module, Role, Value
from graphgen.ir.dtype import s32
from graphgen.passes.specialize.states_program import StatesProgram


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

    def build(b: Builder) -> None:
        source, target = b.input("source", s32, ()), b.input("target", s32, ())
        zero = b.literal(0, s32)
        for row in module.entries(Role.STATE):
            type_ = row.physical
            state = b.state(row.name, type_.dtype, type_.shape)
            b.set_state(state, _copied(b, state, source, target, zero))

    return StatesProgram("copy_row", "copy", module.level).made(module, build)


def _copied(b: Builder, state: Value, source: Value, target: Value, zero: Value) -> Value:
    """A state whose row ``target`` is its row ``source``."""
    rest = [zero] * (len(state.shape) - 1)
    one = b.dynamic_slice(state, [source, *rest], [1, *state.shape[1:]])
    return b.dynamic_update_slice(state, one, [target, *rest])
