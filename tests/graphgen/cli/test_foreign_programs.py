"""Files of other compilers on the command line: every command reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.graphgen.cli.conftest import done, error, facts

JITTED = """\
module @jit_f attributes {mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>, %cache: tensor<4x2xf32> {tf.aliasing_output = 1 : i32}) -> (tensor<4x2xf32>, tensor<4x2xf32>) {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
    %1 = stablehlo.add %0, %cache : tensor<4x2xf32>
    %2 = call @scaled(%1) : (tensor<4x2xf32>) -> tensor<4x2xf32>
    return %2, %1 : tensor<4x2xf32>, tensor<4x2xf32>
  }
  func.func private @scaled(%arg0: tensor<4x2xf32>) -> tensor<4x2xf32> {
    %cst = stablehlo.constant dense<3.0> : tensor<4x2xf32>
    %0 = stablehlo.multiply %arg0, %cst : tensor<4x2xf32>
    return %0 : tensor<4x2xf32>
  }
}
"""  # noqa: E501


@pytest.fixture
def jitted(tmp_path: Path) -> Path:
    path = tmp_path / "f.mlir"
    path.write_text(JITTED)
    return path


def test_a_program_runs_as_it_stands_on_both(jitted: Path):
    ours, theirs = (facts("run", jitted, "--on", on) for on in ("numpy", "cpu"))
    assert [output["name"] for output in ours["outputs"]] == ["result.0", "cache"]
    assert [output["role"] for output in ours["outputs"]] == ["output", "state"]
    for one, other in zip(ours["outputs"], theirs["outputs"], strict=True):
        assert one["mean"] == pytest.approx(other["mean"], rel=1e-5)
        assert one["std"] > 0
    first, state = (output["mean"] for output in ours["outputs"])
    assert first == pytest.approx(3 * state)


def test_passes_go_over_it_and_their_result_is_a_module(jitted: Path, tmp_path: Path):
    out = tmp_path / "f.gg"
    done("opt", jitted, "-p", "canonicalize,cse,dce", "-o", out)
    assert "%0 = dot_general(%x, %w)" in out.read_text()
    assert done("equiv", jitted, out).stdout.startswith("equal: ")


def test_lowering_it_gives_it_back(jitted: Path, tmp_path: Path):
    first, second = tmp_path / "a.mlir", tmp_path / "b.mlir"
    assert done("lower", jitted, "-o", first).stderr == f"note: wrote {first}\n"
    done("lower", first, "-o", second)
    assert second.read_text() == first.read_text()
    assert "tf.aliasing_output = 1" in second.read_text()


def test_a_lowered_model_runs_as_before(mini: Path, tmp_path: Path):
    lowered, text = tmp_path / "lowered.gg", tmp_path / "prefill.mlir"
    done("opt", mini, "-p", "specialize{batch=[1],context=[8],tokens=[8]},legalize", "-o", lowered)
    done("lower", lowered, "--program", "prefill.b1.s8", "-o", text)
    before = facts("run", lowered, "--program", "prefill.b1.s8")
    after = facts("run", text)
    assert [o["name"] for o in after["outputs"]] == [o["name"] for o in before["outputs"]]
    assert [o["type"] for o in after["outputs"]] == [o["type"] for o in before["outputs"]]


def test_a_mistake_in_it_is_told_with_its_place(tmp_path: Path):
    path = tmp_path / "f.mlir"
    path.write_text(JITTED.replace("stablehlo.add %0, %cache", "stablehlo.add %0, %x"))
    assert error("run", path).startswith(
        "error[GG0105]: add: operand types differ: f32[4,2] and f32[4,8]\n"
        f"  --> {path}:4:5\n"
    )  # fmt: skip


CHOLESKY = """\
module @jit_g {
  func.func public @main(%x: tensor<3x3xf32>) -> tensor<3x3xf32> {
    %0 = "stablehlo.cholesky"(%x) <{lower = true}> : (tensor<3x3xf32>) -> tensor<3x3xf32>
    return %0 : tensor<3x3xf32>
  }
}
"""


def test_linear_algebra_runs_here_and_by_xla(tmp_path: Path):
    path, proto = tmp_path / "g.mlir", tmp_path / "g.pb"
    given, saved = tmp_path / "in.npz", tmp_path / "out.npz"
    path.write_text(CHOLESKY)
    (program,) = facts("inspect", path)["programs"]
    assert program["opaque"] == {}
    (name,) = [value["name"] for value in program["arguments"]["inputs"]["values"]]
    root = np.tril(np.arange(1.0, 10.0, dtype=np.float32).reshape(3, 3))
    arrays: dict[str, Any] = {name: root @ root.T}
    np.savez(given, **arrays)
    for on in ("numpy", "cpu"):
        ran = facts("run", path, "--inputs", given, "--save", saved, "--on", on)
        assert (ran["on"], ran["outputs"][0]["type"]) == (on, "f32[3,3]")
        with np.load(saved) as found:
            (made,) = found.values()
        np.testing.assert_allclose(made, root, rtol=1e-4, atol=1e-4)
    done("lower", path, "--to", "hlo", "-o", proto)
    assert done("diff", path, proto).stdout.startswith("equal: ")


def test_ops_of_nobody_are_still_named(tmp_path: Path):
    path = tmp_path / "f.mlir"
    add, of = "stablehlo.add %0, %cache :", "(tensor<4x2xf32>, tensor<4x2xf32>) ->"
    path.write_text(JITTED.replace(add, f'"stablehlo.frobnicate"(%0, %cache) : {of}'))
    assert error("inspect", path).startswith(
        "error[GG0103]: stablehlo.frobnicate is not modelled\n"
    )


def test_a_program_that_calls_functions_runs_as_before(mini: Path, tmp_path: Path):
    flat, outlined, proto = (tmp_path / name for name in ("flat.gg", "outlined.gg", "outlined.pb"))
    pipeline = "specialize{batch=[1],context=[8],tokens=[8]},legalize,cse,dce"
    done("opt", mini, "-p", pipeline, "-o", flat)
    done("opt", flat, "-p", "outline-layers", "-o", outlined)
    done("lower", outlined, "--program", "decode.b1.c8", "--to", "hlo", "-o", proto)
    before = facts("run", flat, "--program", "decode.b1.c8")
    after = facts("run", outlined, "--program", "decode.b1.c8")
    assert before["outputs"] == after["outputs"]
    assert len(facts("run", proto)["outputs"]) == len(after["outputs"])
    assert done("diff", flat, proto, "--program", "decode.b1.c8").stdout.startswith("equal: ")
