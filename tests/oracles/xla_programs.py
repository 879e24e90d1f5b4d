"""Programs as XLA compiles them, with the buffers that it assigns."""

# jaxlib carries no types here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import WrapperField


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _train() -> tuple[Any, tuple[Any, ...], tuple[int, ...]]:
    def loss(w: Any, v: Any, x: Any) -> Any:
        return jnp.mean((jax.nn.gelu(x @ w) @ v) ** 2)

    def step(w: Any, v: Any, x: Any) -> Any:
        dw, dv = jax.grad(loss, (0, 1))(w, v, x)
        return w - 0.1 * dw, v - 0.1 * dv

    return step, (numbers(64, 128), numbers(128, 32), numbers(16, 64)), (0, 1)


def _scan() -> tuple[Any, tuple[Any, ...], tuple[int, ...]]:
    def run(h: Any, xs: Any, w: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = jnp.tanh(h @ w + x)
            return h, h

        return lax.scan(step, h, xs)

    return run, (numbers(16, 32), numbers(8, 16, 32), numbers(32, 32)), ()


def _while() -> tuple[Any, tuple[Any, ...], tuple[int, ...]]:
    def run(x: Any, w: Any) -> Any:
        return lax.while_loop(lambda c: c[1] < 5, lambda c: (jnp.tanh(c[0] @ w), c[1] + 1), (x, 0))

    return run, (numbers(32, 64), numbers(64, 64)), ()


def _attention() -> tuple[Any, tuple[Any, ...], tuple[int, ...]]:
    def run(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bqd,bkd->bqk", q, k) / 8
        return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores), v)

    return run, (numbers(4, 32, 16), numbers(4, 32, 16), numbers(4, 32, 16)), ()


def _convolution() -> tuple[Any, tuple[Any, ...], tuple[int, ...]]:
    def run(x: Any, w: Any) -> Any:
        y = lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    return run, (numbers(2, 16, 16, 4), numbers(3, 3, 4, 8)), ()


def _update() -> tuple[Any, tuple[Any, ...], tuple[int, ...]]:
    def run(table: Any, rows: Any, index: Any) -> Any:
        return table.at[index].add(rows), jax.nn.softmax(rows @ table.T)

    return run, (numbers(200, 16), numbers(8, 16), np.arange(8)), (0,)


def _cond() -> tuple[Any, tuple[Any, ...], tuple[int, ...]]:
    def run(p: Any, x: Any) -> Any:
        return lax.cond(p, lambda x: jnp.sin(x) @ x, lambda x: x + 1, x)

    return run, (np.array(True), numbers(64, 64)), ()


def _sort() -> tuple[Any, tuple[Any, ...], tuple[int, ...]]:
    return lambda x: (jnp.sort(x, -1), jnp.argsort(x, 0)), (numbers(64, 64),), ()


def _random() -> tuple[Any, tuple[Any, ...], tuple[int, ...]]:
    return lambda key: jax.random.normal(key, (64, 64)), (jax.random.key(0),), ()


def _fft() -> tuple[Any, tuple[Any, ...], tuple[int, ...]]:
    return lambda x: jnp.abs(jnp.fft.fft2(x)), (numbers(4, 32, 32),), ()


PROGRAMS: dict[str, Callable[[], tuple[Any, tuple[Any, ...], tuple[int, ...]]]] = {
    "training step": _train,
    "scan": _scan,
    "while": _while,
    "attention": _attention,
    "convolution": _convolution,
    "update": _update,
    "cond": _cond,
    "sort": _sort,
    "random": _random,
    "fft": _fft,
}


def compiled(name: str) -> tuple[bytes, bytes]:
    """A program as XLA compiles it: its module, and that with the buffers beside it."""
    run, arguments, donated = PROGRAMS[name]()
    made = jax.jit(run, donate_argnums=donated).lower(*arguments).compile()
    module = cast(Any, made.runtime_executable()).hlo_modules()[0]
    proto = module.as_serialized_hlo_module_proto()
    assigned = cast(Any, made.memory_analysis()).serialized_buffer_assignment_proto
    both = wire.delimited(WrapperField.MODULE, proto)
    return proto, both + wire.delimited(WrapperField.BUFFER_ASSIGNMENT, assigned)
