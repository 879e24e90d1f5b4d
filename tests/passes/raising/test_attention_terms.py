"""Attention with biases, caps, masks per head, sinks, and keys and values of other shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from graphgen.ir import Module, Op, Role
from graphgen.ir.clone import clone_module
from graphgen.lowering.stablehlo.read import read_stablehlo
from graphgen.passes.core import run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.pipelines import parse as pipeline
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload

ROWS, TOKENS, HEADS, SIZE, SLOTS = 2, 3, 4, 8, 5
SCORES = (ROWS, HEADS, TOKENS, SLOTS)


def attend(
    steps: Callable[..., jax.Array], kv_heads: int = HEADS, width: int = SIZE
) -> Callable[..., jax.Array]:
    """Attention whose scores go through ``steps``, with projections around it."""

    def function(x: jax.Array, y: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
        q = (x @ w["q"]).reshape(ROWS, TOKENS, HEADS, SIZE)
        k = (y @ w["k"]).reshape(ROWS, SLOTS, kv_heads, SIZE)
        v = (y @ w["v"]).reshape(ROWS, SLOTS, kv_heads, width)
        k, v = (jnp.broadcast_to(t, (ROWS, SLOTS, HEADS, t.shape[3])) for t in (k, v))
        weights = steps(jnp.einsum("bqhd,bkhd->bhqk", q, k), w)
        out = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
        return out.reshape(ROWS, TOKENS, HEADS * width) @ w["o"]

    return function


def softmax(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(x, -1)


def with_sinks(scores: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
    """As GPT-OSS writes it."""
    sinks = jnp.broadcast_to(w["sinks"].reshape(1, -1, 1, 1), (*SCORES[:3], 1))
    whole = jnp.concatenate([scores * 0.25, sinks], -1)
    whole = whole - whole.max(-1, keepdims=True)
    return softmax(whole)[..., :-1]


def with_sinks_in_the_sum(scores: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
    """As attention is decomposed, and as kernels write it that keep no slot for sinks."""
    sinks, scores = w["sinks"].reshape(1, -1, 1, 1), scores * 0.25
    top = jnp.maximum(scores.max(-1, keepdims=True), sinks)
    powers = jnp.exp(scores - top)
    return powers / (powers.sum(-1, keepdims=True) + jnp.exp(sinks - top))


def far(w: dict[str, jax.Array]) -> jax.Array:
    shown = (w["far"] > 0) | (jnp.arange(SLOTS) == 0)
    return jnp.where(shown, 0.0, -1e9)


# What is done to the scores -> the types of attention's optional operands, and its cap.
STEPS: dict[str, tuple[Callable[..., jax.Array], list[str], float]] = {
    "a bias per head": (
        lambda s, w: softmax(s * 0.25 + w["table"].T.reshape(1, HEADS, TOKENS, SLOTS)),
        ["pred[2,3,5]", "f32[2,4,3,5]"],
        0,
    ),
    "a bias that is scaled with the scores, and a mask": (
        lambda s, w: softmax((s + w["slopes"][:, None, None]) * 0.25 + far(w)),
        ["pred[2,3,5]", "f32[2,4,3,5]"],
        0,
    ),
    "a mask that is added to the bias": (
        lambda s, w: softmax(s + (w["slopes"][:, None, None] + far(w))),
        ["pred[2,3,5]", "f32[2,4,3,5]"],
        0,
    ),
    "two biases": (
        lambda s, w: softmax(s + w["slopes"][:, None, None] + w["far"]),
        ["pred[2,3,5]", "f32[2,4,3,5]"],
        0,
    ),
    "a cap": (
        lambda s, w: softmax(jnp.tanh(s * 0.25 / 30.0) * 30.0 + far(w)),
        ["pred[2,3,5]"],
        30.0,
    ),
    "a cap whose inverse is a factor": (
        lambda s, w: softmax(jnp.tanh(s * 0.125) * 4.0),
        ["pred[2,3,5]"],
        4.0,
    ),
    "a mask per head": (
        lambda s, w: softmax(jnp.where(w["slopes"][:, None, None] < w["far"], -1e9, s)),
        ["pred[2,4,3,5]"],
        0,
    ),
    "sinks": (with_sinks, ["pred[2,3,5]", "f32[4]"], 0),
    "sinks in the sum alone": (with_sinks_in_the_sum, ["pred[2,3,5]", "f32[4]"], 0),
    "slots first": (
        lambda s, w: jax.nn.softmax(s.transpose(3, 0, 1, 2) * 0.25, 0).transpose(1, 2, 3, 0),
        ["pred[2,3,5]"],
        0,
    ),
    "a scale after the mask": (
        lambda s, w: softmax(0.25 * jnp.where(w["far"] > 0, s, -1e9)),
        ["pred[2,3,5]"],
        0,
    ),
    "a computed scale before the mask": (
        lambda s, w: softmax(jnp.where(w["far"] > 0, s / w["slopes"][0], -1e9)),
        ["pred[2,3,5]"],
        0,
    ),
    "two masks, one of them added": (
        lambda s, w: softmax(jnp.where(w["far"] > 0, s + far(w), -jnp.inf)),
        ["pred[2,3,5]"],
        0,
    ),
}


def zeros(kv_heads: int = HEADS, width: int = SIZE) -> list[Any]:
    shapes = {
        "q": (6, HEADS * SIZE),
        "k": (6, kv_heads * SIZE),
        "v": (6, kv_heads * width),
        "o": (HEADS * width, 6),
        "table": (TOKENS * SLOTS, HEADS),
        "slopes": (HEADS,),
        "sinks": (HEADS,),
        "far": (TOKENS, SLOTS),
    }
    inputs = ((ROWS, TOKENS, 6), (ROWS, SLOTS, 6))
    made = [np.zeros(shape, np.float32) for shape in inputs]
    return [*made, {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}]


def lowered(function: Callable[..., jax.Array], arguments: list[Any]) -> Module:
    text = jax.jit(function).lower(*arguments).as_text(debug_info=True)
    module = read_stablehlo(text)
    for name, row in list(module.interface.items()):
        if name.startswith("w."):
            module.interface[name] = replace(row, role=Role.WEIGHT)
    return module


def the_attention(module: Module, tp: int = 2) -> Op:
    """The one that is raised, after its heads were split as well; numbers are compared."""
    script = make_workload(module, seed=3)
    text = f"imported,heads{{tp={tp}}},shard{{tp={tp}}},pad-to-mesh,partition"
    verdicts = validate(clone_module(module), pipeline(text), script)
    assert [v.pass_text for v in verdicts if not v.ok] == []
    run_pipeline(module, pipeline("imported"))
    (found,) = [op for op in module.function("main").ops if op.name == "attention"]
    return found


@pytest.mark.parametrize("name", STEPS)
def test_what_is_done_to_scores_is_part_of_attention(name: str):
    steps, terms, cap = STEPS[name]
    op = the_attention(lowered(attend(steps), zeros()))
    assert [value.type.text for value in op.operands[3:]] == terms
    assert op.attrs.number("softcap") == cap
    assert op.attrs.number("scale") in (1.0, 0.25, 0.125)


def test_values_may_be_of_another_width():
    function = attend(lambda s, w: softmax(s * 0.25), width=6)
    op = the_attention(lowered(function, zeros(width=6)))
    assert op.result.shape == (ROWS, TOKENS, HEADS, 6)


def test_one_head_of_keys_is_read_once():
    function = attend(lambda s, w: softmax(s * 0.25), kv_heads=1)
    op = the_attention(lowered(function, zeros(kv_heads=1)))
    assert [value.shape for value in op.operands[1:3]] == [(ROWS, SLOTS, 1, SIZE)] * 2


def test_each_value_is_looked_for_scores_once():
    """A sum with itself has twice as many ways as its operand."""

    def doubled(scores: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
        found = jnp.exp(scores)
        for _ in range(60):
            found = found + found
        return softmax(found)

    module = lowered(attend(doubled), zeros())
    run_pipeline(module, pipeline("imported"))
    assert "attention" not in {op.name for op in module.function("main").ops}


REFUSED: dict[str, tuple[Callable[..., jax.Array], str]] = {
    "a mask under a cap hides nothing": (
        lambda s, w: softmax(jnp.tanh(jnp.where(w["far"] > 0, s, -1e9))),
        "the scores are masked before they are capped",
    ),
    "a bias under a cap": (
        lambda s, w: softmax(jnp.tanh(s + w["far"])),
        "a bias is added before the scores are scaled or capped",
    ),
    "a cap of another sign": (
        lambda s, w: softmax(jnp.tanh(s) * -2.0),
        "the scores are capped by no positive constant",
    ),
    "sinks that differ from token to token": (
        lambda s, w: softmax(
            jnp.concatenate([s, jnp.broadcast_to(w["far"][:, :1], (*SCORES[:3], 1))], -1)
        )[..., :-1],
        "the slot without a value differs in more than heads",
    ),
}


def shown(w: dict[str, jax.Array], scores: Any, hidden: float) -> jax.Array:
    """A mask of which three of four slots are seen."""
    return jnp.where(w["far"] < 0.5, scores, hidden)


# Masked scores that are not very low in the end: what is done outside of the mask moves them.
SEEN: dict[str, Callable[..., jax.Array]] = {
    "a negative factor": lambda s, w: -0.3 * shown(w, s, -1e9),
    "a negative factor over an added mask": lambda s, w: -0.3 * (s + shown(w, 0.0, -1e9)),
    "a small factor": lambda s, w: 1e-4 * shown(w, s, -1e4),
    "a small factor over an added mask": lambda s, w: 1e-4 * (s + shown(w, 0.0, -1e4)),
    "a factor of zero": lambda s, w: 0.0 * shown(w, s, -1e9),
    "a large divisor": lambda s, w: shown(w, s, -1e4) / 1e5,
    "a computed divisor": lambda s, w: shown(w, s, -1e4) / (1e5 + w["slopes"][0] ** 2),
    "a computed negative factor": lambda s, w: shown(w, s, -1e4) * (-1 - w["slopes"][0] ** 2),
    "a bias as high": lambda s, w: shown(w, s, -1e4) + shown(w, 0.0, -2e4) + 2e4,
    "a large bias": lambda s, w: shown(w, s, -1e4) + w["slopes"][:, None, None] * 1e6,
    "a large bias in one sum": lambda s, w: (
        s + (shown(w, 0.0, -1e4) + w["slopes"][:, None, None] * 1e6)
    ),
}


@pytest.mark.parametrize("name", SEEN)
def test_masked_scores_that_are_not_very_low_are_no_mask(name: str):
    """A mask of attention would hide them: outputs would differ by 0.05 and more."""
    module = lowered(attend(lambda s, w: softmax(SEEN[name](s, w))), zeros())
    verdicts = validate(clone_module(module), pipeline("imported"), make_workload(module, seed=3))
    assert max(v.meaning.max_abs for v in verdicts) < 1e-6


@pytest.mark.parametrize("name", REFUSED)
def test_what_attention_cannot_do_is_declined_with_a_reason(name: str):
    steps, reason = REFUSED[name]
    module = lowered(attend(steps), zeros())
    journal = Journal()
    run_pipeline(module, pipeline("imported"), journal=journal)
    assert Counter(op.name for op in module.function("main").ops)["attention"] == 0
    assert reason in {miss.why.reason for miss in journal.misses}
