"""Composites of StableHLO: name, attributes and version are written again as they were read."""

from __future__ import annotations

import re

import pytest

from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo

TEXT = """
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
  %0 = stablehlo.composite "my.op" %x {{{rest}decomposition = @inner{version}}} : \
(tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}}
func.func private @inner(%a: tensor<2xf32>) -> tensor<2xf32> {{
  %0 = stablehlo.negate %a : tensor<2xf32>
  return %0 : tensor<2xf32>
}}
"""


def again(text: str) -> str:
    """The text that is written for a module that was read."""
    module = read_stablehlo(text)
    return emit_stablehlo(module, module.function("main"))


@pytest.mark.parametrize(
    ("version", "stated"), [("", 0), (", version = 0 : i32", 0), (", version = 3 : i32", 3)]
)
@pytest.mark.parametrize("rest", ["", "composite_attributes = {n = 1 : i64}, "])
def test_a_composite_comes_back(rest: str, version: str, stated: int):
    once = again(TEXT.format(rest=rest, version=version))
    for text in (once, again(once)):
        (line,) = re.findall(r"stablehlo\.composite (.*) : \(", text)
        assert line.startswith('"my.op" %x {' if "%x" in line else '"my.op" %')
        assert line.endswith(f"version = {stated} : i32}}")
        assert ("composite_attributes = {n = 1 : i64}" in line) == bool(rest)
