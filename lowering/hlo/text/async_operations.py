"""Short forms of asynchronous operations: ``slice-start`` is async-start of a computation.

``X-start(..)`` starts a computation that holds the one instruction ``X``, with the attributes that
are written at the start; ``X-update`` and ``X-done`` go on with what their operand started.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphgen.lowering.hlo.proto import wire
from graphgen.lowering.hlo.proto.fields import InstructionField, RareField
from graphgen.lowering.hlo.proto.shape import HloShape
from graphgen.lowering.hlo.text.attributes import inner_opcode
from graphgen.lowering.hlo.text.own_fields import OwnFields
from graphgen.lowering.hlo.text.values.bad_attribute import TextNameError

if TYPE_CHECKING:
    from graphgen.lowering.hlo.text.hlo_assembler import ComputationAssembler

_STEPS = {"-start": "async-start", "-update": "async-update", "-done": "async-done"}
_WRAPPED, _PARAMETER = "async_wrapped", "async_param"


def is_asynchronous(code: str) -> bool:
    """True for an opcode that is a short form."""
    return inner_opcode(code) != code


def add_asynchronous(
    to: ComputationAssembler,
    name: str,
    code: str,
    shape: HloShape | None,
    operands: Sequence[str],
    own: OwnFields,
    root: bool,
) -> None:
    """Append a short form to a computation, as the long one (``TextNameError``)."""
    inner, dash, step = code.rpartition("-")
    if shape is None:
        raise TextNameError(f"{code} needs a shape")
    if step != "start":
        outer = OwnFields(own.data, (), own.waits, own.given)
        to.add(name, _STEPS[dash + step], shape, operands, outer, root=root)
        return
    if len(shape.members) < 2:
        raise TextNameError(f"{code} gives (operands, results, state)")
    module = to.module
    wrapped = module.begin(_WRAPPED)
    names: list[str] = []
    for number, operand in enumerate(operands):
        names.append(f"{_PARAMETER}.{number}" if number else _PARAMETER)
        wrapped.add_parameter(names[-1], to.shape(operand), number, root=False)
    kept, moved, thread = _apart(own)
    wrapped.thread = thread
    wrapped.add(inner, inner, shape.members[1], names, OwnFields(moved, own.calls), root=True)
    module.finish("", wrapped)
    # Ids have to be in a row for each computation.
    to.add(
        name, "async-start", shape, operands, OwnFields(kept, (), own.waits), root=root,
        called=[wrapped.number],
    )  # fmt: skip


# Fields that stay at the start; the others are of the instruction inside.
_KEPT = (
    InstructionField.METADATA,
    InstructionField.SHARDING,
    InstructionField.FRONTEND_ATTRIBUTES,
    InstructionField.BACKEND_CONFIG,
    RareField.ASYNC_EXECUTION_THREAD,
)


def _apart(own: OwnFields) -> tuple[bytes, bytes, str]:
    """The fields of the start, those of the instruction inside, and the thread."""
    kept: list[bytes] = []
    moved: list[bytes] = []
    message = wire.Message(own.data)
    for number, piece in message.pieces():
        (kept if number in _KEPT else moved).append(piece)
    return b"".join(kept), b"".join(moved), message.text(RareField.ASYNC_EXECUTION_THREAD)
