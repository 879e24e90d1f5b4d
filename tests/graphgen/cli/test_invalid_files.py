"""Files that contradict themselves: the reason is the error, before XLA sees anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.graphgen.cli.conftest import done, error, facts

HLO = """HloModule m, num_partitions=4
ENTRY %main (a: f32[4,8], b: f32[8,3]) -> f32[OUT] {
  %a = f32[4,8] parameter(0)
  %b = f32[8,3] parameter(1)
  ROOT %result = f32[OUT] OP
}
"""
WRONG = {
    "reshape": ("31", "reshape(%a)", "%result: reshape: f32[4,8] has 32 elements, f32[31] has 31"),
    "dot": (
        "4,4",
        "dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "%result: dot: it states f32[4,4]{1,0}, but its operands give f32[4,3]",
    ),
    "transpose": ("8,4", "transpose(%a), dimensions={1,2}", "%result: transpose: [1, 2] is"),
    "add": ("4,8", "add(%a, %b)", "%result: add: "),
    "concatenate": ("8,8", "concatenate(%a, %b), dimensions={0}", "%result: concatenate: "),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_instruction_that_does_not_fit_is_the_error(tmp_path: Path, name: str):
    out, op, message = WRONG[name]
    path = tmp_path / "w.hlo"
    path.write_text(HLO.replace("OUT", out).replace("OP", op))
    for command in (("run",), ("run", "--on", "cpu"), ("lower", "--to", "hlo-text")):
        text = error(command[0], path, *command[1:])
        assert text.startswith("error[GG0203]: the file contradicts itself: " + message)
        assert "Stack" not in text
    assert f"  warning: {message}" in done("inspect", path).stdout
    assert facts("inspect", path)["invalid"][0].startswith(message)


SHARDED = """HloModule m, num_partitions=4
ENTRY %main (x: f32[4,8]) -> f32[4,8] {
  %x = f32[4,8] parameter(0), sharding=SHARDING
  ROOT %y = f32[4,8] negate(%x)
}
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{devices=[4,4]<=[16]}", "16 devices, and the module has 4 partitions"),
        ("{devices=[2,2]0,1,1,3}", "a device has two tiles"),
        ("{devices=[2,2]0,1,2}", "4 tiles for 3 devices"),
        ("{devices=[4]<=[4]}", "1 dimensions for a value of 2"),
        ("{devices=[2,1,2]<=[4]}", "3 dimensions for a value of 2"),
    ],
)
def test_a_sharding_that_does_not_fit_is_the_error(tmp_path: Path, text: str, message: str):
    path = tmp_path / "s.hlo"
    path.write_text(SHARDED.replace("SHARDING", text))
    assert message in error("run", path)
    assert message in done("inspect", path).stdout


@pytest.mark.parametrize(
    "text",
    [
        *("{devices=[2,2]<=[4]}", "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"),
        *("{replicated}", "{maximal device=1}", "{devices=[2,2]3,1,0,2}", "{manual}"),
        "{devices=[1,2,2]<=[4] last_tile_dims={manual}}",
    ],
)
def test_a_sharding_that_fits_is_no_contradiction(tmp_path: Path, text: str):
    path = tmp_path / "s.hlo"
    path.write_text(SHARDED.replace("SHARDING", text))
    assert "invalid" not in facts("inspect", path)
    done("run", path)


SHARDY = """module @m {
  sdy.mesh @mesh = <["x"=2, "y"=2]>
  func.func public @main(%a: tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [AXES]>}) \
-> tensor<4x8xf32> {
    %0 = stablehlo.negate %a : tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}
"""


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ('{"z"}, {}', "no axis 'z' in mesh mesh"),
        ('{"x"}, {"x"}', "axis 'x' is used twice"),
        ('{"x", "y"}, {}', ""),
    ],
)
def test_axes_of_shardy_are_those_of_the_mesh_each_once(tmp_path: Path, axes: str, message: str):
    path = tmp_path / "s.mlir"
    path.write_text(SHARDY.replace("AXES", axes))
    if message:
        assert message in error("run", path)
    else:
        done("run", path)
