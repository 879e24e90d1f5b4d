"""Printer of HLO protobufs as text, in the syntax of XLA."""

from __future__ import annotations

import re
from collections.abc import Iterator

from graphgen.ir.names import claim_name
from graphgen.lowering.hlo.proto.fields import InstructionField
from graphgen.lowering.hlo.proto.proto_module import HloComputation, HloModule, open_hlo
from graphgen.lowering.hlo.proto.shape import read_shape
from graphgen.lowering.hlo.proto.wire import Message, Source
from graphgen.lowering.hlo.text.attributes import ATTRIBUTES, MODULE_ATTRIBUTES
from graphgen.lowering.hlo.text.hlo_constants import show_literal

# Attributes that name called computations; ``to_apply`` for any other opcode.
_CALLS = {
    "while": ("body", "condition"),
    "fusion": ("calls",),
    "select-and-scatter": ("select", "scatter"),
}


def print_hlo_text(source: Source) -> str:
    """Print an HLO protobuf, constants in full.

    Raises:
        GraphgenError: GG0801 what is damaged.
    """
    return "\n".join(hlo_lines(open_hlo(source))) + "\n"


def hlo_lines(module: HloModule) -> Iterator[str]:
    """Print a module, line by line."""
    parts = [f"HloModule {module.name or 'module'}"]
    parts += [
        f"{row.name}={shown}" for row in MODULE_ATTRIBUTES if (shown := row.show(module.message))
    ]
    yield ", ".join(parts)
    taken: set[str] = set()
    names = {item.id: _free(item.name, taken) for item in module.computations}
    for computation in module.computations:
        yield ""
        yield from _computation(computation, names, entry=computation is module.entry)


def _computation(
    computation: HloComputation, names: dict[int, str], *, entry: bool
) -> Iterator[str]:
    yield ("ENTRY " if entry else "") + f"%{names[computation.id]} {{"
    known: dict[int, str] = {}
    taken: set[str] = set()
    for instruction in computation.instructions():
        number = instruction.integer(InstructionField.ID)
        known[number] = _free(instruction.text(InstructionField.NAME), taken)
        mark = "ROOT " if number == computation.root_id else ""
        yield f"  {mark}{_instruction(instruction, known, names)}"
    yield "}"


def _free(name: str, taken: set[str]) -> str:
    """``name`` in letters of HLO text, with a number where it is taken."""
    wanted = re.sub(r"[^\w.\-]", "_", name, flags=re.ASCII)
    wanted = wanted if re.match(r"[A-Za-z_]", wanted) else f"_{wanted}"
    return claim_name(wanted, taken)


def _instruction(i: Message, known: dict[int, str], names: dict[int, str]) -> str:
    code = i.text(InstructionField.OPCODE)
    shape = read_shape(i.data(InstructionField.SHAPE)).text
    if code == "parameter":
        inside = str(i.integer(InstructionField.PARAMETER_NUMBER))
    elif code == "constant":
        inside = show_literal(i.message(InstructionField.LITERAL))
    else:
        reads = i.integers(InstructionField.OPERAND_IDS)
        inside = ", ".join([f"%{known.get(number, number)}" for number in reads])
    head = f"%{known[i.integer(InstructionField.ID)]} = {shape} {code}({inside})"
    calls = _calls(i, code, names)
    attrs = [
        f"{row.name}={shown}"
        for row in ATTRIBUTES
        if (not row.only or code in row.only) and (shown := row.show(i))
    ]
    before = [f"%{known.get(n, n)}" for n in i.integers(InstructionField.CONTROL_PREDECESSOR_IDS)]
    if before:
        attrs.insert(0, f"control-predecessors={{{', '.join(before)}}}")
    # Attributes of every instruction follow those of the opcode.
    own = [item for item in attrs if not item.startswith(_LAST)]
    rest = [item for item in attrs if item.startswith(_LAST)]
    return ", ".join([head, *own, *calls, *rest])


_LAST = ("sharding=", "frontend_attributes=", "metadata=", "backend_config=", "control-pre")


def _calls(i: Message, code: str, names: dict[int, str]) -> list[str]:
    called = [f"%{names.get(n, n)}" for n in i.integers(InstructionField.CALLED_IDS)]
    if not called:
        return []
    if code == "conditional":
        return [f"branch_computations={{{', '.join(called)}}}"]
    if code == "custom-call":
        return [f"called_computations={{{', '.join(called)}}}"]
    keys = _CALLS.get(code, ("to_apply",))
    return [f"{key}={name}" for key, name in zip(keys, called, strict=False)]
