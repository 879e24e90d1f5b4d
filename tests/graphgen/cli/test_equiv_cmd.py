"""``graphgen equiv``: what it prints, what it exits with, what it takes."""

# MLIR writes long lines.
# ruff: noqa: E501

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.graphgen.cli.conftest import done, facts, graphgen

Golden = Callable[[str, str], None]

WHOLE = """\
module @whole {
  func.func public @main(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>, %bias: tensor<2xf32>) -> (tensor<4x2xf32> {jax.result_info = "y"}) {
    %dot = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32> loc("model/dot"("net.py":7:0))
    %0 = stablehlo.broadcast_in_dim %bias, dims = [1] : (tensor<2xf32>) -> tensor<4x2xf32>
    %1 = stablehlo.add %dot, %0 : tensor<4x2xf32> loc("model/bias"("net.py":8:0))
    %2 = stablehlo.logistic %1 : tensor<4x2xf32> loc("model/gate"("net.py":9:0))
    %3 = stablehlo.multiply %1, %2 : tensor<4x2xf32>
    return %3 : tensor<4x2xf32>
  }
}
"""
SPLIT = """\
module @split attributes {mhlo.num_replicas = 2 : i32} {
  func.func public @main(%x: tensor<4x4xf32>, %w: tensor<4x2xf32>) -> (tensor<4x2xf32> {jax.result_info = "y"}) {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
    return %0 : tensor<4x2xf32>
  }
}
"""
PRODUCT = """\
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>) -> (tensor<4x2xf32> {jax.result_info = "y"}) {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  return %0 : tensor<4x2xf32>
}
"""
INTEGER = """\
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x2xi8>, %scale: tensor<2xf32>) -> (tensor<4x2xf32> {jax.result_info = "y"}) {
  %0 = stablehlo.convert %w : (tensor<8x2xi8>) -> tensor<8x2xf32>
  %1 = stablehlo.dot_general %x, %0, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %2 = stablehlo.broadcast_in_dim %scale, dims = [1] : (tensor<2xf32>) -> tensor<4x2xf32>
  %3 = stablehlo.multiply %1, %2 : tensor<4x2xf32>
  return %3 : tensor<4x2xf32>
}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Names in the outputs are those of files here."""
    monkeypatch.chdir(tmp_path)
    write("whole.mlir", WHOLE)
    write("product.mlir", PRODUCT)
    write("split.mlir", SPLIT)
    return tmp_path


def write(name: str, text: str) -> str:
    Path(name).write_text(text)
    return name


def different(*arguments: object) -> str:
    result = graphgen("equiv", *arguments)
    assert (result.exit_code, result.stderr) == (1, ""), result.output
    return result.stdout


