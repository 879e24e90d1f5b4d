"""A program that XLA has split over partitions, compared with the one before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphgen.lowering.open import Source, open_source
from graphgen.lowering.whole_program import is_split, of_whole_arrays
from graphgen.ops import verify
from tests.graphgen.cli.conftest import done, graphgen

TURNED = "{devices=[2,2]<=[2,2]T(1,0)}"
WHOLE = """\
func.func public @main(%x: tensor<4x6xf32>) -> (tensor<4x6xf32> STATED) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<4x6xf32>, tensor<f32>) -> tensor<6xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<6xf32>) -> tensor<4x6xf32>
  %2 = stablehlo.subtract %x, %1 : tensor<4x6xf32>
  return %2 : tensor<4x6xf32>
}
"""
SPLIT = """\
HloModule split, is_scheduled=true, num_partitions=4

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

ENTRY %main (p: f32[2,3]) -> f32[2,3] {
  %p = f32[2,3]{1,0} parameter(0), sharding=SHARDING
  %zero = f32[] constant(0)
  %s = f32[3]{0} reduce(%p, %zero), dimensions={0}, to_apply=%add
  %r = f32[3]{0} all-reduce(%s), channel_id=1, replica_groups=GROUPS, to_apply=%add, \
use_global_device_ids=true
  %w = f32[2,3]{1,0} broadcast(%r), dimensions={1}
  ROOT %y = f32[2,3]{1,0} subtract(%p, %w)
}
"""
RIGHT = "{{0,1},{2,3}}"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """The program before XLA split it, and after that."""
    before, after = tmp_path / "before.mlir", tmp_path / "after.hlo"
    return before, after


def written(
    files: tuple[Path, Path],
    *,
    stated: str = TURNED,
    sharding: str = TURNED,
    groups: str = RIGHT,
) -> tuple[Path, Path]:
    noted = f'{{mhlo.sharding = "{stated}"}}' if stated else ""
    files[0].write_text(WHOLE.replace("STATED", noted), encoding="utf-8")
    text = SPLIT.replace("SHARDING", sharding).replace("GROUPS", groups)
    files[1].write_text(text, encoding="utf-8")
    return files


@pytest.mark.parametrize("turned", [False, True])
def test_the_program_before_and_after_the_partitioner(files: tuple[Path, Path], turned: bool):
    sides = written(files)
    found = done("equiv", *(reversed(sides) if turned else sides))
    assert found.stdout.startswith("equal: ")
    assert f"note: {sides[1]} is split over partitions" in found.stderr
    assert "no file states" not in found.stderr


def test_on_a_compiler_they_are_equal_too(files: tuple[Path, Path]):
    assert done("equiv", *written(files), "--on", "cpu").stdout.startswith("equal: ")


def test_a_collective_over_other_groups_is_found(files: tuple[Path, Path]):
    found = graphgen("equiv", *written(files, groups="{{0,2},{1,3}}"))
    assert found.exit_code == 1
    assert found.stdout.startswith("different: ")


def test_what_no_file_states_is_told_from_sizes_and_said(files: tuple[Path, Path]):
    plain = "{devices=[2,2]<=[4]}"
    sides = written(files, stated="", sharding=plain, groups="{{0,2},{1,3}}")
    found = done("equiv", *sides)
    assert found.stdout.startswith("equal: ")
    assert f"no file states how it is split, its sizes do: output0 {plain}" in found.stderr


STATED = """\
HloModule whole, num_partitions=4, frontend_attributes={xla.sdy.meshes={mesh = \
#sdy.mesh<["a"=2, "b"=2]>}}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

ENTRY %main (x: f32[4,6]) -> f32[4,6] {
  %x = f32[4,6]{1,0} parameter(0)
  %zero = f32[] constant(0)
  %s = f32[6]{0} reduce(%x, %zero), dimensions={0}, to_apply=%add
  %w = f32[4,6]{1,0} broadcast(%s), dimensions={1}
  %y = f32[4,6]{1,0} subtract(%x, %w)
  ROOT %z = f32[4,6]{1,0} custom-call(%y), custom_call_target="CALL"
}
"""
# A result whose sharding a jit states, and one that parts for one device are put together to.
CALLS = (
    """xla.sdy.FuncResultSharding", custom_call_has_side_effect=true, frontend_attributes={\
xla.sdy.sharding="#sdy.sharding_per_value<[<@mesh, [{\\"b\\"}, {\\"a\\"}]>]>"}""",
    """xla.sdy.LocalToGlobalShape", custom_call_has_side_effect=true, frontend_attributes={\
xla.sdy.manual_axes="#sdy<manual_axes{\\"a\\", \\"b\\"}>",\
xla.sdy.out_shardings="#sdy.sharding_per_value<[<@mesh, [{\\"b\\"}, {\\"a\\"}]>]>"}""",
)


@pytest.mark.parametrize("call", CALLS)
def test_a_result_is_put_together_as_the_custom_call_before_it_says(
    tmp_path: Path, files: tuple[Path, Path], call: str
):
    written(files)
    before = tmp_path / "before.hlo"
    text = STATED.replace('CALL"', call)
    if "LocalToGlobal" in call:
        # Each device has written its part of the whole by itself.
        text = text.replace("(%y), custom", "(%p), custom").replace(
            "  ROOT %z",
            """\
  %q = f32[2,3]{1,0} custom-call(%y), custom_call_target="xla.sdy.GlobalToLocalShape", \
custom_call_has_side_effect=true, frontend_attributes={\
xla.sdy.in_shardings="#sdy.sharding_per_value<[<@mesh, [{\\"b\\"}, {\\"a\\"}]>]>",\
xla.sdy.manual_axes="#sdy<manual_axes{\\"a\\", \\"b\\"}>"}
  %p = f32[2,3]{1,0} negate(%q)
  ROOT %z""",
        )
        after = files[1].read_text(encoding="utf-8").replace("ROOT %y =", "%y =")
        after = after.replace(
            "subtract(%p, %w)\n", "subtract(%p, %w)\n  ROOT %n = f32[2,3]{1,0} negate(%y)\n"
        )
        files[1].write_text(after, encoding="utf-8")
    before.write_text(text, encoding="utf-8")
    found = done("equiv", before, files[1])
    assert found.stdout.startswith("equal: ")
    assert "no file states" not in found.stderr
    assert "lowering/" not in found.output


@pytest.mark.parametrize("sharding", ["{devices=[4,1]<=[4]}", "{maximal device=0}"])
def test_a_sharding_that_makes_other_parts_names_the_way_to_state_one(
    files: tuple[Path, Path], sharding: str
):
    found = graphgen("equiv", *written(files, sharding=sharding))
    assert (found.exit_code, found.stdout) == (2, "")
    assert "error[GG0205]" in found.stderr
    assert "--relation NAME=shard{-,@}" in found.stderr
    assert "graphgen prove A B --relate NAME:{-,@}" in found.stderr


def test_neither_module_is_changed(files: tuple[Path, Path]):
    modules = [open_source(Source(str(file), file.read_bytes())) for file in written(files)]
    assert [is_split(module) for module in modules] == [False, True]
    before = [str(module) for module in modules]
    made = of_whole_arrays(modules[1], modules[0])
    assert made is not None
    verify(made.module)
    (program,) = made.module.programs()
    assert [value.type.text for value in program.args] == ["f32[4,6]"]
    assert [str(module) for module in modules] == before
    assert of_whole_arrays(modules[1], modules[1]) is None
