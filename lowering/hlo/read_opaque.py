"""Instructions that have no op of their own: kept whole, so that nothing they say is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from graphgen.ir import AttrValue, Value
from graphgen.lowering.hlo.computation_emitter import OUTPUT_NAMES
from graphgen.lowering.hlo.proto.fields import InstructionField
from graphgen.lowering.hlo.proto.instruction import frontend_attributes as write_attributes
from graphgen.lowering.hlo.proto.proto_module import frontend_attributes
from graphgen.lowering.hlo.proto.shape import HloShape
from graphgen.lowering.hlo.proto.wire import Message
from graphgen.lowering.hlo.read_ops import Tree, UnmodelledError

_F = InstructionField
# What the op says otherwise, or what is made anew when it is written.
_ELSEWHERE = frozenset(
    (
        *(_F.NAME, _F.OPCODE, _F.SHAPE, _F.METADATA, _F.ID, _F.OPERAND_IDS, _F.CALLED_IDS),
        *(_F.CONTROL_PREDECESSOR_IDS, _F.FRONTEND_ATTRIBUTES),
    )
)
_CALL = frozenset((_F.CUSTOM_CALL_TARGET, _F.BACKEND_CONFIG))


class To(Protocol):
    """Where instructions are read to."""

    def emit_stated(
        self, name: str, operands: Sequence[Value], shape: HloShape, **attrs: AttrValue
    ) -> Sequence[Value]:
        """Append an op whose results are the arrays in ``shape``."""
        ...

    def region(self, called: int) -> str:
        """A computation of the file, packed."""
        ...


def read_custom_call(to: To, i: Message, operands: Sequence[Tree], shape: HloShape) -> Tree:
    """The op of a custom call; one with tuples inside, or computations, is opaque."""
    flat = [item for item in operands if isinstance(item, Value)]
    nested = any(member.is_tuple for member in shape.members) or len(shape.leaves) < 2
    if i.has(_F.CALLED_IDS) or len(flat) != len(operands) or (shape.is_tuple and nested):
        raise UnmodelledError("it has tuples or computations")
    target, config = i.text(_F.CUSTOM_CALL_TARGET), i.text(_F.BACKEND_CONFIG)
    fields, more = _own(i, _CALL)
    made = to.emit_stated(
        "custom_call", flat, shape, target=target, config=config, fields=fields, more=more
    )
    return tuple(made) if shape.is_tuple else made[0]


def read_opaque(to: To, i: Message, operands: Sequence[Tree], shape: HloShape) -> Tree:
    """The op of any instruction that has arrays as results."""
    if not shape.leaves:
        raise UnmodelledError("it gives nothing")
    fields, more = _own(i)
    flat = [leaf for tree in operands for leaf in _leaves(tree)]
    made = to.emit_stated(
        "hlo.opaque",
        flat,
        shape,
        opcode=i.text(_F.OPCODE),
        fields=fields,
        more=more,
        form=_form(operands, shape),
        regions=",".join([to.region(number) for number in i.integers(_F.CALLED_IDS)]),
    )
    return tree_of(shape, list(made))


def _own(i: Message, without: frozenset[int] = frozenset()) -> tuple[str, str]:
    """The instruction's own fields in hexadecimal, before and behind the ids."""
    kept = [
        (number, data)
        for number, data in i.pieces()
        if number not in _ELSEWHERE and number not in without
    ]
    attributes = frontend_attributes(i, _F.FRONTEND_ATTRIBUTES)
    attributes.pop(OUTPUT_NAMES, None)
    if attributes:
        kept.append((_F.FRONTEND_ATTRIBUTES, write_attributes(attributes)))
    kept.sort(key=lambda pair: pair[0])
    before = b"".join([data for number, data in kept if number < _F.ID])
    return before.hex(), b"".join([data for number, data in kept if number > _F.ID]).hex()


def _leaves(tree: Tree) -> list[Value]:
    if isinstance(tree, Value):
        return [tree]
    return [leaf for part in tree for leaf in _leaves(part)]


def _form(operands: Sequence[Tree], shape: HloShape) -> str:
    flat = all(isinstance(item, Value) for item in operands)
    plain = not shape.is_tuple or (
        len(shape.members) > 1 and not any(member.is_tuple for member in shape.members)
    )
    if flat and plain:
        return ""
    return "".join(map(_tree_form, operands)) + "->" + _shape_form(shape)


def _tree_form(tree: Tree) -> str:
    return "x" if isinstance(tree, Value) else f"({''.join(map(_tree_form, tree))})"


def _shape_form(shape: HloShape) -> str:
    return f"({''.join(map(_shape_form, shape.members))})" if shape.is_tuple else "x"


def tree_of(shape: HloShape, made: list[Value]) -> Tree:
    """The values as the tuple that the shape is; they are used up from the left."""
    if not shape.is_tuple:
        return made.pop(0)
    return tuple([tree_of(member, made) for member in shape.members])
