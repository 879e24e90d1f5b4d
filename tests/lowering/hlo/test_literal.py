"""Bytes of constants that files of others may hold."""

from __future__ import annotations

import pytest

from graphgen.errors import GraphgenError
from graphgen.ir import Literal
from graphgen.ir.dtype import dtype, pred
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import LiteralField
from graphgen.lowering.hlo_proto.literal import read_literal, write_literal
from graphgen.lowering.hlo_proto.shape import HloShape, write_shape
from graphgen.lowering.hlo_proto.wire import Message


def test_a_truth_value_is_0_or_1():
    held = b"".join([bytes(part) for part in write_literal(Literal(pred, (3,), b"\0\1\1"))])
    assert bytes(read_literal(Message(held)).data or b"") == b"\0\1\1"
    with pytest.raises(GraphgenError, match="something else than 0 and 1"):
        read_literal(Message(held.replace(b"\0\1\1", b"\0\2\1")))


@pytest.mark.parametrize("kind", ["s32", "u64", "f32"])
def test_elements_may_come_in_several_pieces(kind: str):
    whole, first, second = (
        b"".join([bytes(part) for part in write_literal(Literal.of(dtype(kind), values))])
        for values in ([3, 1, 2], [3], [1, 2])
    )
    # Of fields that come twice, lists go on and of others the last one counts: here the shape.
    shape = write_shape(HloShape(kind, (3,)))
    pieces = first + second + wire.delimited(LiteralField.SHAPE, shape)
    found = read_literal(Message(pieces)).literal(dtype(kind))
    assert found == read_literal(Message(whole)).literal(dtype(kind))
