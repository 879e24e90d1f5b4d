"""Rope of halves and of neighbors, of whole heads and of their first elements."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
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


def cut_before_heads_are_turned(x: jax.Array, angle: jax.Array) -> jax.Array:
    """Halves are cut, then each is transposed to heads before tokens, and the rope back."""
    a, b = (half.transpose(0, 2, 1, 3) for half in jnp.split(x, 2, -1))
    cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).transpose(0, 2, 1, 3)


def cut_in_two_layouts(x: jax.Array, angle: jax.Array) -> jax.Array:
    """Even elements are cut before heads are transposed, odd ones after; joined as halves."""
    a, b = x[..., ::2].transpose(0, 2, 1, 3), x.transpose(0, 2, 1, 3)[..., 1::2]
    cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).transpose(0, 2, 1, 3)


def merged_with_heads(x: jax.Array, angle: jax.Array) -> jax.Array:
    """Neighbors are joined and merged with their heads by one reshape."""
    a, b = x[..., ::2], x[..., 1::2]
    cos, sin = jnp.cos(angle)[:, :, None], jnp.sin(angle)[:, :, None]
    joined = jnp.stack([a * cos - b * sin, b * cos + a * sin], -1)
    return jnp.exp(joined.reshape(*x.shape[:2], -1)).reshape(x.shape)


def scaled_tables(x: jax.Array, angle: jax.Array) -> jax.Array:
    """Whole tables times a factor of each token, as for temperatures of long contexts."""
    half, whole = x.shape[-1] // 2, jnp.concatenate([angle, angle], -1)
    factor = 1.0 + angle[..., :1]
    cos, sin = (jnp.cos(whole) * factor)[:, :, None], (factor * jnp.sin(whole))[:, :, None]
    turned = jnp.concatenate([-x[..., half:], x[..., :half]], -1)
    return turned * sin + cos * x


def rounded_tables(x: jax.Array, angle: jax.Array) -> jax.Array:
    """Tables and products in bf16, as a model of bf16 has them."""
    angle, short = angle.astype(jnp.bfloat16), x.astype(jnp.bfloat16)
    return turned_halves(short, angle).astype(jnp.float32)


KINDS = {
    "halves": (halves, "halves"),
    "neighbors": (neighbors, "neighbors"),
    "complex numbers": (complex_numbers, "neighbors"),
    "DeepSeek": (deepseek, "halves"),
    "turned halves": (turned_halves, "halves"),
    "turned neighbors": (turned_neighbors, "neighbors"),
    "cut before heads are turned": (cut_before_heads_are_turned, "halves"),
    "scaled tables": (scaled_tables, "halves"),
}
# Between the rope and the elements that are not turned, others are at work here.
WHOLE = {
    "merged with heads": (merged_with_heads, "neighbors"),
    "cut in two layouts": (cut_in_two_layouts, "halves"),
    "rounded tables": (rounded_tables, "halves"),
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


@pytest.mark.parametrize(("name", "share"), [*product(KINDS, (SIZE, 4)), *product(WHOLE, (SIZE,))])
def test_ropes_are_found_of_whole_heads_and_of_parts(name: str, share: int):
    rope, pairs = (KINDS | WHOLE)[name]
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


def swapped(x: jax.Array, angle: jax.Array) -> jax.Array:
    """The second half is where the first one belongs."""
    b, a = jnp.split(x, 2, -1)
    cos, sin = jnp.cos(angle)[:, :, None], jnp.sin(angle)[:, :, None]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def tables_of_neighbors(x: jax.Array, angle: jax.Array) -> jax.Array:
    """Halves are turned, by tables whose neighbors are equal."""
    whole = jnp.repeat(angle, 2, -1)[:, :, None]
    turned = jnp.concatenate([-x[..., SIZE // 2 :], x[..., : SIZE // 2]], -1)
    return x * jnp.cos(whole) + turned * jnp.sin(whole)


def of_other_halves(x: jax.Array, angle: jax.Array) -> jax.Array:
    """The second sum has the halves of another value."""
    (a, b), (c, d) = jnp.split(x, 2, -1), jnp.split(x + 1.0, 2, -1)
    cos, sin = jnp.cos(angle)[:, :, None], jnp.sin(angle)[:, :, None]
    return jnp.concatenate([a * cos - b * sin, d * cos + c * sin], -1)


def of_another_head(x: jax.Array, angle: jax.Array) -> jax.Array:
    """Tables that differ from head to head."""
    wide = x * jnp.arange(1.0, HEADS + 1)[:, None]
    tables = angle[:, :, None] * jnp.arange(1.0, HEADS + 1)[:, None]
    (a, b), cos, sin = jnp.split(wide, 2, -1), jnp.cos(tables), jnp.sin(tables)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


NEAR = {
    "swapped": (swapped, "the parts are joined in another way than they were cut"),
    "tables of neighbors": (tables_of_neighbors, "the halves of a table are not known to be equal"),
    "of other halves": (of_other_halves, "second part is another value here"),
    "of another head": (of_another_head, "the tables differ from head to head"),
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
