"""Public reports of wrong results: what triage says of each with the installed compilers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from graphgen.cli.triage_cmd import _read  # pyright: ignore[reportPrivateUsage]
from graphgen.lowering.backends.named import backend_called, has_iree
from graphgen.lowering.backends.triage import REFUSES, RIGHT, WRONG, Triage
from graphgen.lowering.backends.triage_report import reproducer_of
from graphgen.lowering.runnable import runnable
from graphgen.lowering.stablehlo import read_stablehlo

jax = pytest.importorskip("jax")
jnp = jax.numpy


def gradient(loc: Any, scale: Any) -> Any:
    def f(given: Any) -> Any:
        x = given[0] + given[1] * jnp.array([-1.5, 0.0])
        one = 0.5 * ((jnp.linalg.norm(x, axis=-1) - 2) / 0.4) ** 2
        two = -0.5 * ((x[..., :1] + jnp.array([-2.0, 2.0])) / 0.6) ** 2
        return one - jax.scipy.special.logsumexp(two, axis=-1)

    return jax.grad(f)((loc, scale))


def masked(mask: Any, scores: Any) -> Any:
    scores = scores + -1.0 * 1e30 * (1.0 - mask)
    return scores - scores.max()


def products(x: Any, y: Any, w: Any) -> Any:
    apart = y - x
    return jnp.dot(apart, w) + jnp.dot(jnp.dot(apart, jnp.zeros((3, 3))), apart)


def ratio(x: Any) -> Any:
    made = jnp.cross(x, x)
    return made / made


def divided(x: Any) -> Any:
    return jax.lax.fori_loop(1, 3, lambda i, value: jnp.floor_divide(value, x[i]), x[0])


def counted(x: Any) -> Any:
    return jnp.abs(jax.lax.iota(np.int8, 200)) + x


def shifted(x: Any) -> Any:
    base = x + np.int32(1)
    return jax.lax.dynamic_update_slice(base, base[:3], (1, 0, 0)).reshape((1, 4, 1))


def negated(x: Any) -> Any:
    square = x * x
    return jnp.where(square < 0, jnp.abs(square), square)


def means(x: Any) -> Any:
    of_one = partial(jnp.nanmean, axis=0, keepdims=True)
    return jax.vmap(of_one, in_axes=1, out_axes=1)(x)


def random_bits(key: Any) -> Any:
    keys = jax.random.split(jax.random.wrap_key_data(key), 2)
    return jax.vmap(lambda k: jax.random.bits(k, (8,)))(keys)


def floats(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


SCALAR = np.float32(0)
IMAGE = np.random.default_rng(0).random((131, 111, 3)).astype(np.float32)
TABLE = np.random.default_rng(0).random((57, 2, 128)).astype(np.float16)
LINE = np.random.default_rng(0).random((2, 100)).astype(np.float32)
# Report: function, arguments, and whether XLA is wrong today.
REPORTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], bool]] = {
    "jax-ml/jax#37919": (lambda x: jnp.sqrt(jnp.abs(jnp.square(x))), (floats(3e38, 1),), True),
    "openxla/xla#42732": (lambda x: jnp.log(jnp.exp(x)), (floats(89, 1),), True),
    "openxla/xla#42732, sqrt": (lambda x: jnp.sqrt(x * x), (floats(1e20, 1),), True),
    "openxla/xla#46628": (lambda x: x * x < 0, (np.array([12, 3], np.int8),), True),
    "openxla/xla#46628, abs": (lambda x: jnp.abs(x) < 0, (np.array([-128, 3], np.int8),), True),
    "openxla/xla#46628, abs of a square": (
        lambda x: jnp.abs(x * x),
        (np.array([12, 3], np.int8),),
        True,
    ),
    "openxla/xla#46628, iota": (counted, (np.int8(0),), True),
    "openxla/xla#49176": (shifted, (np.arange(4, dtype=np.int32).reshape(4, 1, 1),), True),
    "tensorflow/tensorflow#118178": (negated, (np.array([12, 7, 20, 15], np.int8),), True),
    "tensorflow/tensorflow#62206": (
        jax.nn.sigmoid,
        (np.linspace(0, 1, 30).astype(jnp.bfloat16),),
        False,
    ),
    "tensorflow/tensorflow#62252": (
        lambda x: jax.nn.sigmoid(jnp.clip(x, 0, 6)),
        (np.linspace(-8, 8, 30).astype(jnp.bfloat16),),
        False,
    ),
    "jax-ml/jax#29537": (lambda x: jnp.exp(x * jnp.nan), (np.float64(0.123),), False),
    "openxla/xla#41579": (
        lambda a, b, x: a * x + b * x,
        (np.float32(1e20), np.float32(-1e20), np.float32(1e10)),
        False,
    ),
    "openxla/xla#5544": (lambda x: x.max(), (-np.zeros(8193, np.float32),), False),
    "jax-ml/jax#7229": (lambda image, by: image + by, (IMAGE, np.float32(0.3)), False),
    "jax-ml/jax#9604": (divided, (np.array([2, 2, -3], np.int32),), False),
    "openxla/xla#37116": (
        lambda x, y: x * y,
        (np.linspace(-0.97, 0.97, 10), np.float64(1.7976931348623157e308)),
        False,
    ),
    "openxla/xla#49174": (
        lambda x: jnp.maximum(x, jnp.sqrt(x)),
        (np.array([1.56, -0.0905, 2.736], np.float16),),
        False,
    ),
    "tensorflow/tensorflow#119628": (
        lambda x: jnp.minimum(jnp.maximum(x, 0), 6),
        (floats(np.nan, 1, -1, 8),),
        False,
    ),
    "jax-ml/jax#17343": (jax.lax.pow, (np.complex64(1), np.complex64(np.inf)), False),
    "jax-ml/jax#18507": (
        lambda a, b, c, d: a * d - b * c,
        (*[np.float32(2396747)] * 2, *[np.float32(7)] * 2),
        False,
    ),
    "jax-ml/jax#38602": (ratio, (floats(0.1, 0.9),), False),
    "jax-ml/jax#26147": (
        lambda x, s: (x * (1.0 + s)) ** 2 - x**2,
        (np.float32(0.1), SCALAR),
        False,
    ),
    "jax-ml/jax#6566": (masked, (np.float32(1), floats(0.7, 0.5)), False),
    "jax-ml/jax#10129": (lambda x: x.at[0].set(jnp.roll(x[0], 5)), (LINE,), False),
    "jax-ml/jax#7461": (lambda x: x.at[1:].set(1 + x[:-1]), (np.zeros(8, np.float32),), False),
    "jax-ml/jax#939": (gradient, (SCALAR, SCALAR), False),
    "openxla/xla#13054": (products, (*[floats(1, 1, 1)] * 2, floats(1, 2, 3)), False),
}
# Of IREE: function, arguments, and the verdict of today.
OF_IREE: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "iree-org/iree#23381": (
        lambda x: jax.grad(lambda y: (jnp.cumsum(y) ** 2).sum())(x),
        (floats(*range(8)),),
        RIGHT,
    ),
    "iree-org/iree#16219": (
        lambda x: x.astype(jnp.int4).T.astype(jnp.int8),
        (np.arange(546).reshape(42, 13).astype(np.int8) % 16 - 8,),
        REFUSES,
    ),
    "iree-org/iree#19898": (
        lambda x: jnp.roll(x, 3, -1),
        (floats(*range(6)).reshape(1, 6),),
        RIGHT,
    ),
    "iree-org/iree#19749": (
        lambda x, i: x[:, 0][i],
        (TABLE, np.array([3, 50], np.int32)),
        RIGHT,
    ),
    "iree-org/iree#24719": (
        jax.vmap(lambda x, i, u: x.at[i].min(u)),
        (
            np.arange(64, dtype=np.int32).reshape(4, 16),
            (np.arange(36, dtype=np.int32) * 7 % 16).reshape(4, 9),
            (np.arange(36, dtype=np.int32) * 11 % 40 - 20).reshape(4, 9),
        ),
        RIGHT,
    ),
    "iree-org/iree#10691": (means, (np.arange(1, 17, dtype=np.float32).reshape(2, 8),), RIGHT),
    "iree-org/iree#9294": (
        lambda x, i: x[i],
        (np.array([True, False, True, True, False]), np.array([4, 0, 2], np.int32)),
        RIGHT,
    ),
    "jax-ml/jax#12786": (lambda x: x.at[2:6].set(-99), (np.arange(8, dtype=np.int32),), RIGHT),
    "iree-org/iree#24665": (
        lambda x: jax.lax.sort((-jax.lax.iota(np.int32, 4), x), num_keys=1)[1],
        (floats(0, 1, 2, 3),),
        RIGHT,
    ),
}


def judged(name: str, function: Callable[..., Any], given: tuple[Any, ...]) -> str:
    """The verdict on a backend; at fault, a program of at most three ops fails again as a file."""
    with jax.enable_x64(any(array.dtype == np.float64 for array in given)):
        text = jax.jit(function, keep_unused=True).lower(*given).as_text()
    module = runnable(read_stablehlo(text, "report.mlir"))
    program = module.programs()[0]
    arrays = {
        value.name or "": np.asarray(array)
        for value, array in zip(program.args, given, strict=True)
    }
    judge = Triage({name: backend_called(name)})
    (verdict,) = judge.run(module, program, arrays)
    if verdict.state == RIGHT:
        return RIGHT
    smallest, shown = judge.minified(
        module, program, verdict, lambda round: None, lambda ops, checks: None
    )
    reproducer = reproducer_of(judge, smallest, shown, _read)
    assert reproducer.ops <= 3
    assert reproducer.shown is not None
    return verdict.state


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.one_in(4)
def test_a_report_about_xla(report: str):
    function, given, wrong = REPORTS[report]
    assert judged("xla", function, given) == (WRONG if wrong else RIGHT)


@pytest.mark.skipif(not has_iree(), reason="IREE is not installed: graphgen-compiler[iree]")
@pytest.mark.parametrize("report", OF_IREE)
@pytest.mark.one_in(5)
def test_a_report_about_iree(report: str):
    function, given, verdict = OF_IREE[report]
    assert judged("iree", function, given) == verdict
