"""Loops, scans and choices whose functions read values from around them, beside plain Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import graphgen as gg
from graphgen.ir import Value

F32, S32 = gg.dtype("f32"), gg.dtype("s32")
X = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
W = np.random.default_rng(1).standard_normal(3).astype(np.float32)

Result = Value | tuple[Value, ...]


def ran(build: Callable[[gg.Builder, Value, Value], Result]) -> list[np.ndarray]:
    """The outputs of a program of x [4,3] and w [3], which is also written and read again."""
    module = gg.Module("m")
    with gg.Builder(module.add(gg.Function("main", phase="main")), module) as b:
        made = build(b, b.input("x", F32, X.shape), b.weight("w", F32, W.shape))
        for place, value in enumerate([made] if isinstance(made, Value) else made):
            b.output(f"o{place}", value)
    gg.verify(module)
    again = gg.parse(gg.print_module(module))
    assert gg.print_module(again) == gg.print_module(module)
    return [np.asarray(array) for array in again.evaluate(x=X, w=W).values()]


def test_a_body_reads_values_from_around_it():
    def build(b: gg.Builder, x: Value, w: Value) -> Result:
        @b.while_loop(x, b.literal(0, S32), condition=lambda b, y, n: n < 3)
        def loop(b: gg.Builder, y: Value, n: Value):
            return y * w, n + 1

        return loop

    assert len(ran(build)) == 2
    np.testing.assert_allclose(ran(build)[0], X * W**3, rtol=1e-5)


def test_a_condition_reads_values_from_around_it_too():
    def build(b: gg.Builder, x: Value, w: Value) -> Result:
        most, by = b.literal(5, S32), b.literal(2, S32)

        @b.while_loop(b.literal(0, S32), condition=lambda b, n: n < most)
        def loop(b: gg.Builder, n: Value):
            return n + by

        return loop

    assert ran(build)[0] == 6


def test_inner_loops_read_values_of_the_outermost_program():
    def build(b: gg.Builder, x: Value, w: Value) -> Result:
        zero = b.literal(0, S32)

        @b.while_loop(x, zero, condition=lambda b, y, n: n < 2)
        def outer(b: gg.Builder, y: Value, n: Value):
            twice = n * 2

            @b.while_loop(y, zero, condition=lambda b, z, k: k < 2)
            def inner(b: gg.Builder, z: Value, k: Value):
                return z * w + b.convert(twice, F32), k + 1

            return inner[0], n + 1

        return outer[0]

    wanted = X
    for n in range(2):
        for _ in range(2):
            wanted = wanted * W + 2 * n
    np.testing.assert_allclose(ran(build)[0], wanted, rtol=1e-5)


def test_a_value_from_around_may_be_returned_and_numbers_too():
    def build(b: gg.Builder, x: Value, w: Value) -> Result:
        y = -x

        @b.while_loop(x, b.literal(0, S32), condition=lambda b, *state: state[-1] < 1)
        def loop(b: gg.Builder, *state: Value):
            return y, 1

        return loop

    np.testing.assert_array_equal(ran(build)[0], -X)


class Halve:
    """A callable with state of its own."""

    def __call__(self, b: gg.Builder, y: Value, n: Value, by: float = 0.5):
        return y * by, n + 1


def times(factor: float, b: gg.Builder, y: Value, n: Value):
    return y * factor, n + 1


def named(b: gg.Builder, y: Value, n: Value, *, factor: float):
    return y * factor, n + 1


@pytest.mark.parametrize(
    "body",
    [
        lambda b, *state: (state[0] * 0.5, state[1] + 1),
        lambda b, y, *rest: (y * 0.5, rest[0] + 1),
        lambda b, y, n, by=0.5: (y * by, n + 1),
        partial(times, 0.5),
        partial(named, factor=0.5),
        Halve(),
    ],
    ids=["all", "rest", "default", "partial", "partial by name", "callable"],
)
def test_bodies_of_any_kind(body: Callable[..., tuple[Value, Value]]):
    for condition in (
        lambda b, *_: _[-1] < 3,
        lambda b, y, *rest: rest[0] < 3,
        lambda b, y, n, most=3: n < most,
        partial(lambda most, b, y, n: n < most, 3),
    ):

        def build(b: gg.Builder, x: Value, w: Value, condition: Callable[..., Value] = condition):
            return b.while_loop(x, b.literal(0, S32), condition=condition)(body)

        np.testing.assert_allclose(ran(build)[0], X / 8)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (lambda b: (), "takes 0 values, the state has 2"),
        (lambda b, y: y, "takes 1 values, the state has 2"),
        (
            lambda b, y, n, *, factor: (y, n),
            "missing a required (keyword-only )?argument: 'factor'",
        ),
        (lambda b, y, n: None, "returns nothing, the state is f32"),
        (lambda b, y, n: y, r"returns f32\[4,3\], the state is f32\[4,3\], s32\[\]"),
        (lambda b, y, n: (y, "n"), "result 2 is 'n', which is not a value"),
        (lambda b, y, n: (y, b.output("z", n)), "have no outputs, such as z"),
        (lambda b, y, n: (y * b.weight("v", F32, (3,)), n), "has no module to declare v in"),
        (7, "7 is not a function"),
    ],
)
def test_bodies_that_do_not_fit(body: Callable[..., tuple[Value, Value]], text: str):
    def build(b: gg.Builder, x: Value, w: Value) -> Result:
        return b.while_loop(x, b.literal(0, S32), condition=lambda b, y, n: n < 3)(body)

    with pytest.raises(gg.GraphgenError, match=text) as caught:
        ran(build)
    assert "test_control_flow.py" in caught.value.where


def test_a_value_of_another_program_is_no_value_from_around():
    other = gg.Module("other")
    with gg.Builder(other.add(gg.Function("elsewhere", phase="main")), other) as b:
        foreign = b.input("foreign", F32, (3,))

    def build(b: gg.Builder, x: Value, w: Value) -> Result:
        return b.while_loop(x, condition=lambda b, y: y[0, 0] < 3)(lambda b, y: y * foreign)

    with pytest.raises(gg.GraphgenError, match="%foreign is not a value of @main"):
        ran(build)


def test_a_scan_is_jax_scan():
    jax = pytest.importorskip("jax")

    for reverse in (False, True):

        def build(b: gg.Builder, x: Value, w: Value, reverse: bool = reverse) -> Result:
            @b.scan(w, over=[x], reverse=reverse)
            def steps(b: gg.Builder, h: Value, u: Value):
                h = h * 0.5 + u * w
                return h, (h, b.sum(h, [0]))

            (last,), stacked = steps
            return last, *stacked

        def step(h: np.ndarray, u: np.ndarray):
            h = h * 0.5 + u * W
            return h, (h, h.sum())

        last, stacked = jax.lax.scan(step, W, X, reverse=reverse)
        for found, wanted in zip(ran(build), (last, *stacked), strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_scans_of_odd_shapes():
    def build(b: gg.Builder, x: Value, w: Value) -> Result:
        counts = b.arange(4)
        none_carried = b.scan(over=[x, counts])(lambda b, u, n: ((), u + b.convert(n, F32)))
        none_stacked = b.scan(counts[0], over=[counts])(lambda b, h, n: (h + n, ()))
        over_nothing = b.scan(w, over=[b.full(0.0, gg.tensor(F32, (0, 3)))])(
            lambda b, h, u: (h + u, (u, b.compare(u, h, "LT")))
        )
        assert not none_carried[0]
        assert not none_stacked[1]
        return none_carried[1][0], none_stacked[0][0], over_nothing[0][0], *over_nothing[1]

    found = ran(build)
    np.testing.assert_allclose(found[0], X + np.arange(4)[:, None], rtol=1e-6)
    assert found[1] == 6
    np.testing.assert_array_equal(found[2], W)
    assert [array.shape for array in found[3:]] == [(0, 3), (0, 3)]
    assert found[4].dtype == bool


def test_a_scan_over_a_symbol():
    module = gg.Module("m")
    with gg.Builder(module.add(gg.Function("main", phase="main")), module) as b:
        x = b.input("x", F32, (gg.symbol("S"), 3))
        found = b.scan(b.full(0.0, gg.tensor(F32, (3,))), over=[x], reverse=True)(
            lambda b, h, u: (h + u, h + u)
        )
        b.output("y", found[1][0])
    gg.verify(module)
    out = np.asarray(module.evaluate(x=X)["y"])
    np.testing.assert_allclose(out, X[::-1].cumsum(0)[::-1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda b, x, w: b.scan(w, over=[x])(lambda b, h, u: h)[0], "returns no pair"),
        (lambda b, x, w: b.scan(w, over=[x])(lambda b, h, u: (u[:2], ())), "carries on f32"),
        (lambda b, x, w: b.scan(over=[x, w])(lambda b, u, v: ((), u))[1], "different sizes"),
        (lambda b, x, w: b.scan(over=[])(lambda b: ((), ()))[1], "a scan over no values"),
        (lambda b, x, w: b.scan(over=[x[0, 0]])(lambda b, u: ((), u))[1], r"over f32\[\]"),
        (lambda b, x, w: b.scan(over=x)(lambda b, u: ((), u))[1], "%x is one value"),
    ],
)
def test_scans_that_do_not_fit(build: Callable[[gg.Builder, Value, Value], Result], text: str):
    with pytest.raises(gg.GraphgenError, match=text) as caught:
        ran(build)
    assert "test_control_flow.py" in caught.value.where


def test_choices():
    def build(b: gg.Builder, x: Value, w: Value) -> Result:
        positive = b.sum(w, [0]) > 0
        either = b.cond(positive, lambda b, x: x * w, lambda b, x: x - w, x)
        other = b.cond(b.not_(positive), lambda b: (x, w), lambda b: (-x, -w))
        third = b.switch(b.literal(1, S32), [lambda b, y: y, lambda b, y: y * 2.0], w)
        beyond = b.switch(b.literal(9, S32), [lambda b: w, lambda b: w * 2.0, lambda b: -w])
        return either, *other, third, beyond

    found = ran(build)
    positive = W.sum() > 0
    np.testing.assert_allclose(found[0], X * W if positive else X - W, rtol=1e-6)
    np.testing.assert_array_equal(found[1], -X if positive else X)
    np.testing.assert_array_equal(found[2], -W if positive else W)
    np.testing.assert_array_equal(found[3], W * 2)
    np.testing.assert_array_equal(found[4], -W)


def test_choices_inside_of_loops_read_both():
    def build(b: gg.Builder, x: Value, w: Value) -> Result:
        @b.while_loop(x, b.literal(0, S32), condition=lambda b, y, n: n < 4)
        def loop(b: gg.Builder, y: Value, n: Value):
            odd = b.compare(b.and_(n, 1), 1, "EQ")
            return b.cond(odd, lambda b: y * w, lambda b: y + w), n + 1

        return loop[0]

    wanted = ((X + W) * W + W) * W
    np.testing.assert_allclose(ran(build)[0], wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda b, x, w: b.cond(w[0] > 0, lambda b: x, lambda b: w),
            r"returns f32\[3\], the first",
        ),
        (lambda b, x, w: b.cond(w > 0, lambda b: x, lambda b: x), r"chooses by pred\[\]"),
        (lambda b, x, w: b.cond(True, lambda b: x, lambda b: x), "True, which is not a value"),
        (lambda b, x, w: b.cond(w[0] > 0, lambda b, y: y, lambda b: x, x), "takes 0 values, it is"),
        (lambda b, x, w: b.switch(b.literal(0, S32), []), "between no functions"),
    ],
)
def test_choices_that_do_not_fit(build: Callable[[gg.Builder, Value, Value], Result], text: str):
    with pytest.raises(gg.GraphgenError, match=text) as caught:
        ran(build)
    assert "test_control_flow.py" in caught.value.where


def test_loops_and_choices_compiled_by_xla_give_the_same():
    from graphgen.lowering.cpu import compile_program
    from graphgen.passes.core import parse_pipeline, run_pipeline

    module = gg.Module("m")
    with gg.Builder(module.add(gg.Function("main", phase="main")), module) as b:
        x, w = b.input("x", F32, X.shape), b.weight("w", F32, W.shape)

        @b.scan(w, over=[x])
        def steps(b: gg.Builder, h: Value, u: Value):
            h = b.cond(b.sum(u, [0]) > 0, lambda b: h * w, lambda b: h + u)
            return h, h

        b.output("last", steps[0][0])
        b.output("all", steps[1][0])
    wanted = module.evaluate(x=X, w=W)
    run_pipeline(module, parse_pipeline("canonicalize,cse,legalize,dce"))
    (found,) = compile_program(module, module.function("main")).run_numpy([{"x": X, "w": W}])
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], np.asarray(array), rtol=1e-5, atol=1e-6)


def test_a_state_that_is_only_read_is_kept():
    module = gg.Module("m")
    with gg.Builder(module.add(gg.Function("main", phase="main")), module) as b:
        x, kept = b.input("x", F32, (3,)), b.state("kept", F32, (3,))
        changed = b.state("changed", F32, (3,))
        b.set_state(changed, changed + x)
        b.output("y", x + kept)
        with pytest.raises(gg.GraphgenError, match="sets the state changed twice"):
            b.set_state(changed, x)
        with pytest.raises(gg.GraphgenError, match="%x is not a state"):
            b.set_state(x, kept)
    gg.verify(module)
    assert [name for name, _ in module.function("main").outputs] == ["kept", "changed", "y"]
    found = module.evaluate(x=[1, 2, 3], kept=[1, 1, 1], changed=[0, 0, 1])
    assert [np.asarray(found[name]).tolist() for name in ("kept", "changed", "y")] == [
        [1, 1, 1],
        [1, 2, 4],
        [2, 3, 4],
    ]


def test_other_fixed_sizes_name_both_places_and_the_symbol():
    module = gg.Module("m")
    with gg.Builder(module.add(gg.Function("prefill", phase="prefill")), module) as b:
        b.output("y", b.input("x", F32, (8, 4)))
    with (
        gg.Builder(module.add(gg.Function("decode", phase="decode")), module) as b,
        pytest.raises(gg.GraphgenError) as caught,
    ):
        b.input("x", F32, (1, 4))
    text = str(caught.value)
    assert text.count("test_control_flow.py:") == 2
    assert "gg.symbol('N')" in text
    assert "dims={'N': 1}" in text


def test_the_advice_on_fixed_sizes_works():
    module = gg.Module("m")
    for phase, size in (("prefill", 8), ("decode", 1)):
        function = module.add(gg.Function(phase, phase=phase, dims={"N": size}))
        with gg.Builder(function, module) as b:
            x = b.input("x", F32, (gg.symbol("N"), 4))
            b.output("y" + phase, x + x)
    gg.verify(module)
    assert [f.args[0].shape for f in module.programs()] == [(8, 4), (1, 4)]
