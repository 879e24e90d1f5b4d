"""Rewrite asynchronous instructions of HLO as synchronous ones."""

from __future__ import annotations

from typing import Final

from graphgen.ir import Function, Module
from graphgen.lowering.hlo.emit import emit_hlo
from graphgen.lowering.hlo.read import read_hlo
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import ComputationField, InstructionField, ModuleField
from graphgen.lowering.hlo_proto.shape import HloShape, read_shape, write_shape
from graphgen.lowering.hlo_proto.wire import Message

F = InstructionField
# Of each start, the opcode that does the same at once, and the place of the results in its shape;
# -1 where the shape is that of the results.
_STARTS: Final = {
    "async-start": ("call", 1),
    "all-reduce-start": ("all-reduce", -1),
    "all-gather-start": ("all-gather", 1),
    "collective-permute-start": ("collective-permute", 1),
    "copy-start": ("copy", 0),
}
_UPDATE: Final = "async-update"
_DONE: Final = frozenset(start.replace("-start", "-done") for start in _STARTS)
# Fields of a call and of a copy; a collective keeps its own.
_CALL: Final = frozenset((F.NAME, F.METADATA, F.ID, F.OPERAND_IDS, F.CALLED_IDS))
_COPY: Final = _CALL - {F.CALLED_IDS}
_REPLACED: Final = frozenset((F.OPCODE, F.SHAPE))


def has_asynchronous(module: Module) -> bool:
    """A module with instructions that start something, or wait for it."""
    codes = {*_STARTS, _UPDATE, *_DONE}
    return any(
        op.name == "hlo.opaque" and op.attrs.text("opcode") in codes
        for function in module.functions.values()
        for op in function.block
    )


def as_synchronous(module: Module, function: Function) -> Module:
    """A module of one program in which nothing is asynchronous; it computes the same.

    Raises:
        GraphgenError: those of writing and reading the program as HLO.
    """
    whole = Message(emit_hlo(module, function))
    parts = [
        _computation(piece) if number == ModuleField.COMPUTATIONS else piece
        for number, piece in whole.pieces()
    ]
    return read_hlo(b"".join(parts), function.name)


def _computation(piece: bytes) -> bytes:
    inside = Message(piece).messages(ModuleField.COMPUTATIONS)[0]
    parts = [
        _instruction(data) if number == ComputationField.INSTRUCTIONS else data
        for number, data in inside.pieces()
    ]
    return wire.delimited(ModuleField.COMPUTATIONS, b"".join(parts))


def _instruction(piece: bytes) -> bytes:
    """An instruction as it is, or in its synchronous form."""
    i = Message(piece).messages(ComputationField.INSTRUCTIONS)[0]
    code, shape = i.text(F.OPCODE), read_shape(i.data(F.SHAPE))
    if code in _STARTS:
        made, place = _STARTS[code]
        kept = _CALL if made == "call" else None
        return _written(i, made, shape if place < 0 else _member(shape, place), kept)
    if code == _UPDATE or code in _DONE:
        shape = _member(shape, 1) if code == _UPDATE else shape
        return _written(i, "opt-barrier" if shape.is_tuple else "copy", shape, _COPY)
    return piece


def _member(shape: HloShape, place: int) -> HloShape:
    return shape.members[place] if place < len(shape.members) else shape


def _written(i: Message, code: str, shape: HloShape, kept: frozenset[int] | None) -> bytes:
    """The instruction with another opcode and shape, and of its fields those to keep, or all."""
    data = [
        piece
        for number, piece in i.pieces()
        if number not in _REPLACED and (kept is None or number in kept)
    ]
    data.append(wire.text(F.OPCODE, code) + wire.delimited(F.SHAPE, write_shape(shape)))
    return wire.delimited(ComputationField.INSTRUCTIONS, b"".join(data))
