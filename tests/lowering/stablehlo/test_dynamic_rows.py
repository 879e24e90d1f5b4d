"""Ops with computed sizes, where the sizes are those that the types say."""

from __future__ import annotations

import pytest

from graphgen.errors import GraphgenError
from graphgen.lowering.stablehlo import read_stablehlo

RESIZED = """module @m {{
  func.func public @main(%x: tensor<2x6xf32>) -> tensor<2x6xf32> {{
    %n = stablehlo.constant dense<{size}> : tensor<i32>
    %y = stablehlo.set_dimension_size %x, %n, dim = 1 : (tensor<2x6xf32>, tensor<i32>) -> tensor<2x6xf32>
    return %y : tensor<2x6xf32>
  }}
}}
"""  # noqa: E501


def test_setting_the_size_that_a_dimension_has_changes_nothing():
    (program,) = read_stablehlo(RESIZED.format(size=6)).programs()
    assert [value for _, value in program.outputs] == program.args
    with pytest.raises(GraphgenError, match="set_dimension_size: a size other than 6"):
        read_stablehlo(RESIZED.format(size=5))
