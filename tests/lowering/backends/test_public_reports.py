"""Public reports of wrong results: what triage says of each with the installed compilers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphgen.cli.triage_cmd import _read  # pyright: ignore[reportPrivateUsage]
from graphgen.lowering.backends.named import backend_called, has_iree
from graphgen.lowering.backends.triage import RIGHT, WRONG, Triage
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


def floats(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


SCALAR = np.float32(0)
LINE = np.random.default_rng(0).random((2, 100)).astype(np.float32)
# Report: function, arguments, and whether XLA is wrong today.
REPORTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], bool]] = {
    "jax-ml/jax#37919": (lambda x: jnp.sqrt(jnp.abs(jnp.square(x))), (floats(3e38, 1),), True),
    "openxla/xla#42732": (lambda x: jnp.log(jnp.exp(x)), (floats(89, 1),), True),
    "openxla/xla#42732, sqrt": (lambda x: jnp.sqrt(x * x), (floats(1e20, 1),), True),
    "openxla/xla#46628": (lambda x: x * x < 0, (np.array([12, 3], np.int8),), True),
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
CUMSUM = (lambda x: jax.grad(lambda y: (jnp.cumsum(y) ** 2).sum())(x), (floats(*range(8)),))


def judged(name: str, function: Callable[..., Any], given: tuple[Any, ...]) -> bool:
    """Whether a backend is wrong; if so, a program of at most three ops fails again as a file."""
    text = jax.jit(function).lower(*given).as_text()
    module = runnable(read_stablehlo(text, "report.mlir"))
    program = module.programs()[0]
    arrays = {
        value.name or "": np.asarray(array)
        for value, array in zip(program.args, given, strict=True)
    }
    judge = Triage({name: backend_called(name)})
    (verdict,) = judge.run(module, program, arrays)
    if verdict.state == RIGHT:
        return False
    assert verdict.state == WRONG
    smallest, shown = judge.minified(
        module, program, verdict, lambda round: None, lambda ops, checks: None
    )
    reproducer = reproducer_of(judge, smallest, shown, _read)
    assert reproducer.ops <= 3
    assert reproducer.shown is not None
    return True


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.one_in(4)
def test_a_report_about_xla(report: str):
    function, given, wrong = REPORTS[report]
    assert judged("xla", function, given) is wrong


@pytest.mark.skipif(not has_iree(), reason="IREE is not installed: graphgen[iree]")
def test_a_report_about_iree():
    assert not judged("iree", *CUMSUM), "iree-org/iree#23381"
