"""Reductions and sorts by functions of scalars, as JAX writes them: argmax, orders of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from graphgen.eval import evaluate
from graphgen.ir import Module
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text
from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo
from graphgen.ops import verify
from graphgen.ops.control import SCALAR
from graphgen.text import parse, print_module
from tests.oracles import xla_hlo

X = np.random.default_rng(1).integers(-4, 4, (3, 7)).astype(np.float32)
WHOLE = X.astype(np.int32)
X[1, 2] = np.nan
X[2, 4] = -0.0


ROWS = lax.ScatterDimensionNumbers((1,), (0,), (0,))


def farthest(x: Any, none: Any, sizes: Any, strides: Any, padding: Any) -> Any:
    """The element farthest from zero in each window, and where it was along the last dimension."""
    places = lax.broadcasted_iota(np.int32, x.shape, x.ndim - 1)

    def keep(one: Any, other: Any) -> Any:
        stays = jnp.abs(one[0]) >= jnp.abs(other[0])
        return jnp.where(stays, one[0], other[0]), jnp.where(stays, one[1], other[1])

    start = (np.zeros((), x.dtype), none)
    return lax.reduce_window((x, places), start, keep, sizes, strides, padding)


PROGRAMS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "argmax": (lambda x: jnp.argmax(x, 1), [X]),
    "argmin": (lambda x: jnp.argmin(x, 0), [WHOLE]),
    "all": (lambda x: lax.argmax(x, 0, np.int32), [X[:, 0]]),
    "sort": (lambda x: lax.sort(x, dimension=1), [X]),
    "pairs": (lambda x: lax.sort((x, -x), dimension=0, num_keys=2), [WHOLE]),
    "argsort": (lambda x: jnp.argsort(x, 1, descending=True), [X]),
    "windows": (lambda x: farthest(x, np.int32(0), (1, 3), (1, 2), ((0, 0), (1, 2))), [X[:2]]),
    "running": (lambda x: farthest(x, np.int32(-1), (3, 1), (1, 1), ((2, 0), (0, 0))), [WHOLE]),
    "scattered": (
        lambda x, at, u: x.at[at].apply(lambda v: v * 3 - 1) + lax.scatter_mul(x, at, u, ROWS),
        [WHOLE, np.array([[2], [0], [2]], np.int32), WHOLE[:, :] + 1],
    ),
}


def outputs(module: Module, given: list[Any]) -> list[Any]:
    function = module.programs()[0]
    names = [arg.name or "" for arg in function.args]
    return [*evaluate(function, dict(zip(names, given, strict=True)), module=module).values()]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_form_gives_what_jax_does(name: str):
    call, given = PROGRAMS[name]
    lowered = jax.jit(call).lower(*given)
    wanted = [np.asarray(x) for x in jax.tree.leaves(jax.jit(call)(*given))]
    computation = lowered.compiler_ir("hlo")
    assert computation is not None
    modules = [read_stablehlo(lowered.as_text())]
    modules.append(read_hlo(parse_hlo_text(computation.as_hlo_text())))
    ops = {op.name for op in modules[0].programs()[0].ops}
    assert ops & SCALAR
    for module in list(modules):
        verify(module)
        text = print_module(module)
        assert print_module(parse(text)) == text
        proto = emit_hlo(module, module.programs()[0])
        modules.append(read_hlo(parse_hlo_text(print_hlo_text(proto))))
        modules.append(read_stablehlo(emit_stablehlo(module, module.programs()[0])))
        (theirs,) = xla_hlo.run(proto, [given])
        for one, other in zip(theirs, wanted, strict=True):
            np.testing.assert_array_equal(one, other)
    for module in modules:
        for one, other in zip(outputs(module, given), wanted, strict=True):
            np.testing.assert_array_equal(one, other)
