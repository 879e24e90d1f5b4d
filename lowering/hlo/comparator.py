"""The computations that say which of two elements comes first, written and read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphgen.ir import tensor
from graphgen.ir.dtype import pred
from graphgen.ir.loc import UNKNOWN
from graphgen.lowering.hlo.dialect.instruction_template import Comparator
from graphgen.lowering.hlo.proto import wire
from graphgen.lowering.hlo.proto.fields import InstructionField
from graphgen.lowering.hlo.proto.instruction import (
    Chunk,
    head_of,
    instruction,
    metadata_of,
    program_shape,
)
from graphgen.lowering.hlo.proto.proto_module import HloComputation
from graphgen.lowering.hlo.proto.shape import shape_of

if TYPE_CHECKING:
    from graphgen.lowering.hlo.computation_emitter import ModuleEmitter

TOTAL = "TOTALORDER"


def write_comparator(owner: ModuleEmitter, called: Comparator) -> int:
    """Write a comparison of two scalars an operand, of which the first two count; its id."""
    types = [tensor(dtype) for dtype in called.dtypes for _ in "ab"]
    names = [owner.fresh(f"{called.name}.{'ab'[i % 2]}{i // 2}") for i in range(len(types))]
    body: list[Chunk] = []
    ids: list[int] = []
    for index, (name, type_) in enumerate(zip(names, types, strict=True)):
        number = wire.integer(InstructionField.PARAMETER_NUMBER, index)
        ids.append(owner.next_id())
        head = head_of("parameter", shape_of(type_))
        body += instruction(name, head, metadata_of(UNKNOWN, "parameter", name), [number], ids[-1])
    more = wire.text(InstructionField.COMPARISON_DIRECTION, called.direction)
    if called.dtypes[0].is_float:
        more += wire.text(InstructionField.COMPARISON_TYPE, TOTAL)
    root, name = owner.next_id(), owner.fresh(f"{called.name}.root")
    head, metadata = (
        head_of("compare", shape_of(tensor(pred))),
        metadata_of(UNKNOWN, "compare", name),
    )
    body += instruction(name, head, metadata, [], root, ids[:2], more=more)
    shape = program_shape(types, [tensor(pred)], names)
    return owner.finish(owner.fresh(called.name), body, shape, root)


def direction_of(computation: HloComputation, *, floats: bool) -> str:
    """``LT`` or ``GT`` of its first two parameters; empty where it does anything else.

    Args:
        computation: what a sort calls.
        floats: the elements compared are floats, whose order must be total.
    """
    found = {item.integer(InstructionField.ID): item for item in computation.instructions()}
    root = found.get(computation.root_id)
    if root is None or root.text(InstructionField.OPCODE) != "compare":
        return ""
    read = [found.get(number) for number in root.integers(InstructionField.OPERAND_IDS)]
    given = [
        item.integer(InstructionField.PARAMETER_NUMBER)
        for item in read
        if item is not None and item.text(InstructionField.OPCODE) == "parameter"
    ]
    if floats and root.text(InstructionField.COMPARISON_TYPE) != TOTAL:
        return ""
    direction = root.text(InstructionField.COMPARISON_DIRECTION)
    if direction not in ("LT", "GT") or sorted(given) != [0, 1]:
        return ""
    return direction if given == [0, 1] else {"LT": "GT", "GT": "LT"}[direction]
