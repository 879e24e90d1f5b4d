"""Convolutions in the assembly form: windows, groups, dimension numbers, and what is refused."""

from __future__ import annotations

import pytest

from graphgen.errors import GraphgenError
from graphgen.ir import Op
from graphgen.lowering.stablehlo.read import read_stablehlo

NUMBERS = "[b, 0, f]x[0, i, o]->[b, 0, f]"


def convolution(window: str, groups: str = "", numbers: str = NUMBERS, result: str = "?") -> Op:
    """The op read from a program of one convolution."""
    module = read_stablehlo(
        f"""
func.func @main(%x: tensor<4x9x2xf32>, %w: tensor<3x2x8xf32>) -> tensor<{result}xf32> {{
  %0 = stablehlo.convolution(%x, %w) dim_numbers = {numbers}, window = {{{window}}} {{
    {groups}
  }} : (tensor<4x9x2xf32>, tensor<3x2x8xf32>) -> tensor<{result}xf32>
  return %0 : tensor<{result}xf32>
}}
"""
    )
    (op,) = (op for op in module.function("main").ops if op.name == "convolution")
    return op


PLAIN = "batch_group_count = 1 : i64, feature_group_count = 1 : i64"
WINDOWS = [
    ("", "4x7x8", {}),
    ("stride = [2]", "4x4x8", {"window_strides": (2,)}),
    ("pad = [[1, 2]]", "4x10x8", {"low": (1,), "high": (2,)}),
    ("lhs_dilate = [2]", "4x15x8", {"lhs_dilation": (2,)}),
    ("rhs_dilate = [3]", "4x3x8", {"rhs_dilation": (3,)}),
    ("reverse = [true]", "4x7x8", {"window_reversal": (1,)}),
    ("reverse = [false]", "4x7x8", {}),
    ("stride = [2], pad = [[0, 1]]", "4x4x8", {"window_strides": (2,), "high": (1,)}),
]


@pytest.mark.parametrize(("window", "result", "stated"), WINDOWS)
def test_each_part_of_a_window_is_read(window: str, result: str, stated: dict[str, object]):
    attrs = convolution(window, PLAIN, result=result).attrs
    assert attrs.text("dim_labels") == "b0f_0io->b0f"
    defaults = convolution("", PLAIN, result="4x7x8").attrs
    assert {key: attrs[key] for key in stated} == stated
    assert {k: v for k, v in attrs.items() if k not in stated} == {
        k: v for k, v in defaults.items() if k not in stated
    }
    counts = attrs.integer("feature_group_count"), attrs.integer("batch_group_count")
    assert counts == (1, 1)


def test_groups_are_read():
    groups = "batch_group_count = 2 : i64, feature_group_count = 1 : i64"
    op = convolution("", groups, result="2x7x8")
    assert op.attrs.integer("batch_group_count") == 2


@pytest.mark.parametrize(
    ("window", "numbers", "what"),
    [
        ("strides = [2]", NUMBERS, "a window has no 'strides'"),
        ("2 = [2]", NUMBERS, "expected a part of the window"),
    ],
)
def test_windows_of_other_parts_are_refused(window: str, numbers: str, what: str):
    with pytest.raises(GraphgenError, match=what):
        convolution(window, PLAIN, numbers, "4x7x8")


def test_a_text_that_ends_in_the_dimension_numbers_is_refused():
    text = "func.func @main(%x: tensor<4x9x2xf32>) { %0 = stablehlo.convolution(%x, %x) dim_numbers"
    with pytest.raises(GraphgenError):
        read_stablehlo(f"{text} = [b")
