"""Literals of StableHLO: as numbers and hexadecimal, whole and one number for all."""

from __future__ import annotations

import pytest

from graphgen.errors import GraphgenError
from graphgen.lowering.mlir.mlir_types import read_literal
from graphgen.lowering.mlir.syntax_tree import DenseAttr


def hexadecimal(text: str, type_: str) -> tuple[tuple[object, ...], list[int]]:
    found = read_literal(DenseAttr((), text, type_))
    return found.shape, list(found.data)


@pytest.mark.parametrize(
    ("text", "type_", "shape", "data"),
    [
        # Bits, lowest first.
        ("05", "tensor<3xi1>", (3,), [1, 0, 1]),
        ("05", "tensor<8xi1>", (8,), [1, 0, 1, 0, 0, 0, 0, 0]),
        ("0102", "tensor<10xi1>", (10,), [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        # One byte of all zeros or ones is a number for all, but eight are eight.
        ("ff", "tensor<3xi1>", (), [1]),
        ("00", "tensor<3xi1>", (), [0]),
        ("ff", "tensor<16xi1>", (), [1]),
        ("ff", "tensor<8xi1>", (8,), [1] * 8),
        ("00", "tensor<8xi1>", (8,), [0] * 8),
        ("ff", "tensor<1xi1>", (1,), [1]),
        ("01", "tensor<1xi1>", (1,), [1]),
        # Of other types the bytes are the numbers.
        ("01000200", "tensor<2xi16>", (2,), [1, 0, 2, 0]),
        ("0100", "tensor<2xi16>", (), [1, 0]),
        ("0100", "tensor<1xi16>", (1,), [1, 0]),
        ("0100", "tensor<i16>", (), [1, 0]),
    ],
)
def test_hexadecimal_data(text: str, type_: str, shape: tuple[int, ...], data: list[int]):
    assert hexadecimal(text, type_) == (shape, data)


@pytest.mark.parametrize(
    ("text", "type_"), [("010002", "tensor<2xi16>"), ("05", "tensor<9xi1>"), ("0", "tensor<i8>")]
)
def test_data_that_does_not_fit_is_refused(text: str, type_: str):
    with pytest.raises(GraphgenError) as caught:
        hexadecimal(text, type_)
    assert caught.value.code == "GG0104"
