"""Preparation of the tensors of adapters: the same for each slot, so that one is prepared alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphgen.build import Builder
from graphgen.ir import AttrValue, Op, Value

# Of each op that may prepare slots: the attribute that has a number or a bound for each dimension.
_OF_SLOTS: Mapping[str, str] = {
    "reshape": "shape",
    "slice": "limit_indices",
    "dynamic_slice": "slice_sizes",
}


def keeps_slots(op: Op) -> bool:
    """True if slot k of the result is made of slot k of the operands that have slots alone.

    Slots are dimension 0 of the first operand, and of all operands of ``concatenate``.
    """
    check = _KEEPS.get(op.name)
    return check is not None and op.result.shape[:1] == op.operands[0].shape[:1] and check(op)


def of_one_slot(b: Builder, op: Op, operands: Sequence[Value]) -> Op:
    """Emit ``op`` for operands of one slot each."""
    attrs: dict[str, AttrValue] = dict(op.attrs)
    if key := _OF_SLOTS.get(op.name):
        attrs[key] = (1, *op.attrs.dims(key)[1:])
    return b.emit(op.name, operands, attrs)


def _sliced(op: Op) -> bool:
    strides = op.attrs.integers("strides")
    return op.attrs.dims("start_indices")[0] == 0 and (not strides or strides[0] == 1)


def _padded(op: Op) -> bool:
    interior = op.attrs.integers("interior")
    return not any((op.attrs.integers("low")[0], op.attrs.integers("high")[0], *(interior[:1])))


_KEEPS: Mapping[str, Callable[[Op], bool]] = {
    "convert": lambda op: True,
    "reshape": lambda op: True,
    "transpose": lambda op: op.attrs.integers("permutation")[0] == 0,
    "slice": _sliced,
    "dynamic_slice": lambda op: True,
    "concatenate": lambda op: op.attrs.integer("dimension") != 0,
    "pad": _padded,
    "take": lambda op: op.attrs.integer("dimension") != 0,
}
