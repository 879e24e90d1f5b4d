"""Rows of the HLO dialect: every attribute of an op is written and read, by one row."""

from __future__ import annotations

import pytest

from graphgen.ir import AttrValue
from graphgen.lowering.hlo.dialect import BY_NAME, BY_OP, ROWS
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.hlo_text.attributes import ATTRIBUTES, attribute_named
from graphgen.ops import OPS

PLAIN = [row for row in ROWS if row.op and row.emit is None and row.read is None]


@pytest.mark.parametrize("row", PLAIN, ids=lambda row: row.op)
def test_a_row_without_functions_has_every_attribute_of_its_op(row):
    fields = {item.attr for item in row.fields}
    known = {*fields, *row.inferred, *(["kind"] if row.reduces else [])}
    assert known == {attr.name for attr in OPS[row.op].attrs}


def test_every_row_that_writes_is_read_or_is_a_decomposition():
    unread = {row.op for row in ROWS if row.op and not row.name}
    # Reductions, sorts and scatters by a function are read by the rows of those by a named op.
    applied = {"reduce_by", "reduce_window_by", "scatter_by", "sort_by"}
    assert unread == {"take", "hlo.opaque", *applied}
    norms = {f"batch-norm-{name}" for name in ("training", "inference", "grad")}
    others = {row.name for row in ROWS if not row.op} - norms
    assert others == {"constant", "copy", "bitcast", "fusion"}
    assert all(BY_NAME[row.name] is row for row in BY_OP.values() if row.name)


@pytest.mark.parametrize(
    ("name", "code", "value", "text"),
    [
        ("dimensions", "transpose", (1, 0), "{1,0}"),
        ("iota_dimension", "iota", 1, "1"),
        ("slice", "slice", [(0, 4, 1), (1, 8, 2)], "{[0:4], [1:8:2]}"),
        ("padding", "pad", [(0, 1, 0), (2, 0, 1)], "0_1x2_0_1"),
        ("window", "reduce-window", [(3, 2, 1, 1, 0, 1, 1)], "{size=3 pad=1_1 stride=2}"),
        ("direction", "compare", "LT", "LT"),
        ("replica_groups", "all-reduce", ((0, 1), (2, 3)), "{{0,1},{2,3}}"),
        ("source_target_pairs", "collective-permute", ((0, 1), (1, 0)), "{{0,1},{1,0}}"),
        ("lhs_contracting_dims", "dot", (1,), "{1}"),
        ("index_vector_dim", "gather", 2, "2"),
        ("index_vector_dim", "scatter", 3, "3"),
        ("operand_precision", "dot", (2, 0), "{highest,default}"),
        ("exponent_bits", "reduce-precision", 5, "5"),
    ],
)
def test_an_attribute_is_the_same_as_value_text_and_field(
    name: str, code: str, value: AttrValue, text: str
):
    row = attribute_named(name, code)
    assert row is not None
    data = row.encode(value)
    instruction = Message(wire.delimited(row.field, data) if row.inside else data)
    assert row.decode(instruction) == value
    assert row.show(instruction) == text
    assert row.parse(text) == data


def test_an_attribute_that_is_not_set_is_the_default_of_its_type():
    nothing = Message(b"")
    for row in ATTRIBUTES:
        # Nothing is said of a sharding by one of kind 0.
        if row.name != "sharding":
            assert not row.decode(nothing), row.name
