"""What NumPy has as one function, built as a few ops and compared with NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import graphgen as gg
from graphgen.ir import Value

F32, S32 = gg.dtype("f32"), gg.dtype("s32")
X = np.random.default_rng(0).standard_normal((4, 3, 6)).astype(np.float32)
Y = np.random.default_rng(1).standard_normal((4, 6, 5)).astype(np.float32)
IDS = np.array([[2, 0], [1, 3]], np.int32)

Build = Callable[[gg.Builder, Value, Value, Value], Value]
CASES: dict[str, tuple[Build, np.ndarray]] = {
    "matmul": (lambda b, x, y, i: x @ y, X @ Y),
    "matmul with a matrix": (lambda b, x, y, i: x @ y[0], X @ Y[0]),
    "matmul of vectors": (lambda b, x, y, i: x[0, 0] @ y[0, :, 0], X[0, 0] @ Y[0, :, 0]),
    "integers": (lambda b, x, y, i: x[1, -1], X[1, -1]),
    "slices": (lambda b, x, y, i: x[1:3, :, -2:], X[1:3, :, -2:]),
    "steps": (lambda b, x, y, i: x[::2, 0, 1:6:2], X[::2, 0, 1:6:2]),
    "dots": (lambda b, x, y, i: x[..., 0], X[..., 0]),
    "new dimensions": (lambda b, x, y, i: x[None, :, 1, None], X[None, :, 1, None]),
    "ids": (lambda b, x, y, i: x[i], X[IDS]),
    "minus": (lambda b, x, y, i: -x, -X),
    "power": (lambda b, x, y, i: (x * x) ** 0.5, np.abs(X)),
    "choice": (lambda b, x, y, i: b.select(x > 0, x, -x), np.abs(X)),
    "at most": (lambda b, x, y, i: b.convert(x <= 0.5, F32), (X <= 0.5).astype("f")),
    "number on the left": (lambda b, x, y, i: b.convert(x < 0.5, F32), (X < 0.5).astype("f")),
    "reshape": (lambda b, x, y, i: b.reshape(x, (-1, 6)), X.reshape(-1, 6)),
    "sum": (lambda b, x, y, i: b.sum(x, [0, -1]), X.sum((0, 2))),
    "mean": (lambda b, x, y, i: b.mean(x, [1]), X.mean(1)),
    "mean kept": (lambda b, x, y, i: b.mean(x, [-1], keep=True), X.mean(-1, keepdims=True)),
    "variance": (lambda b, x, y, i: b.var(x, [0, 2]), X.var((0, 2))),
    "softmax": (
        lambda b, x, y, i: b.softmax(x, 1),
        np.exp(X) / np.exp(X).sum(1, keepdims=True),
    ),
    "one hot": (lambda b, x, y, i: b.one_hot(i, 4), np.eye(4, dtype="f")[IDS]),
    "split": (lambda b, x, y, i: b.split(x, 2, -1)[1], X[..., 3:]),
    "split by sizes": (lambda b, x, y, i: b.split(x, [1, 2, 3], 2)[1], X[..., 1:3]),
    "stack": (lambda b, x, y, i: b.stack([x[0], x[2]], 1), np.stack([X[0], X[2]], 1)),
}


def built(build: Build) -> gg.Module:
    module = gg.Module("m")
    with gg.Builder(module.add(gg.Function("main", phase="main")), module) as b:
        x, y = b.input("x", F32, X.shape), b.input("y", F32, Y.shape)
        b.output("out", build(b, x, y, b.input("ids", S32, IDS.shape)))
    gg.verify(module)
    return module


@pytest.mark.parametrize("name", CASES)
def test_like_numpy(name: str):
    build, wanted = CASES[name]
    module = built(build)
    out = np.asarray(module.evaluate(x=X, y=Y, ids=IDS)["out"])
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-6)
    assert gg.parse(gg.print_module(module)).functions.keys() == module.functions.keys()


def test_symbols_are_indexed_and_completed():
    module = gg.Module("m")
    rows = gg.symbol("B")
    with gg.Builder(module.add(gg.Function("main", phase="main")), module) as b:
        x = b.input("x", F32, (rows, 6))
        assert list(x[1:].shape) == [rows - 1, 6]
        assert x[-1].shape == (6,)
        assert b.reshape(x, (-1, 2, 3)).shape == (rows, 2, 3)
        assert (x @ b.input("w", F32, (6, 2))).shape == (rows, 2)


WRONG = {
    "an index outside": (lambda b, x: x[9], "index 9 of a dimension of 4"),
    "too many": (lambda b, x: x[0, 0, 0, 0], "has 3 dimensions, indexed by 4"),
    "a word": (lambda b, x: x["a"], "'a', which is not an index"),
    "backwards": (lambda b, x: x[::-1], "step -1"),
    "nothing": (lambda b, x: x[2:2], "of a dimension of 4 is empty"),
    "an array in a product": (lambda b, x: x @ 3, "3 in a product is not a value"),
    "leading sizes": (lambda b, x: x @ x[1:], "leading sizes differ"),
    "contracted sizes": (lambda b, x: x @ x, "contracting dims differ"),
    "a string": (lambda b, x: x + "a", "'a' is not a number"),
    "a comparison with a string": (lambda b, x: x < "a", "'a' is not a number"),
    "a chain": (lambda b, x: 0 < x < 5, "not known while the graph is built"),
    "no size": (lambda b, x: b.reshape(x, (-1, 5)), "no size for -1"),
    "unequal parts": (lambda b, x: b.split(x, 4, 2), "is not 4 equal parts"),
    "other sizes": (lambda b, x: b.split(x, [1, 2], 2), "[1, 2] is 3 of the 6"),
    "an empty stack": (lambda b, x: b.stack([]), "a stack of no values"),
    "no such dimension": (lambda b, x: b.mean(x, [3]), "dim 3 of f32[4,3,6] does not exist"),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_have_a_code_the_line_and_the_operands(name: str):
    build, text = WRONG[name]
    with pytest.raises(gg.GraphgenError) as caught:
        built(lambda b, x, y, i: build(b, x))  # pyright: ignore[reportArgumentType]
    shown = str(caught.value)
    assert text in shown
    assert "test_array_methods.py" in shown
    assert caught.value.code in ("GG0105", "GG0705")


def test_outside_of_a_builder_values_are_true():
    values: list[Value] = []
    built(lambda b, x, y, i: values.append(x > 0) or x)
    assert bool(values[0])


def test_a_loop_by_a_decorator():
    module = gg.Module("m")
    with gg.Builder(module.add(gg.Function("main", phase="main")), module) as b:
        x, step = b.input("x", F32, (3,)), b.input("step", F32, (3,))
        start = b.full(0, gg.tensor(S32, ()))

        @b.while_loop(start, x, step, condition=lambda b, i, x, step: i < 4, trip_count=4)
        def loop(b: gg.Builder, i: Value, x: Value, step: Value):
            return i + 1, x * 2.0 + step, step

        b.output("y", loop[1])
    gg.verify(module)
    assert list(module.interface) == ["x", "step", "y"]
    assert list(module.functions) == ["main.loop.condition", "main.loop", "main"]
    out = np.asarray(module.evaluate(x=[1.0, 2, 3], step=[1.0, 0, 0])["y"])
    np.testing.assert_allclose(out, [16 + 15, 32, 48])
    assert gg.print_module(gg.parse(gg.print_module(module))) == gg.print_module(module)


def test_loops_inside_of_loops():
    module = gg.Module("m")
    with gg.Builder(module.add(gg.Function("main", phase="main")), module) as b:
        zero = b.full(0, gg.tensor(S32, ()))

        @b.while_loop(zero, b.input("x", F32, ()), condition=lambda b, i, x: i < 3)
        def outer(b: gg.Builder, i: Value, x: Value):
            @b.while_loop(b.full(0, i.type), x, condition=lambda b, j, x: j < 2)
            def inner(b: gg.Builder, j: Value, x: Value):
                return j + 1, x + 1.0

            return i + 1, inner[1]

        b.output("y", outer[1])
    gg.verify(module)
    assert float(np.asarray(module.evaluate(x=0.0)["y"])) == 6


def test_loops_that_do_not_fit():
    module = gg.Module("m")
    with gg.Builder(module.add(gg.Function("main", phase="main")), module) as b:
        x = b.input("x", F32, (3,))
        with pytest.raises(gg.GraphgenError, match=r"returns f32\[2\], the state is f32\[3\]"):
            b.while_loop(x, condition=lambda b, x: x[0] < 4)(lambda b, x: x[:2])
        with pytest.raises(gg.GraphgenError, match=r"is pred\[3\], not pred\[\]"):
            b.while_loop(x, condition=lambda b, x: x < 4)(lambda b, x: x)
        with pytest.raises(gg.GraphgenError, match="takes 2 values, the state has 1"):
            b.while_loop(x, condition=lambda b, x: x[0] < 4)(lambda b, x, y: x)
    assert list(module.functions) == ["main"]
