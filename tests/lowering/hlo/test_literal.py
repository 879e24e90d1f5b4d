"""Bytes of constants that files of others may hold."""

from __future__ import annotations

import pytest

from graphgen.errors import GraphgenError
from graphgen.ir import Literal
from graphgen.ir.dtype import pred
from graphgen.lowering.hlo.proto.literal import read_literal, write_literal
from graphgen.lowering.hlo.proto.wire import Message


def test_a_truth_value_is_0_or_1():
    held = b"".join([bytes(part) for part in write_literal(Literal(pred, (3,), b"\0\1\1"))])
    assert bytes(read_literal(Message(held)).data or b"") == b"\0\1\1"
    with pytest.raises(GraphgenError, match="something else than 0 and 1"):
        read_literal(Message(held.replace(b"\0\1\1", b"\0\2\1")))
