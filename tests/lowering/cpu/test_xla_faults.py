"""Faults of the installed XLA: shown on the program itself, worked around, or named."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from graphgen.lowering.cpu import pjrt
from tests.graphgen.cli.conftest import done

NESTED = {
    "slices": lambda x, i, j: lax.dynamic_slice(lax.dynamic_slice(x, (i,), (4,)), (j,), (1,)),
    "rank 2": lambda x, i, j: lax.dynamic_slice(
        lax.dynamic_slice(x.reshape(5, 2), (i, j), (3, 1)), (j, i), (2, 1)
    ),
    "through a reshape": lambda x, i, j: lax.dynamic_slice(
        lax.dynamic_slice(x, (i,), (4,)).reshape(4, 1), (j, 0), (1, 1)
    ),
    "three": lambda x, i, j: lax.dynamic_slice(
        lax.dynamic_slice(lax.dynamic_slice(x, (i,), (6,)), (j,), (4,)), (i,), (2,)
    ),
    "update": lambda x, i, j: lax.dynamic_update_slice(
        x,
        lax.dynamic_update_slice(lax.dynamic_slice(x, (i,), (4,)), jnp.full(2, 7.0), (j,)),
        (i,),
    ),
}


def wanted(name: str, i: int, j: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """What the specification says: each start is clamped by itself."""
    x = np.arange(10, dtype=np.float32)

    def cut(x: np.ndarray, starts: tuple[int, ...], sizes: tuple[int, ...]) -> np.ndarray:
        at = [min(max(s, 0), n - k) for s, n, k in zip(starts, x.shape, sizes, strict=True)]
        return x[tuple(slice(a, a + k) for a, k in zip(at, sizes, strict=True))]

    if name == "rank 2":
        return cut(cut(x.reshape(5, 2), (i, j), (3, 1)), (j, i), (2, 1))
    if name == "three":
        return cut(cut(cut(x, (i,), (6,)), (j,), (4,)), (i,), (2,))
    if name == "update":
        inner = cut(x, (i,), (4,)).copy()
        cut(inner, (j,), (2,))[:] = 7
        cut(x, (i,), (4,))[:] = inner
        return x
    made = cut(cut(x, (i,), (4,)), (j,), (1,))
    return made.reshape(1, 1) if name == "through a reshape" else made


@pytest.mark.parametrize("on", ["cpu", "numpy"])
@pytest.mark.parametrize("form", ["mlir", "hlo"])
@pytest.mark.parametrize("name", NESTED)
def test_starts_of_nested_slices_are_clamped(tmp_path: Path, name: str, form: str, on: str):
    path, given, saved = tmp_path / f"n.{form}", tmp_path / "in.npz", tmp_path / "out.npz"
    x = np.arange(10, dtype=np.float32)
    lowered = jax.jit(NESTED[name]).lower(x, np.int32(0), np.int32(0))
    path.write_text(lowered.as_text("hlo") if form == "hlo" else lowered.as_text())
    names = ("x.1", "i.1", "j.1") if form == "hlo" else ("arg0", "arg1", "arg2")
    for i, j in ((9, 0), (3, 5), (0, 1), (7, 3)):
        np.savez(given, **dict(zip(names, (x, np.int32(i), np.int32(j)), strict=True)))
        done("run", path, "--inputs", given, "--save", saved, "--on", on)
        with np.load(saved) as made:
            (output,) = made.values()
        np.testing.assert_array_equal(output, wanted(name, i, j))


SLICES = """func.func @main(%i: tensor<i32>, %j: tensor<i32>) -> tensor<1xi32> {
  %x = stablehlo.iota dim = 0 : tensor<10xi32>
  %0 = stablehlo.dynamic_slice %x, %i, sizes = [4] : (tensor<10xi32>, tensor<i32>) -> tensor<4xi32>
  %1 = stablehlo.dynamic_slice %0, %j, sizes = [1] : (tensor<4xi32>, tensor<i32>) -> tensor<1xi32>
  return %1 : tensor<1xi32>
}
"""
SQUARE = """func.func @main(%x: tensor<2xi8>) -> tensor<2xi1> {
  %0 = stablehlo.multiply %x, %x : tensor<2xi8>
  %1 = stablehlo.constant dense<0> : tensor<2xi8>
  %2 = stablehlo.compare LT, %0, %1, SIGNED : (tensor<2xi8>, tensor<2xi8>) -> tensor<2xi1>
  return %2 : tensor<2xi1>
}
"""
SHIFT = """func.func @main(%x: tensor<4x1xi32>) -> tensor<1x4xi32> {
  %0 = stablehlo.add %x, %x : tensor<4x1xi32>
  %1 = stablehlo.slice %0 [0:3, 0:1] : (tensor<4x1xi32>) -> tensor<3x1xi32>
  %2 = stablehlo.constant dense<1> : tensor<i32>
  %3 = stablehlo.constant dense<0> : tensor<i32>
  %4 = stablehlo.dynamic_update_slice %0, %1, %2, %3 :
      (tensor<4x1xi32>, tensor<3x1xi32>, tensor<i32>, tensor<i32>) -> tensor<4x1xi32>
  %5 = stablehlo.reshape %4 : (tensor<4x1xi32>) -> tensor<1x4xi32>
  return %5 : tensor<1x4xi32>
}
"""
CEIL = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.ceil %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""
COLUMN = np.arange(1, 5, dtype=np.int32).reshape(4, 1)
X8, TINY = np.array([12, 3], np.int8), np.array([1e-40, 0], np.float32)
# A program, its inputs, the right result and that of XLA: where they agree, a fault is gone.
FAULTS = {
    "slices": (SLICES, {"i": np.int32(9), "j": np.int32(0)}, [6], [9], ""),
    "square": (SQUARE, {"x": X8}, [True, False], [False, False], "openxla/xla#46628"),
    "shift": (SHIFT, {"x": COLUMN}, [[2, 2, 4, 6]], [[2, 2, 2, 2]], "openxla/xla#49176"),
    "ceil": (CEIL, {"x": TINY}, [1, 0], [0, 0], "ceil and floor of denormal"),
}


# What a processor does with denormals is its own.
@pytest.mark.parametrize("name", [name for name in FAULTS if name != "ceil"])
def test_the_installed_xla_has_the_fault(name: str):
    text, inputs, right, wrong, _ = FAULTS[name]
    program = pjrt.compile_text(text, 1)
    ((made,),) = pjrt.launch(program, [pjrt.put([np.asarray(x)]) for x in inputs.values()])
    assert np.asarray(made).tolist() == wrong != right


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_worked_around_or_named(tmp_path: Path, name: str):
    text, inputs, right, _, message = FAULTS[name]
    path, given, saved = tmp_path / "f.mlir", tmp_path / "in.npz", tmp_path / "out.npz"
    path.write_text(text)
    np.savez(given, **inputs)
    done("run", path, "--inputs", given, "--save", saved, "--on", "numpy")
    with np.load(saved) as made:
        assert next(iter(made.values())).tolist() == right
    shown = done("run", path, "--inputs", given, "--save", saved, "--on", "cpu").stderr
    if message:
        assert message in shown
        assert "--on numpy is right" in shown
    else:
        with np.load(saved) as made:
            assert next(iter(made.values())).tolist() == right
