"""Reads the layouts of weights that ``neuronx-cc`` asks for in ``wrapped_neff.hlo``.

By NxD's published reader, an instruction of the entry with the attribute
``transposable_weight_idx`` calls a computation that reshapes and transposes that parameter. Weights
without such a call are right as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from graphgen.errors import GraphgenError
from graphgen.lowering.hlo.proto import wire
from graphgen.lowering.hlo.proto.fields import InstructionField as F
from graphgen.lowering.hlo.proto.fields import MapField, ModuleField
from graphgen.lowering.hlo.proto.proto_module import (
    HloComputation,
    open_hlo,
    read_frontend_attributes,
)
from graphgen.lowering.hlo.proto.shape import read_shape
from graphgen.lowering.hlo.proto.wire import Message
from graphgen.passes.weights.weight_layouts import Layout, LayoutStep
from graphgen.whole_file import unreadable

STUB, TRANSPOSABLE = "wrapped_neff.hlo", "transposable_weight_idx"


def transposable_attribute(indices: Sequence[int]) -> bytes:
    """The attribute of an HloModuleProto that names parameters whose layout is free."""
    text = ",".join(map(str, sorted(indices)))
    item = wire.text(MapField.KEY, TRANSPOSABLE) + wire.text(MapField.VALUE, text)
    return wire.delimited(ModuleField.FRONTEND_ATTRIBUTES, wire.delimited(MapField.ENTRIES, item))


def read_layouts(path: Path, names: Sequence[str]) -> Mapping[str, Layout]:
    """The layouts by the name of the parameter.

    Args:
        path: of ``wrapped_neff.hlo``.
        names: of the program's parameters, in order.

    Raises:
        GraphgenError: GG0705 if it cannot be read, GG0801 for a stub of another form.
    """
    try:
        module = open_hlo(path.read_bytes())
    except OSError as error:
        raise unreadable(str(path), error) from error
    computations = {item.id: item for item in module.computations}
    found: dict[str, Layout] = {}
    for instruction in module.entry.instructions():
        attributes = read_frontend_attributes(instruction, F.FRONTEND_ATTRIBUTES)
        if TRANSPOSABLE not in attributes:
            continue
        text, called = attributes[TRANSPOSABLE], instruction.integers(F.CALLED_IDS)
        known = text.isdecimal() and int(text) < len(names) and called[:1]
        if not known or called[0] not in computations:
            raise _another(path, f"a layout of the parameter {text!r}")
        found[names[int(text)]] = _steps(path, computations[called[0]])
    return found


def _steps(path: Path, computation: HloComputation) -> Layout:
    """The steps from the parameter of a computation to its result."""
    by_id = {item.integer(F.ID): item for item in computation.instructions()}
    at = by_id.get(computation.root_id)
    steps: list[LayoutStep] = []
    while at is not None and at.text(F.OPCODE) != "parameter" and len(steps) < len(by_id):
        steps.append(_step(path, at))
        at = by_id.get((*at.integers(F.OPERAND_IDS), -1)[0])
    if at is None or at.text(F.OPCODE) != "parameter":
        raise _another(path, f"the computation {computation.name}")
    return steps[::-1]


def _step(path: Path, instruction: Message) -> LayoutStep:
    opcode = instruction.text(F.OPCODE)
    if opcode == "reshape":
        return LayoutStep("reshape", read_shape(instruction.data(F.SHAPE)).dims)
    if opcode == "transpose":
        return LayoutStep("transpose", instruction.integers(F.DIMENSIONS))
    raise _another(path, f"the op {opcode}")


def _another(path: Path, what: str) -> GraphgenError:
    return GraphgenError(
        "GG0801",
        f"{path} has {what}, which is not of the published form of layouts",
        help="compile without --optimize-layouts, and send the file with an issue",
    )
