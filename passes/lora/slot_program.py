"""Build the program ``write_slot``: copy one adapter into its slot of the stacked tensors."""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.exec.adapters import resident_rows
from graphgen.ir import Function, Module
from graphgen.ir.dtype import s32

WRITE_SLOT = "write_slot"
SLOT = "slot"
# Ending of the name of an adapter's part of a tensor.
PART = ".part"


def write_slot_module(module: Module) -> Module:
    """A module with one program ``write_slot`` over the tensors of adapters of another module.

    Its inputs are ``slot``, an s32 scalar in [0, slots), and for each tensor ``NAME`` [slots, ...]
    the part ``NAME.part`` [1, ...] of one adapter on this rank, as ``@adapter.rank`` prepares it.
    The tensors are states there, so that they are written in place; other slots do not change.
    """
    made = Module(f"{module.name}.{WRITE_SLOT}", module.level, dict(module.mesh))
    with Builder(made.add(Function(WRITE_SLOT, WRITE_SLOT)), made) as b:
        rows = resident_rows(module)
        slots = min([row.physical.dims[0] for row in rows], default=1)
        slot, zero = b.input(SLOT, s32, (), domain=(0, slots - 1)), b.literal(0, s32)
        for row in rows:
            type_ = row.physical
            held = b.state(row.name, type_.dtype, type_.shape)
            part = b.input(f"{row.name}{PART}", type_.dtype, (1, *type_.shape[1:]))
            starts = [slot, *[zero] * (type_.rank - 1)]
            b.set_state(held, b.dynamic_update_slice(held, part, starts))
    return made
