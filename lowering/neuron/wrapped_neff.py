"""Wrap a NEFF in an HLO module with the program's parameters and one custom call.

By the public sources of ZML, which replaces AWS's compile hook: the root is a custom call
``AwsNeuronNeff`` with the NEFF as its configuration, and ``valid_inputs`` marks every operand.
"""

from __future__ import annotations

from graphgen.lowering.hlo.proto import wire
from graphgen.lowering.hlo.proto.fields import (
    ComputationField,
    InstructionField,
    ModuleField,
)
from graphgen.lowering.hlo.proto.instruction import write_frontend_attributes
from graphgen.lowering.hlo.proto.proto_module import open_hlo
from graphgen.lowering.hlo.proto.wire import Message

TARGET = "AwsNeuronNeff"


def wrap_neff(hlo: bytes, neff: bytes) -> bytes:
    """The HloModuleProto of a program with its NEFF in the place of its ops.

    Args:
        hlo: HloModuleProto of the program.
        neff: the compiler's output.

    Raises:
        GraphgenError: GG0801 for something else than HLO.
    """
    module = open_hlo(hlo)
    entry = module.entry
    kept: list[Message] = []
    root: Message | None = None
    for instruction in entry.instructions():
        if instruction.text(InstructionField.OPCODE) == "parameter":
            kept.append(instruction)
        if instruction.integer(InstructionField.ID) == entry.root_id:
            root = instruction
    if root is None:
        raise wire.damaged("the entry has no root", 0)
    ids = [item.integer(InstructionField.ID) for item in kept]
    call = b"".join(
        [
            wire.text(InstructionField.NAME, root.text(InstructionField.NAME)),
            wire.text(InstructionField.OPCODE, "custom-call"),
            wire.delimited(InstructionField.SHAPE, root.data(InstructionField.SHAPE)),
            wire.text(InstructionField.CUSTOM_CALL_TARGET, TARGET),
            wire.integer(InstructionField.ID, entry.root_id),
            wire.integers(InstructionField.OPERAND_IDS, ids),
            wire.delimited(InstructionField.BACKEND_CONFIG, neff),
            write_frontend_attributes({"valid_inputs": ",".join("1" for _ in ids)}),
        ]
    )
    rest = [data for _, data in entry.message.pieces([ComputationField.INSTRUCTIONS])]
    body = [item.source[item.span[0] : item.span[1]] for item in kept]
    instructions = [wire.delimited(ComputationField.INSTRUCTIONS, data) for data in [*body, call]]
    computation = wire.delimited(ModuleField.COMPUTATIONS, b"".join([*instructions, *rest]))
    others = [data for _, data in module.message.pieces([ModuleField.COMPUTATIONS])]
    return b"".join([*others, computation])