def refused(*arguments: object) -> str:
    result = graphgen("equiv", *arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    return result.stderr


def test_the_first_difference_is_shown_with_both_sources(golden: Golden):
    other = write("other.mlir", WHOLE.replace("add %dot, %0", "subtract %dot, %0"))
    golden("cli/equiv_subtract.txt", different("whole.mlir", other))


def test_arguments_of_other_names_go_by_type_and_order(golden: Golden):
    text = WHOLE.replace("%x", "%arg0").replace("%w", "%arg1").replace("%bias", "%arg2")
    other = write("other.mlir", text.replace("logistic %1", "logistic %dot"))
    golden("cli/equiv_operand.txt", different("whole.mlir", other))
    same = write("same.mlir", text)
    assert done("equiv", "whole.mlir", same).stdout.startswith("equal: ")


def test_a_composite_and_what_it_was_made_of(golden: Golden, mini: Path):
    done("opt", mini, "-p", "specialize{batch=[2],context=[8],tokens=[8]},legalize", "-o", "low.gg")
    assert done("equiv", mini, "low.gg").stdout.startswith("equal: ")
    write("wrong.gg", mini.read_text().replace("epsilon=1e-05", "epsilon=1e-04", 1))
    # Lines of our own files move with every edit.
    shown = re.sub(r"\.py:\d+", ".py:LINE", different("wrong.gg", "low.gg"))
    golden("cli/equiv_epsilon.txt", shown)


def test_one_program_of_a_module_and_its_stablehlo(mini: Path):
    done(
        "opt",
        mini,
        "-p",
        "specialize{batch=[2],context=[8],tokens=[8,16]},legalize",
        "-o",
        "low.gg",
    )
    done("lower", "low.gg", "-o", "programs/")
    for program in ("prefill.b2.s8", "decode.b2.c16"):
        for pair in (
            ("low.gg", f"programs/{program}.mlir"),
            (f"programs/{program}.mlir", "low.gg"),
        ):
            found = facts("equiv", *pair, "--program", program)
            assert (found["equal"], found["where"], found["empty"]) == (True, "", [])
    assert facts("equiv", "low.gg", "programs/decode.b2.c16.mlir")["equal"]
    shutil.copy("programs/decode.b2.c16.mlir", "alone.mlir")
    assert refused("low.gg", "alone.mlir") == (
        "error[GG0705]: several programs fit: @decode.b2.c8 with @main, @decode.b2.c16 with @main\n"
        "  help: choose one: --program\n"
    )
    # The module before all passes has symbols, which the other's types bind.
    assert done("equiv", mini, "programs/prefill.b2.s8.mlir").stdout.startswith("equal: ")


def test_all_as_json():
    other = write("other.mlir", WHOLE.replace("add %dot, %0", "subtract %dot, %0"))
    result = graphgen("equiv", "whole.mlir", other, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    first = found.pop("first")
    assert found["equal"] is False
    assert found["where"] == "y"
    left, right = first.pop("left"), first.pop("right")
    assert first["shape"] == [4, 2]
    assert (first["between"], first["joined"], first["crossed"]) == (0, False, [])
    assert (left.pop("op"), right.pop("op")) == ("%1 = add(%dot, %0)", "%1 = subtract(%dot, %0)")
    assert left.pop("value") != right.pop("value")
    assert left == right == {"file": "net.py", "line": 8, "scope": "model.bias"}


def test_ranks_are_joined_by_relations():
    given = ["--relation", "x=shard{-,@}", "--relation", "w=shard{@,-}"]
    partial = ["--relation", "y=partial{@}"]
    assert done("equiv", "product.mlir", "split.mlir", *given, *partial).stdout.startswith(
        "equal: "
    )
    # Without the sum each rank has its own part of it.
    assert different("product.mlir", "split.mlir", *given).endswith(
        "put together over the ranks it agrees\n"
    )
    assert refused("product.mlir", "split.mlir", *partial) == (
        "error[GG0205]: x is f32[4,8] in one module and f32[4,4] in the other\n"
        "  help: say how they relate: --relation 'x=shard{-,tp}'\n"
    )


def test_quantized_weights_are_rounded_and_met_within_a_tolerance():
    integer = write("integer.mlir", INTEGER)
    random = np.random.default_rng(0)
    weights = random.standard_normal((8, 2)).astype(np.float32)
    scale = np.abs(weights).max(0) / 127
    np.savez("case.npz", w=weights)
    np.savez("scale.npz", s=scale)
    held = write("held.mlir", INTEGER.replace("%scale: tensor<2xf32>", "%unused: tensor<2xf32>").replace(
        "    %2", "    %2").replace("%scale", "%held").replace(
        "  %0 = stablehlo.convert", f"  %held = stablehlo.constant dense<[{scale[0]:.9e}, {scale[1]:.9e}]> : tensor<2xf32>\n  %0 = stablehlo.convert").replace(
        ", %unused: tensor<2xf32>", ""))  # fmt: skip
    relation = "w=quantized{scale=scale.npz:s,dims=[1]}"
    arguments = ["product.mlir", held, "--inputs", "case.npz", "--relation", relation]
    assert done("equiv", *arguments, "--tolerance", "0.02").stdout.startswith("equal: ")
    assert "relative" in different(*arguments)
    assert refused("product.mlir", integer, "--relation", relation).startswith(
        "error[GG0205]: the modules differ in inputs\n"
        "   |  only in the first: none\n"
        "   |  only in the second: scale f32[2]\n"
    )


def test_rows_in_another_order_and_rows_that_do_not_matter():
    taken = PRODUCT.replace("  return %0 : tensor<4x2xf32>", """\
  %1 = stablehlo.slice %0 [1:4, 0:2] : (tensor<4x2xf32>) -> tensor<3x2xf32>
  %2 = stablehlo.slice %0 [0:1, 0:2] : (tensor<4x2xf32>) -> tensor<1x2xf32>
  %3 = stablehlo.concatenate %1, %2, dim = 0 : (tensor<3x2xf32>, tensor<1x2xf32>) -> tensor<4x2xf32>
  return %3 : tensor<4x2xf32>""")  # fmt: skip
    other = write("taken.mlir", taken)
    relation = ["--relation", "y=take{dim=0,map=[1,2,3,0]}"]
    assert done("equiv", "product.mlir", other, *relation).stdout.startswith("equal: ")
    different("product.mlir", other)
    zeros = write("zeros.mlir", taken.replace("%1, %2, dim = 0", "%1, %c, dim = 0").replace(
        "  %3 =", "  %c = stablehlo.constant dense<0.0> : tensor<1x2xf32>\n  %3 ="))  # fmt: skip
    different("product.mlir", zeros, *relation)
    hidden = ["--relation", f"{relation[1]}|dont_care{{mask=[[0],[0],[0],[1]]}}"]
    assert done("equiv", "product.mlir", zeros, *hidden).stdout.startswith("equal: ")


def test_on_the_cpu_types_are_the_programs_own():
    # 1e60 is infinite in f32, and the difference of two of them no number.
    text = PRODUCT.replace("  return %0", """\
  %c = stablehlo.constant dense<1.0e30> : tensor<4x2xf32>
  %2 = stablehlo.multiply %c, %c : tensor<4x2xf32>
  %3 = stablehlo.subtract %2, %2 : tensor<4x2xf32>
  %4 = stablehlo.add %0, %3 : tensor<4x2xf32>
  return %4""")  # fmt: skip
    rounded = write("rounded.mlir", text)
    assert done("equiv", "product.mlir", rounded).stdout.startswith("equal: ")
    assert "different: y" in different("product.mlir", rounded, "--on", "cpu")
    assert done("equiv", "whole.mlir", "whole.mlir", "--on", "cpu").stdout.startswith("equal: ")


def test_outputs_that_say_nothing_are_noted():
    text = PRODUCT.replace(
        "  return %0",
        "  %z = stablehlo.subtract %0, %0 : tensor<4x2xf32>\n  %1 = stablehlo.divide %z, %z : tensor<4x2xf32>\n  return %1",
    )
    result = done("equiv", write("a.mlir", text), write("b.mlir", text))
    assert result.stderr == "note: nothing to compare in y: no finite element; try --inputs\n"


OPEN = """\
func.func public @main(%x: tensor<?x4xf32>, %w: tensor<4x?xf32>) -> tensor<?x?xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<?x4xf32>, tensor<4x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
"""


def test_sizes_that_one_leaves_open_are_those_of_the_other():
    fixed = OPEN.replace("?x4", "3x4").replace("4x?", "4x5").replace("?x?", "3x5")
    sides = write("open.mlir", OPEN), write("fixed.mlir", fixed)
    for order in (sides, sides[::-1]):
        found = done("equiv", *order)
        assert found.stdout.startswith("equal: ")
        assert found.stderr == ""
    found = done("equiv", sides[0], sides[0])
    assert found.stderr == "note: x_0=4, w_1=4 by default; --dims sets other sizes\n"
    assert done("equiv", sides[0], sides[0], "--dims", "x_0=2,w_1=7").stderr == ""
    np.savez("case.npz", x=np.ones((2, 4), np.float32))
    assert "note: w_1=4 by" in done("equiv", sides[0], sides[0], "--inputs", "case.npz").stderr
    wanted = "error[GG0205]: x is f32[2,4] in one module and f32[3,4] in the other"
    assert refused(*sides, "--dims", "x_0=2").startswith(wanted)
    assert refused(*sides, "--dims", "n=2") == (
        "error[GG0705]: --dims: no module leaves a size 'n' open\n"
        "  --> --dims n=2\n  help: they have x_0, w_1\n"
    )


def test_what_numpy_has_not_is_compared_on_xla():
    factor = """\
HloModule factor

ENTRY %main (x: f32[2,2]) -> (f32[2,2], s32[]) {
  %x = f32[2,2]{1,0} parameter(0)
  ROOT %y = (f32[2,2]{0,1}, s32[]) custom-call(%x), custom_call_target="lapack_spotrf_ffi", \
operand_layout_constraints={f32[2,2]{0,1}}, api_version=API_VERSION_TYPED_FFI, \
backend_config={uplo = 76 : ui8}
}
"""
    name = write("factor.hlo", factor)
    found = done("equiv", name, name)
    assert found.stdout.startswith("equal: ")
    assert found.stderr.startswith("note: compiling with XLA, which knows lapack_spotrf_ffi\n")
    assert "lapack_spotrf_ffi cannot be run here" in refused(name, name, "--on", "numpy")


# As XLA writes a sort of bf16, and a root of a complex number.
OPTIMIZED = {
    "bits": """\
HloModule optimized, is_scheduled=true

%greater (p: f32[], q: f32[]) -> pred[] {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  %a = bf16[] convert(%p)
  %b = bf16[] convert(%q)
  %c = s16[] bitcast-convert(%a)
  %d = s16[] bitcast-convert(%b)
  ROOT %e = pred[] compare(%c, %d), direction=LT
}

ENTRY %main (x: f32[64]) -> f32[64] {
  %x = f32[64]{0} parameter(0)
  %n = bf16[64]{0} convert(%x)
  %w = f32[64]{0} convert(%n)
  %y = f32[64]{0} abs(%w)
  ROOT %z = f32[64]{0} sort(%y), dimensions={0}, is_stable=true, to_apply=%greater
}
""",
    "complex": """\
HloModule optimized, is_scheduled=true

ENTRY %main (x: f32[8], y: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %y = f32[8]{0} parameter(1)
  %a = f32[8]{0} multiply(%x, %x)
  %b = f32[8]{0} multiply(%y, %y)
  %c = f32[8]{0} add(%a, %b)
  ROOT %r = f32[8]{0} sqrt(%c)
}
""",
}
UNOPTIMIZED = {
    "bits": """\
func.func public @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = stablehlo.convert %x : (tensor<64xf32>) -> tensor<64xbf16>
  %1 = stablehlo.abs %0 : tensor<64xbf16>
  %2 = "stablehlo.sort"(%1) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
    %c = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<bf16>, tensor<bf16>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<64xbf16>) -> tensor<64xbf16>
  %3 = stablehlo.convert %2 : (tensor<64xbf16>) -> tensor<64xf32>
  return %3 : tensor<64xf32>
}
""",
    "complex": """\
func.func public @main(%x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.complex %x, %y : tensor<8xcomplex<f32>>
  %1 = stablehlo.abs %0 : (tensor<8xcomplex<f32>>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}
""",
}
SAID = {
    "bits": "one reads the bits of bf16: compared in their own types",
    "complex": "functions of complex numbers written out: compared on finite numbers",
}


@pytest.mark.parametrize("kind", SAID)
def test_what_xla_writes_in_another_way_is_no_difference(kind: str):
    sides = write("before.mlir", UNOPTIMIZED[kind]), write("after.hlo", OPTIMIZED[kind])
    found = done("equiv", *sides)
    assert found.stdout.startswith("equal: ")
    assert SAID[kind] in found.stderr
    wrong = OPTIMIZED[kind].replace("direction=LT", "direction=GT").replace("add(", "subtract(")
    assert graphgen("equiv", sides[0], write("wrong.hlo", wrong)).exit_code == 1


def test_mistakes_exit_with_2():
    assert refused("no.mlir", "whole.mlir").startswith("error[GG0705]: cannot read 'no.mlir': ")
    assert refused("whole.mlir", "whole.mlir", "--relation", "bais=equal") == (
        "error[GG0302]: a relation of bais, which is not an input or output of either module\n"
        "  help: did you mean bias?\n"
    )
    assert refused("whole.mlir", "whole.mlir", "--relation", "y=teke{1}").startswith(
        "error[GG0302]: cannot read the relation 'teke{1}'\n"
    )
    np.savez("case.npz", x=np.zeros((2, 2), np.float32))
    assert refused("whole.mlir", "whole.mlir", "--inputs", "case.npz") == (
        "error[GG0402]: input x must be f32[4, 8], given float32[2, 2]\n"
    )
    assert refused("whole.mlir", "whole.mlir", "--relation", "y=dont_care{mask=case.npz:m}") == (
        "error[GG0705]: 'case.npz' has no array 'm'\n  help: it has x\n"
    )
    result = graphgen("equiv", "no.mlir", "whole.mlir", "--json")
    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (2, "GG0705")
