"""Optimized HLO of JAX runs: XLA's own calls are the ops that they came from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.graphgen.cli.conftest import done, facts


def top_k(x: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(lax.top_k(x, 3))


def top_k_of_one_row(x: jax.Array) -> tuple[jax.Array, ...]:
    return (*lax.top_k(x[0], 5), *lax.top_k(-x.ravel(), 4))


def many(x: jax.Array) -> tuple[jax.Array, ...]:
    key = jax.random.wrap_key_data(jnp.array([0, 7], jnp.uint32))
    noise = jax.random.normal(key, x.shape)
    values, places = lax.top_k(x, 3)
    return (
        jnp.fft.rfft(x + noise).real,
        jnp.sort(x, 1).at[jnp.array([1, 2])].add(values.sum()),
        places,
        jnp.argsort(x, 0),
        jnp.cumsum(x, 1),
        jax.random.uniform(key, (5,)),
    )


def step(x: jax.Array) -> tuple[jax.Array, ...]:
    def loss(w: jax.Array) -> jax.Array:
        hidden, _ = lax.scan(lambda h, _: (jnp.tanh(h @ w), None), x, None, length=3)
        return (hidden**2).sum()

    w = jnp.outer(x[0], x[1])[:16, :16] * 0.1
    return jax.value_and_grad(loss)(w)


@pytest.mark.parametrize("on", ["auto", "cpu"])
@pytest.mark.parametrize("form", ["optimized", "lowered"])
@pytest.mark.parametrize("program", [top_k, top_k_of_one_row, many, step])
def test_a_program_of_jax_gives_what_jax_gives(
    tmp_path: Path, program: Callable[[jax.Array], tuple[jax.Array, ...]], form: str, on: str
):
    x = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    # Equal elements: the first is taken.
    x[0, :6] = 1.5
    path, given, saved = tmp_path / "p.hlo", tmp_path / "in.npz", tmp_path / "out.npz"
    lowered = jax.jit(program).lower(x)
    compiled = lowered.compile()
    path.write_text(str(compiled.as_text() if form == "optimized" else lowered.as_text("hlo")))
    arrays: dict[str, Any] = {"x.1": x}
    np.savez(given, **arrays)
    done("run", path, "--inputs", given, "--save", saved, "--on", on)
    with np.load(saved) as made:
        for ours, theirs in zip(made.values(), compiled(x), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


def test_a_top_k_runs_in_numpy(tmp_path: Path):
    path = tmp_path / "p.hlo"
    path.write_text(str(jax.jit(top_k).lower(jnp.ones((2, 8))).compile().as_text()))
    assert 'custom_call_target="TopK"' in path.read_text()
    assert facts("run", path)["on"] == "numpy"
