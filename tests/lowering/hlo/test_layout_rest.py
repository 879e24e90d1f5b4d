"""Layouts of HLO beside their order, as text: each part comes back, alone and among others."""

from __future__ import annotations

import pytest

from graphgen.errors import GraphgenError
from graphgen.lowering.hlo_proto.layout_rest import layout_rest, parse_layout_rest, show_layout_rest
from graphgen.lowering.hlo_proto.wire import Message

PARTS = [
    "D(D,C)",
    "D(D,C+,S~,L+~)",
    "T(8,128)",
    "T(8,128)(2,1)",
    "T(*,128)",
    "L(4)",
    "#(u32)",
    "*(u8)",
    "E(4)",
    "S(1)",
    "SC(0:2,4)",
    "SC(0:2)(1:3,5)",
    "M(16)",
]
ALL = "D(D,C+~)T(8,128)(2,1)L(4)#(u32)*(u8)E(4)S(1)SC(0:2,4)(1:6)M(16)"


@pytest.mark.parametrize("text", [*PARTS, ALL])
def test_each_part_comes_back(text: str):
    rest = parse_layout_rest(text)
    assert show_layout_rest(rest) == f":{text}"
    # Read as a part of a layout, it is the same bytes.
    assert layout_rest(Message(rest)) == rest


def test_parts_in_another_order_are_the_same():
    assert parse_layout_rest(" S(1) T(8,128) ") == parse_layout_rest("T(8,128)S(1)")


def test_what_every_layout_has_is_left_out():
    assert parse_layout_rest("") == parse_layout_rest("L(1)") == b""
    assert show_layout_rest(b"") == ""


@pytest.mark.parametrize("text", ["X(1)", "S(1)S(2)", "S", "S(a)", "D(Q)", "#(f31)", "T(8)!", "!"])
def test_what_is_no_part_is_refused(text: str):
    with pytest.raises(GraphgenError, match="is not understood in a layout") as refused:
        parse_layout_rest(text)
    assert refused.value.code == "GG0201"
