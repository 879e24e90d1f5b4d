"""Methods called like NumPy's, JAX's or PyTorch's functions give what those give."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

import graphgen as gg
from graphgen.ir import Value

F32, S32 = gg.dtype("f32"), gg.dtype("s32")
X = np.random.default_rng(0).standard_normal((4, 3, 6)).astype(np.float32)
N = np.array(X)
N[1, 2, 3] = N[1, 0, 3] = np.nan
T = np.round(X * 2)  # With ties.
I = np.random.default_rng(1).integers(-9, 9, (3, 6)).astype(np.int32)  # noqa: E741
P = X > 0
C = (X[..., 0] + 1j * X[..., 1]).astype(np.complex64)

KINDS = {"f": "f32", "i": "s32", "b": "pred", "c": "c64"}


def computed(build: Callable[..., object], *arrays: np.ndarray) -> list[np.ndarray]:
    """What a program of these arrays gives, after it was written and read again."""
    module = gg.Module("m")
    with gg.Builder(module.add(gg.Function("main", phase="main")), module) as b:
        given = [
            b.input(f"x{place}", gg.dtype(KINDS[array.dtype.kind]), array.shape)
            for place, array in enumerate(arrays)
        ]
        made = build(b, *given)
        for place, value in enumerate([made] if isinstance(made, Value) else made):  # pyright: ignore[reportArgumentType,reportUnknownArgumentType,reportUnknownVariableType]
            b.output(f"o{place}", value)  # pyright: ignore[reportUnknownArgumentType]
    gg.verify(module)
    named = {f"x{place}": array for place, array in enumerate(arrays)}
    found = gg.parse(gg.print_module(module)).evaluate(named)
    return [np.asarray(array) for array in found.values()]


def same(build: Callable[..., object], wanted: np.ndarray, *arrays: np.ndarray) -> None:
    (found,) = computed(build, *arrays)
    wanted = np.asarray(wanted)
    assert found.shape == wanted.shape
    assert found.dtype.kind == wanted.dtype.kind
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6)


CASES: dict[str, tuple[Callable[..., object], Callable[..., object], tuple[np.ndarray, ...]]] = {
    "where": (lambda b, p, x: b.where(p, x, -x), lambda p, x: np.where(p, x, -x), (P, X)),
    "where of a number": (
        lambda b, p, x: b.where(p, 0, x),
        lambda p, x: np.where(p, np.float32(0), x),
        (P, X),
    ),
    "where broadcasts": (
        lambda b, p, x, i: b.where(p[:, :1], x, i[0]),
        lambda p, x, i: np.where(p[:, :1], x, i[0]),
        (P, X, X[0]),
    ),
    "where of a scalar": (
        lambda b, p, x: b.where(p[0, 0, 0], x, 1.0),
        lambda p, x: np.where(p[0, 0, 0], x, np.float32(1)),
        (P, X),
    ),
    "where of integers": (
        lambda b, p, i: b.where(p[0], 7, i),
        lambda p, i: np.where(p[0], 7, i),
        (P, I),
    ),
    "clip": (lambda b, x: b.clip(x, -0.5, 0.5), lambda x: np.clip(x, -0.5, 0.5), (N,)),
    "clip from below": (lambda b, x: b.clip(x, 0), lambda x: np.clip(x, 0, None), (X,)),
    "clip from above": (lambda b, x: b.clip(x, high=0), lambda x: np.clip(x, None, 0), (X,)),
    "clip by arrays": (lambda b, x: b.clip(x, x[0, 0], 1), lambda x: np.clip(x, x[0, 0], 1), (X,)),
    "clip by crossed bounds": (lambda b, x: b.clip(x, 1, -1), lambda x: np.clip(x, 1, -1), (X,)),
    "clip integers": (lambda b, i: b.clip(i, -2, 3), lambda i: np.clip(i, -2, 3), (I,)),
    "max": (lambda b, x: b.max(x, [0, -1]), lambda x: x.max((0, 2)), (X,)),
    "max kept": (lambda b, x: b.max(x, [1], keep=True), lambda x: x.max(1, keepdims=True), (N,)),
    "max of integers": (lambda b, i: b.max(i, [1]), lambda i: i.max(1), (I,)),
    "max of pred": (lambda b, p: b.max(p, [1]), lambda p: p.max(1), (P,)),
    "min": (lambda b, x: b.min(x, [1, 2]), lambda x: x.min((1, 2)), (N,)),
    "argmax": (lambda b, x: b.argmax(x, 1), lambda x: x.argmax(1).astype("i"), (X,)),
    "argmax of ties": (lambda b, x: b.argmax(x, -1), lambda x: x.argmax(-1).astype("i"), (T,)),
    "argmax of NaN": (lambda b, x: b.argmax(x, 1), lambda x: x.argmax(1).astype("i"), (N,)),
    "argmin of NaN": (lambda b, x: b.argmin(x, 1), lambda x: x.argmin(1).astype("i"), (N,)),
    "argmin kept": (
        lambda b, x: b.argmin(x, 0, keep=True),
        lambda x: x.argmin(0, keepdims=True).astype("i"),
        (T,),
    ),
    "argmax of integers": (lambda b, i: b.argmax(i, 1), lambda i: i.argmax(1).astype("i"), (I,)),
    "argmax of pred": (lambda b, p: b.argmax(p, 1), lambda p: p.argmax(1).astype("i"), (P,)),
    "argmax as bytes": (
        lambda b, x: b.argmax(x, 1, dtype=gg.dtype("s8")),
        lambda x: x.argmax(1),
        (X,),
    ),
    "cumsum": (lambda b, x: b.cumsum(x, 2), lambda x: x.cumsum(2), (X,)),
    "cumsum of a middle": (lambda b, x: b.cumsum(x, -2), lambda x: x.cumsum(1), (X,)),
    "cumsum of NaN": (lambda b, x: b.cumsum(x, 1), lambda x: x.cumsum(1), (N,)),
    "cumsum backwards": (
        lambda b, x: b.cumsum(x, 2, reverse=True),
        lambda x: x[..., ::-1].cumsum(2)[..., ::-1],
        (X,),
    ),
    "cumsum of integers": (lambda b, i: b.cumsum(i, 0), lambda i: i.cumsum(0, dtype="i"), (I,)),
    "cumsum of one": (lambda b, i: b.cumsum(i[:1], 0), lambda i: i[:1], (I,)),
    "squeeze": (lambda b, x: b.squeeze(x[:1, :, 2:3]), lambda x: x[:1, :, 2:3].squeeze(), (X,)),
    "squeeze one": (
        lambda b, x: b.squeeze(x[:1, :, 2:3], [-1]),
        lambda x: x[:1, :, 2:3].squeeze(-1),
        (X,),
    ),
    "expand dims": (
        lambda b, x: b.expand_dims(x, [0, -1, 2]),
        lambda x: np.expand_dims(x, (0, -1, 2)),
        (X,),
    ),
    "repeat": (lambda b, x: b.repeat(x, 3, 1), lambda x: x.repeat(3, 1), (X,)),
    "repeat never": (lambda b, x: b.repeat(x, 0, -1), lambda x: x.repeat(0, -1), (X,)),
    "tile": (lambda b, x: b.tile(x, [2, 1, 3]), lambda x: np.tile(x, (2, 1, 3)), (X,)),
    "tile the last": (lambda b, x: b.tile(x, [2]), lambda x: np.tile(x, 2), (X,)),
    "tile to more": (
        lambda b, i: b.tile(i, [2, 1, 1, 2]),
        lambda i: np.tile(i, (2, 1, 1, 2)),
        (I,),
    ),
    "arange": (lambda b: b.arange(5), lambda: np.arange(5), ()),
    "arange from": (lambda b: b.arange(2, 9, 3), lambda: np.arange(2, 9, 3), ()),
    "arange down": (lambda b: b.arange(5, -2, -2), lambda: np.arange(5, -2, -2), ()),
    "arange of none": (lambda b: b.arange(5, 2), lambda: np.arange(5, 2), ()),
    "arange of floats": (lambda b: b.arange(0.5, 3, 0.25), lambda: np.arange(0.5, 3, 0.25), ()),
    "arange as floats": (lambda b: b.arange(3, dtype=F32), lambda: np.arange(3.0), ()),
    "broadcast to": (
        lambda b, i: b.broadcast_to(i[:, :1], (2, 3, 4)),
        lambda i: np.broadcast_to(i[:, :1], (2, 3, 4)),
        (I,),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_like_numpy(name: str):
    build, wanted, arrays = CASES[name]
    same(build, wanted(*arrays), *arrays)  # pyright: ignore[reportArgumentType]


EQUATIONS: list[tuple[str, tuple[np.ndarray, ...]]] = [
    ("bij,jk->bik", (X, X[0].T @ X[1])),
    ("bij,bkj->bik", (X, X)),
    ("bij,bkj", (X, X)),
    ("ij,ij->i", (I, I)),
    ("i,j->ij", (X[0, 0], X[0, 1])),
    ("i,i", (X[0, 0], X[0, 1])),
    ("ij->ji", (X[0],)),
    ("ba", (X[0],)),
    ("bij->", (X,)),
    ("bij->jb", (X,)),
    ("ii->i", (X[0, :, :3],)),
    ("ii", (I[:, :3],)),
    ("bii->b", (X[:, :, :3],)),
    ("iii->i", (np.arange(27.0, dtype="f").reshape(3, 3, 3),)),
    ("...j,jk->...k", (X, X[0].T)),
    ("...ij,...kj->...ik", (X, X[0])),
    ("...,...->...", (X, X[0, 0])),
    ("...i->i...", (X,)),
    ("i...->...", (X,)),
    ("a...b,...b->a...", (X, X[0])),
    ("ij,jk,kl->il", (X[0], X[0].T, X[1])),
    ("ij,jk,k,i->", (X[0], X[0].T, X[0, :, 0], X[1, :, 0])),
    ("bhqd,bhkd->bhqk", (X.reshape(2, 2, 3, 6), X.reshape(2, 2, 3, 6))),
    (" i j , j k -> i k ", (X[0], X[0].T)),
    ("ij,ij->ij", (X[0], X[1])),
    ("ij,jk->ik", (X[0, :, :1], X[0].T)),
    ("ij,j->ij", (C, C[0])),
]


@pytest.mark.parametrize(("equation", "arrays"), EQUATIONS, ids=[e for e, _ in EQUATIONS])
def test_einsum_is_that_of_numpy(equation: str, arrays: tuple[np.ndarray, ...]):
    wanted = np.einsum(equation, *arrays)
    same(lambda b, *given: b.einsum(equation, *given), wanted, *arrays)


def test_einsum_of_symbols():
    module = gg.Module("m")
    rows = gg.symbol("B")
    with gg.Builder(module.add(gg.Function("main", phase="main")), module) as b:
        x = b.input("x", F32, (rows, 3, 6))
        b.output("y", b.einsum("bij,bkj->bik", x, x))
    assert np.allclose(np.asarray(module.evaluate(x=X)["y"]), np.einsum("bij,bkj->bik", X, X))
    assert module.function("main").outputs[0][1].shape == (rows, 3, 3)


@pytest.mark.parametrize("symbolic", [False, True])
def test_a_cumulative_sum_of_a_symbol(symbolic: bool):
    module = gg.Module("m")
    with gg.Builder(module.add(gg.Function("main", phase="main")), module) as b:
        x = b.input("x", F32, (gg.symbol("B"), 3, gg.symbol("S") if symbolic else 6))
        b.output("y", b.cumsum(x, 2))
        b.output("z", b.cumsum(x, 2, reverse=True))
        b.output("a", b.arange(x.shape[0]))
        b.output("r", b.repeat(x, 2, 0))
    found = {name: np.asarray(array) for name, array in module.evaluate(x=N).items()}
    np.testing.assert_allclose(found["y"], N.cumsum(2), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["z"], N[..., ::-1].cumsum(2)[..., ::-1], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found["a"], np.arange(4))
    np.testing.assert_array_equal(found["r"], N.repeat(2, 0))


def test_narrow_floats_are_summed_in_f32():
    ones = np.ones(3000, np.float32)

    def build(b: gg.Builder, x: Value) -> Value:
        made = b.cumsum(b.convert(x, gg.dtype("bf16")), 0)
        assert made.dtype.name == "bf16"
        return b.convert(made, F32)

    assert computed(build, ones)[0][-1] == 3008  # 3000 in bf16; a sum in bf16 stops at 256.


def test_convolutions_are_those_of_torch():
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(2)
    x = random.standard_normal((2, 4, 7, 6)).astype(np.float32)
    bias = random.standard_normal(6).astype(np.float32)
    settings = itertools.product((1, 2, (2, 1)), (0, 1, (2, 1)), (1, (1, 2)), (1, 2))
    for strides, padding, dilation, groups in settings:
        weight = random.standard_normal((6, 4 // groups, 3, 2)).astype(np.float32)
        wanted = torch.nn.functional.conv2d(
            *(torch.tensor(a) for a in (x, weight, bias)), strides, padding, dilation, groups
        )
        more = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
        (found,) = computed(lambda b, *given, more=more: b.conv2d(*given, **more), x, weight, bias)
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-5)
    weight = random.standard_normal((6, 4, 5, 3)).astype(np.float32)
    wanted = torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(weight), padding="same")
    (found,) = computed(lambda b, *given: b.conv2d(*given, padding="same"), x, weight)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-5)
    line = torch.nn.functional.conv1d(
        torch.tensor(x[:, :, 0]), torch.tensor(weight[:, :, 0]), torch.tensor(bias), 2, 1
    )
    (found,) = computed(
        lambda b, *given: b.conv1d(*given, strides=2, padding=1), x[:, :, 0], weight[:, :, 0], bias
    )
    np.testing.assert_allclose(found, line.numpy(), rtol=1e-4, atol=1e-5)


def test_group_norm_is_that_of_torch():
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(3)
    weight, bias = random.standard_normal((2, 6)).astype(np.float32)
    for shape, groups in (((2, 6, 5, 4), 3), ((2, 6), 2), ((1, 6, 7), 1), ((2, 6, 3), 6)):
        x = (random.standard_normal(shape) * 3 + 1).astype(np.float32)
        wanted = torch.nn.functional.group_norm(
            *(torch.tensor(x), groups, torch.tensor(weight), torch.tensor(bias)), 1e-4
        )
        (found,) = computed(
            lambda b, *given, groups=groups: b.group_norm(given[0], groups, *given[1:], 1e-4),
            *(x, weight, bias),
        )
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-4)
    (plain,) = computed(lambda b, x: b.group_norm(x, 3), X.reshape(2, 6, 6))
    theirs = torch.nn.functional.group_norm(torch.tensor(X.reshape(2, 6, 6)), 3)
    np.testing.assert_allclose(plain, theirs.numpy(), rtol=1e-4, atol=1e-4)


def test_scans_sums_and_places_are_those_of_jax():
    jnp = pytest.importorskip("jax.numpy")
    for method, ours in (
        ("cumsum", lambda b, x: b.cumsum(x, 1)),
        ("argmax", lambda b, x: b.argmax(x, 1)),
        ("argmin", lambda b, x: b.argmin(x, 1)),
        ("max", lambda b, x: b.max(x, [1])),
        ("min", lambda b, x: b.min(x, [1])),
    ):
        for array in (X, N, T):
            np.testing.assert_allclose(
                computed(ours, array)[0], getattr(jnp, method)(array, 1), rtol=1e-5, atol=1e-5
            )


BROADCASTS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 4), (4,)),
    ((4,), (2, 4)),
    ((2, 1), (4,)),
    ((2, 1), (1, 4)),
    ((3, 1, 4), (2, 1)),
    ((), (2, 4)),
    ((1,), (2, 0)),
    ((2, 4), (2, 4)),
]


@pytest.mark.parametrize(("one", "other"), BROADCASTS)
def test_operands_broadcast_as_in_numpy(one: tuple[int, ...], other: tuple[int, ...]):
    random = np.random.default_rng(4)
    x = random.standard_normal(one).astype(np.float32)
    y = random.standard_normal(other).astype(np.float32)
    wanted = [x + y, x - y, x * y, x / y, np.maximum(x, y), np.arctan2(x, y), x < y, x != y]
    wanted += [np.where(x < y, x, 1), np.where(x[None] < y, x, y), np.clip(x, y, y + 1)]
    found = computed(
        lambda b, x, y: [
            *(x + y, x - y, x * y, x / y, b.maximum(x, y), b.atan2(x, y), x < y),
            *(b.compare(x, y, "NE"), b.select(x < y, x, 1.0)),
            *(b.select(b.expand_dims(x, [0]) < y, x, y), b.clamp(y, x, y + 1)),
        ],
        *(x, y),
    )
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize(
    ("one", "other"),
    [((4, 3, 6), (6, 5)), ((4, 3, 6), (1, 6, 5)), ((3, 6), (4, 6, 5)), ((6,), (4, 6, 5)),
     ((2, 1, 3, 6), (4, 6, 5)), ((4, 3, 6), (6,)), ((6,), (6,)), ((6,), (6, 5))],
)  # fmt: skip
def test_products_broadcast_as_in_numpy(one: tuple[int, ...], other: tuple[int, ...]):
    random = np.random.default_rng(5)
    x = random.standard_normal(one).astype(np.float32)
    y = random.standard_normal(other).astype(np.float32)
    same(lambda b, x, y: x @ y, x @ y, x, y)


def test_symbols_broadcast_with_ones_and_with_themselves_only():
    module = gg.Module("m")
    rows, steps = gg.symbol("B"), gg.symbol("S")
    with gg.Builder(module.add(gg.Function("main", phase="main")), module) as b:
        x, y = b.input("x", F32, (rows, 1)), b.input("y", F32, (steps,))
        assert (x + y).shape == (rows, steps)
        assert (x + x).shape == (rows, 1)
        with pytest.raises(gg.GraphgenError, match="operand types differ"):
            _ = b.input("z", F32, (rows,)) + y


def test_what_is_repeated_is_written_and_nothing_else_is():
    module = gg.Module("m")
    with gg.Builder(module.add(gg.Function("main", phase="main")), module) as b:
        x, v = b.input("x", F32, (2, 4)), b.weight("v", F32, (4,))
        b.output("y", x + v)
        b.output("z", x + x)
    text = gg.print_module(module)
    assert text.count("broadcast_in_dim(%v) shape=[2,4] dimensions=[1]") == 1
    assert text.count("broadcast_in_dim") == 1
    strict = text.replace("add(%x, %0)", "add(%x, %v)")
    assert strict != text
    with pytest.raises(gg.GraphgenError, match="operand types differ"):
        gg.verify(gg.parse(strict))


def test_broadcasting_can_be_turned_off():
    module = gg.Module("m")
    function = module.add(gg.Function("main", phase="main"))
    with gg.Builder(function, module, broadcast=False) as b:
        x, v = b.input("x", F32, (2, 4)), b.weight("v", F32, (4,))
        y = b.input("y", F32, (1, 4, 3))
        for mistake in (
            lambda: x + v,
            lambda: x < v,
            lambda: b.maximum(x, v),
            lambda: b.select(x < 0, v, x),
            lambda: b.clip(x, v),
            lambda: x[None, None] @ y,
            lambda: b.while_loop(x, condition=lambda b, x: x[0, 0] < 0)(lambda b, x: x + v),
        ):
            with pytest.raises(gg.GraphgenError, match="differ"):
                mistake()
        assert (x + 1).shape == (2, 4)
        with pytest.raises(gg.GraphgenError, match="operand types differ"):
            b.op("add", x, v)


WRONG: dict[str, tuple[Callable[[gg.Builder, Value], object], str]] = {
    "shapes": (lambda b, x: x + x[:2], "operand types differ"),
    "element types": (lambda b, x: x + b.convert(x[0], gg.dtype("bf16")), "operand types differ"),
    "an op": (lambda b, x: b.op("add", x, x[0]), "operand types differ"),
    "two numbers": (lambda b, x: b.where(x > 0, 1.0, 0.0), "none of 1.0, 0.0 is a value"),
    "numbers alone": (lambda b, x: b.add(1, 2), "none of 1, 2 is a value"),
    "a condition of floats": (lambda b, x: b.where(x, x, x), "the condition must be pred"),
    "narrower": (lambda b, x: b.broadcast_to(x, (3, 6)), "does not broadcast to"),
    "no one": (lambda b, x: b.squeeze(x, [1]), "dimension 1 of f32[4,3,6] is 3, not 1"),
    "a place twice": (lambda b, x: b.expand_dims(x, [0, 0]), "dimensions [0, 0] of a result of 5"),
    "minus one time": (lambda b, x: b.repeat(x, -1, 0), "-1 is not a number of times"),
    "half a time": (lambda b, x: b.tile(x, [1, True]), "True is not a number of times"),
    "no steps": (lambda b, x: b.arange(0, 3, 0), "steps of 0"),
    "a symbol by steps": (lambda b, x: b.arange(0, gg.symbol("B"), 2), "a symbol, by 2"),
    "best of none": (lambda b, x: b.argmax(b.repeat(x, 0, 1), 1), "the best of no elements"),
    "too few labels": (lambda b, x: b.einsum("ij->i", x), "'ij' does not name the dimensions"),
    "other operands": (lambda b, x: b.einsum("ijk,jk->i", x), "it is of 2 operands, 1 are given"),
    "no such label": (lambda b, x: b.einsum("ijk->iz", x), "label z of the result is in no"),
    "a label twice": (lambda b, x: b.einsum("ijk->ii", x), "its result has a label twice"),
    "other sizes": (lambda b, x: b.einsum("ijk,jik->i", x, x), "3 in one operand, 4 in another"),
    "a diagonal": (lambda b, x: b.einsum("iij->i", x), "i is 4 in one operand, 3 in another"),
    "dots left out": (lambda b, x: b.einsum("...i->i", x), "leaves out the dimensions of ..."),
    "an equation": (lambda b, x: b.einsum("i=j", x), "it has more than letters"),
    "no image": (lambda b, x: b.conv2d(x, x), "f32[4,3,6] has not 4 dimensions"),
    "three paddings": (lambda b, x: b.conv1d(x, x, padding=[1, 2]), "not one number for 1"),
    "a word": (lambda b, x: b.conv1d(x, x, padding="full"), "padding 'full'"),
    "unequal groups": (lambda b, x: b.group_norm(x, 2), "has not 2 equal groups"),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_have_a_code_and_the_line(name: str):
    build, text = WRONG[name]
    with pytest.raises(gg.GraphgenError) as caught:
        computed(build, X)
    assert text in str(caught.value)
    assert "test_numpy_functions.py" in caught.value.where
    assert caught.value.code in ("GG0102", "GG0105")
