"""Instructions like one that was read before: the layers of a model repeat theirs.

The op that an instruction becomes follows from its fields and from what is known of its operands:
their types, what the file stated of them, and their elements where they are constants. Name, place
and the operands themselves are what differs between layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.ir import Attrs, Loc, Op, TensorType, Value
from graphgen.lowering.hlo.dialect.hlo_file import ir_name
from graphgen.lowering.hlo.dialect.op_builder import OpBuilder, Tree
from graphgen.lowering.hlo.proto.fields import InstructionField
from graphgen.lowering.hlo.proto.wire import Message

_F = InstructionField
# Fields in which equal instructions differ.
_APART = frozenset((_F.NAME, _F.ID, _F.OPERAND_IDS, _F.METADATA))
# Constants with longer literals are read each for itself.
_LONGEST = 64

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class RepeatedOp:
    """The one op of one result that instructions of a key become.

    Attributes:
        name, attrs, types, annotations: of the op.
        reads: positions of its operands among those of the instruction.
        idle: positions of operands that it does not need.
    """

    name: str
    attrs: Attrs
    types: tuple[TensorType, ...]
    annotations: Attrs
    reads: tuple[int, ...]
    idle: tuple[int, ...]


class RepeatedInstructions:
    """The instructions of one computation that were read, by key.

    Args:
        builder: appends their ops.
    """

    def __init__(self, builder: OpBuilder) -> None:
        self._builder = builder
        self._found: dict[Key, RepeatedOp] = {}

    def key(self, message: Message, operands: Sequence[Tree]) -> Key | None:
        """The key of an instruction; ``None`` for one that is read for itself."""
        parts: list[object] = []
        source = message.source
        for number, values in message.fields.items():
            if number in _APART:
                continue
            parts.append(number)
            for value in values:
                if isinstance(value, int):
                    parts.append(value)
                elif number == _F.LITERAL and value[1] - value[0] > _LONGEST:
                    return None
                else:
                    parts.append(source[value[0] : value[1]])
        for operand in operands:
            if not isinstance(operand, Value):
                return None
            op = operand.op
            if op is None:
                parts += (operand.type, operand.annotations)
            else:
                constant = op.attrs if op.name == "constant" else None
                parts += (operand.type, op.annotations, operand.index, constant)
        if len(operands) > 1 and len(set(operands)) < len(operands):
            parts.append(tuple([operands.index(operand) for operand in operands]))
        return tuple(parts)

    def again(self, key: Key, name: str, where: Loc, operands: Sequence[Tree]) -> Value | None:
        """Append the op of an instruction with a known key; its value, else ``None``."""
        known = self._found.get(key)
        if known is None:
            return None
        builder = self._builder
        given = [operand for operand in operands if isinstance(operand, Value)]
        reads = tuple([given[index] for index in known.reads])
        label = ir_name(name, builder.taken)
        op = Op(known.name, reads, known.types, known.attrs, where, (label,))
        op.annotations = known.annotations
        builder.function.block.append(op)
        for index in known.idle:
            builder.idle[given[index]] = None
        return op.results[0]

    def note(self, key: Key, operands: Sequence[Tree], made: Sequence[Op], tree: Tree) -> None:
        """Cache the op made of an instruction, if it is one op with one result."""
        if len(made) != 1 or tree is not made[0].results[0] or len(made[0].results) != 1:
            return
        (op,) = made
        places = {operand: index for index, operand in reversed([*enumerate(operands)])}
        if any(value not in places for value in op.operands):
            return
        reads = tuple([places[value] for value in op.operands])
        idle = [index for operand, index in places.items() if operand in self._builder.idle]
        unread = tuple([index for index in idle if index not in reads])
        types = (op.results[0].type,)
        self._found[key] = RepeatedOp(op.name, op.attrs, types, op.annotations, reads, unread)
