"""Rope of halves and of neighbors, of whole heads and of their first elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from graphgen.ir import Module
from graphgen.ir.clone import clone_module
from graphgen.lowering.stablehlo.read import read_stablehlo
from graphgen.passes.core import run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.pipelines import parse as pipeline
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload

ROWS, TOKENS, HEADS, SIZE = 2, 3, 4, 8


def halves(x: jax.Array, angle: jax.Array) -> jax.Array:
    a, b = jnp.split(x, 2, -1)
    cos, sin = jnp.cos(angle)[:, :, None], jnp.sin(angle)[:, :, None]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def neighbors(x: jax.Array, angle: jax.Array) -> jax.Array:
    """GPT-J's in JAX: even and odd elements, stacked."""
    a, b = x[..., ::2], x[..., 1::2]
    cos, sin = jnp.cos(angle)[:, :, None], jnp.sin(angle)[:, :, None]
    return jnp.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)


def turned_halves(x: jax.Array, angle: jax.Array) -> jax.Array:
    """transformers' ``rotate_half``, with tables of whole heads."""
    half = x.shape[-1] // 2
    whole = jnp.concatenate([angle, angle], -1)[:, :, None]
    turned = jnp.concatenate([-x[..., half:], x[..., :half]], -1)
    return x * jnp.cos(whole) + turned * jnp.sin(whole)


def turned_neighbors(x: jax.Array, angle: jax.Array) -> jax.Array:
    """transformers' ``rotate_every_two``, with every element of the table twice."""
    whole = jnp.broadcast_to(angle[..., None], (*angle.shape, 2)).reshape(*angle.shape[:2], -1)
    turned = jnp.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)
    return x * jnp.cos(whole)[:, :, None] + turned * jnp.sin(whole)[:, :, None]


def deepseek(x: jax.Array, angle: jax.Array) -> jax.Array:
    """Neighbors are turned, and then joined as halves."""
    a, b = x[..., ::2], x[..., 1::2]
    cos, sin = jnp.cos(angle)[:, :, None], jnp.sin(angle)[:, :, None]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def complex_numbers(x: jax.Array, angle: jax.Array) -> jax.Array:
    """Products of complex numbers, whose parts lie along a dimension of two."""
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    a, b = pairs[..., 0], pairs[..., 1]
    cos, sin = jnp.cos(angle)[:, :, None], jnp.sin(angle)[:, :, None]
    return jnp.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)


KINDS = {
    "halves": (halves, "halves"),
    "neighbors": (neighbors, "neighbors"),
    "complex numbers": (complex_numbers, "neighbors"),
    "DeepSeek": (deepseek, "halves"),
    "turned halves": (turned_halves, "halves"),
    "turned neighbors": (turned_neighbors, "neighbors"),
}


def lowered(rope: Callable[..., Any], share: int) -> Module:
    """A rope of the first ``share`` elements of heads that a projection makes."""

    def function(x: jax.Array, positions: jax.Array) -> jax.Array:
        y = x.reshape(ROWS, TOKENS, HEADS, SIZE)
        frequencies = jnp.arange(share // 2, dtype=jnp.float32) + 1.0
        angle = positions[..., None].astype(jnp.float32) * frequencies

        if share == SIZE:
            return rope(y, angle)
        return jnp.concatenate([rope(y[..., :share], angle), y[..., share:]], -1)

    given = np.zeros((ROWS, TOKENS, HEADS * SIZE), np.float32), np.zeros((ROWS, TOKENS), np.int32)
    return read_stablehlo(jax.jit(function).lower(*given).as_text())


@pytest.mark.parametrize("share", [SIZE, 4])
@pytest.mark.parametrize("name", KINDS)
def test_ropes_are_found_of_whole_heads_and_of_parts(name: str, share: int):
    rope, pairs = KINDS[name]
    module = lowered(rope, share)
    verdicts = validate(clone_module(module), pipeline("imported"), make_workload(module, seed=3))
    assert [v.pass_text for v in verdicts if not v.ok] == []
    run_pipeline(module, pipeline("imported"))
    (op,) = [op for op in module.function("main").ops if op.name == "rope"]
    assert op.attrs.text("pairs") == pairs
    # Where the elements change places, the others are not part of the rope.
    whole = share if name == "DeepSeek" else SIZE
    assert [value.shape[-1] for value in op.operands] == [whole, share // 2, share // 2]


def mixed(x: jax.Array, angle: jax.Array) -> jax.Array:
    """Halves are turned, and then joined in turns."""
    a, b = jnp.split(x, 2, -1)
    cos, sin = jnp.cos(angle)[:, :, None], jnp.sin(angle)[:, :, None]
    return jnp.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)


def of_another(x: jax.Array, angle: jax.Array) -> jax.Array:
    whole = jnp.concatenate([angle, angle], -1)[:, :, None]
    turned = jnp.concatenate([-x[..., SIZE // 2 :], x[..., : SIZE // 2]], -1)
    return (x + 1.0) * jnp.cos(whole) + turned * jnp.sin(whole)


NEAR = {
    "mixed": (mixed, "the parts are joined in another way than they were cut"),
    "of another value": (of_another, "the rotated value differs from the one that is not rotated"),
}


@pytest.mark.parametrize("name", NEAR)
def test_what_is_nearly_a_rope_is_told_why_it_is_none(name: str):
    rope, reason = NEAR[name]
    module = lowered(rope, SIZE)
    journal = Journal()
    run_pipeline(module, pipeline("imported"), journal=journal)
    assert all(op.name != "rope" for op in module.function("main").ops)
    assert reason in {miss.why.reason for miss in journal.misses if miss.why.depth}
