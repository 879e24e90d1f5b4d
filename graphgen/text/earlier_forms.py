"""Ops as earlier revisions printed them, in the form they have now."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Function, Loc, Op, Value, attrs_of
from graphgen.ops import infer, op_def
from graphgen.text.grammar import parse_attr

_ATTENDED = "attended"


def upgrade_mask(
    function: Function, operands: Sequence[Value], attrs: str, where: Loc
) -> tuple[tuple[Value, ...], str]:
    """The operands and attributes of an ``attention_mask``; its lengths become key positions.

    Earlier masks were of plain rows: ``attention_mask(%positions, %lengths) attended=C``.

    Args:
        function: gets the op ``key_positions``.
        operands: as they are in the text.
        attrs: the text of the attributes.
        where: provenance of the op.

    Raises:
        InferError: lengths of another type.
    """
    words = attrs.split()
    found = [word for word in words if word.startswith(f"{_ATTENDED}=")]
    if not found or len(operands) != 2:
        return tuple(operands), attrs
    known = {attr.name: attr for attr in op_def("key_positions").attrs}
    size = parse_attr(known[_ATTENDED], found[0].removeprefix(f"{_ATTENDED}="))
    given = attrs_of({_ATTENDED: size})
    types = infer("key_positions", (operands[1].type,), given)
    # A name, so that the numbers of other values stay as they are.
    op = Op("key_positions", (operands[1],), types, given, where, ["key_positions"])
    function.block.append(op)
    return (operands[0], op.result), " ".join([word for word in words if word not in found])
