"""The compiler that is wrong is named, its program made small, and that fails again as a file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import graphgen as gg
from graphgen.cli.triage_cmd import _read  # pyright: ignore[reportPrivateUsage]
from graphgen.errors import GraphgenError
from graphgen.exec import NumpyBackend
from graphgen.exec.backend import Backend
from graphgen.ir import Function, Module, Op
from graphgen.lowering.backends.named import XlaBackend
from graphgen.lowering.backends.triage import (
    CRASHES,
    REFUSES,
    RIGHT,
    WRONG,
    CompilerVerdict,
    Triage,
)
from graphgen.lowering.backends.triage_report import FileReproducer, reproducer_of
from graphgen.lowering.cpu.isolated_run import CompilerCrashError
from graphgen.lowering.stablehlo import read_stablehlo
from tests.lowering.backends.stand_in import FAULTS, stand_in

F32, S32, S8 = gg.dtype("f32"), gg.dtype("s32"), gg.dtype("s8")
NESTED = """
func.func @main(%buf: tensor<10xf32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<1xf32> {
  %0 = stablehlo.dynamic_slice %buf, %i, sizes = [4] : \
(tensor<10xf32>, tensor<i32>) -> tensor<4xf32>
  %1 = stablehlo.dynamic_slice %0, %j, sizes = [1] : (tensor<4xf32>, tensor<i32>) -> tensor<1xf32>
  return %1 : tensor<1xf32>
}
"""


def program() -> tuple[Module, Function]:
    """A program with an op for each planted fault, which all reach its outputs."""
    module = gg.Module("m")
    function = module.add(gg.Function("main", phase="main"))
    with gg.Builder(function, module) as b:
        x, w = b.input("x", F32, (4, 6)), b.input("w", F32, (6, 4))
        at, bytes_ = b.input("at", S32, ()), b.input("bytes", S8, (4,))
        product = b.tanh(x) @ w
        turned = b.transpose(b.reshape(product, (2, 8)), [1, 0])
        joined = b.concatenate([turned, b.floor(turned * 2.0)], 0)
        parts = b.dynamic_slice(joined, [at, b.literal(0, S32)], (8, 2))
        parts = b.dynamic_slice(parts, [at, b.literal(0, S32)], (4, 2))
        chosen = b.select(parts < 0, parts * 3.0, b.maximum(parts, -parts * 0.5))
        b.output("sums", b.sum(chosen, [1]))
        b.output("whole", b.convert(b.negate(b.tanh(turned)) * 5.0, S32))
        b.output("squares", b.multiply(bytes_, bytes_))
        b.output("joined", b.maximum(joined, 0.25))
        b.output("less", b.compare(bytes_, 1, "LT"))
    gg.verify(module)
    return module, function


def verdicts(
    backends: dict[str, Backend],
    made: tuple[Module, Function],
    arrays: dict[str, np.ndarray] | None = None,
) -> tuple[Triage, dict[str, CompilerVerdict]]:
    judge = Triage(backends)
    return judge, {each.name: each for each in judge.run(*made, arrays or {})}


def small(judge: Triage, made: tuple[Module, Function], verdict: CompilerVerdict) -> FileReproducer:
    smallest, shown = judge.minified(*made, verdict, lambda round: None, lambda ops, checks: None)
    return reproducer_of(judge, smallest, shown, _read)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named_and_made_small(name: str):
    made = program()
    judge, found = verdicts({"right": NumpyBackend(), "planted": stand_in(FAULTS[name])}, made)
    assert found["right"].state == RIGHT
    assert found["planted"].state == WRONG
    assert found["planted"].difference is not None
    reproducer = small(judge, made, found["planted"])
    assert reproducer.ops <= 3
    assert reproducer.shown is not None
    assert reproducer.shown.state == WRONG
    assert list(reproducer.files) == ["program.mlir", "inputs.npz", "report.md"]
    report = reproducer.files["report.md"].decode()
    assert report.startswith(f"# planted: wrong for {reproducer.ops} ops\n")
    assert "$ graphgen triage program.mlir --inputs inputs.npz --on planted" in report


def test_two_that_are_wrong_alike_are_named():
    fault = stand_in(FAULTS["floor rounds to zero"])
    other = stand_in(FAULTS["a square saturates"])
    _, found = verdicts({"one": fault, "two": fault, "other": other}, program())
    assert [found[name].state for name in ("one", "two", "other")] == [WRONG] * 3
    assert [found[name].agrees for name in ("one", "two", "other")] == [("two",), ("one",), ()]


class Raising:
    """Refuses, or ends at, a program with an op of this name."""

    def __init__(self, op: str, error: GraphgenError) -> None:
        self._op, self._error = op, error

    def __call__(
        self, module: Module, function: Function, inputs: object
    ) -> list[dict[str, np.ndarray]]:
        if any(op.name == self._op for op in function.block):
            raise self._error
        return NumpyBackend()(module, function, inputs)  # pyright: ignore[reportArgumentType]

    def noise(self, module: Module) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (GraphgenError("GG0401", "XLA refuses the program: no floor of 4 numbers"), REFUSES),
        (CompilerCrashError("GG0401", "@main ended the process"), CRASHES),
    ],
)
def test_refusals_and_crashes_are_made_small(error: GraphgenError, state: str):
    made = program()
    judge, found = verdicts({"raising": Raising("floor", error)}, made)
    assert found["raising"].state == state
    assert found["raising"].error is error
    reproducer = small(judge, made, found["raising"])
    assert reproducer.ops == 1
    assert reproducer.shown is not None
    assert b"stablehlo.floor" in reproducer.files["program.mlir"]


def test_a_wide_sum_in_another_order_is_rounding():
    module = gg.Module("m")
    function = module.add(gg.Function("main", phase="main"))
    with gg.Builder(function, module) as b:
        x = b.input("x", F32, (3000,))
        b.output("sum", b.sum(x, [0]))

    def backwards(op: Op, x: Sequence[np.ndarray], y: np.ndarray) -> np.ndarray:
        return np.asarray(np.cumsum(x[0][::-1], dtype=np.float32)[-1])

    judge = Triage({"order": stand_in(backwards)}, tolerance=64 * 2.0**-23)
    (found,) = judge.run(module, function, {})
    assert found.state == RIGHT


def test_the_slices_of_xla():
    """NumPy gives 6; XLA adds both starts without the clamp in between and gives 9."""
    module = read_stablehlo(NESTED, "nested.mlir")
    made = module, module.programs()[0]
    given = {"buf": np.arange(10, dtype=np.float32), "i": np.int32(9), "j": np.int32(0)}
    arrays = {name: np.asarray(array) for name, array in given.items()}
    judge, found = verdicts({"xla": XlaBackend()}, made, arrays)
    difference = found["xla"].difference
    assert found["xla"].state == WRONG
    assert difference is not None
    assert (difference.expected, difference.found) == ("6", "9")
    reproducer = small(judge, made, found["xla"])
    assert reproducer.ops == 2
    assert reproducer.shown is not None


def test_the_slices_of_xla_are_found_without_inputs():
    module = read_stablehlo(NESTED, "nested.mlir")
    _, found = verdicts({"xla": XlaBackend()}, (module, module.programs()[0]))
    assert found["xla"].state == WRONG
