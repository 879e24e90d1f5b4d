"""Rules by patterns: norms and activations in the spellings of JAX, torch and transformers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.ir import Function, Module, dtype, tensor
from graphgen.ir.clone import clone_module
from graphgen.lowering.stablehlo.read import read_stablehlo
from graphgen.ops import OPS
from graphgen.passes.core import run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.pipelines import parse as pipeline
from graphgen.passes.raising.near_misses import near_misses
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from graphgen.pattern import apply, match_rule, related, variables

WIDTH = 6
SHAPE = (2, 3, WIDTH)


def lowered(function: Callable[..., Any], *shapes: tuple[int, ...], kind: Any = None) -> Module:
    given = [np.zeros(shape, kind or np.float32) for shape in shapes]
    return read_stablehlo(jax.jit(function).lower(*given).as_text())


def composites(module: Module) -> dict[str, int]:
    found = Counter(op.name for op in module.function("main").ops)
    return {name: count for name, count in found.items() if OPS[name].composite}


def raised(module: Module) -> dict[str, int]:
    """The composites, after a comparison of numbers."""
    verdicts = validate(clone_module(module), pipeline("imported"), make_workload(module, seed=3))
    assert [v.pass_text for v in verdicts if not v.ok] == []
    run_pipeline(module, pipeline("imported"))
    return composites(module)


# ---- the matcher ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("direction", "mirrored"), [("LT", "GT"), ("GE", "LE"), ("EQ", "EQ"), ("NE", "NE")]
)
@pytest.mark.parametrize("turned", [False, True])
def test_a_comparison_is_matched_both_ways_around(direction: str, mirrored: str, turned: bool):
    function = Function("f")
    b = Builder(function)
    x, y = (function.block.add_arg(tensor(dtype("s32"), SHAPE), name) for name in "xy")
    made = b.compare(y, x, mirrored) if turned else b.compare(x, y, direction)
    assert made.op is not None
    left, right = variables("x y")
    ways = match_rule(made.op, related(left, direction, right))[0]
    assert {"x": x, "y": y} in [bound.values for bound in ways]
    other = "LE" if direction != "GE" else "NE"
    assert [*match_rule(made.op, related(left, other, right))[0]] == []


def test_the_root_is_the_op_itself_and_what_it_reads_is_looked_through():
    """Its dimensions number those of the match: the operand's of a transpose are others."""
    function = Function("f")
    b = Builder(function)
    x = function.block.add_arg(tensor(dtype("f32"), SHAPE), "x")
    turned = b.transpose(b.unary("exponential", x), (1, 0, 2))
    pattern = apply("exponential", *variables("x"))
    assert turned.op is not None
    assert [*match_rule(turned.op, pattern)[0]] == []
    negated = b.unary("negate", turned).op
    assert negated is not None
    (bound,) = match_rule(negated, -pattern)[0]
    assert (bound.values["x"], bound.places["x"]) == (x, (1, 0, 2))


# ---- activations ---------------------------------------------------------------------------------


def gelu_new(x: jax.Array) -> jax.Array:
    return 0.5 * x * (1.0 + jnp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * jnp.power(x, 3.0))))


def gelu_fast(x: jax.Array) -> jax.Array:
    return 0.5 * x * (1.0 + jnp.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))


def gelu_python(x: jax.Array) -> jax.Array:
    return x * 0.5 * (1.0 + jax.lax.erf(x * math.sqrt(0.5)))


ACTIVATIONS: dict[str, tuple[Callable[[jax.Array], jax.Array], str]] = {
    "gelu_new": (gelu_new, "tanh"),
    "gelu_fast": (gelu_fast, "tanh"),
    "jax.nn.gelu": (jax.nn.gelu, "tanh"),
    "gelu_python": (gelu_python, "none"),
    "quick_gelu": (lambda x: x * jax.nn.sigmoid(1.702 * x), "sigmoid"),
    "quick_gelu in exponentials": (lambda x: x / (1 + jnp.exp(-1.702 * x)), "sigmoid"),
    "silu": (jax.nn.silu, ""),
    "silu in exponentials": (lambda x: x * (1 / (1 + jnp.exp(-x))), ""),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_found_in_each_spelling(name: str):
    function, approximate = ACTIVATIONS[name]
    module = lowered(function, SHAPE)
    assert raised(module) == {"gelu" if approximate else "silu": 1}
    if approximate:
        (op,) = [op for op in module.function("main").ops if op.name == "gelu"]
        assert op.attrs.text("approximate") == approximate


# ---- norms ---------------------------------------------------------------------------------------


def flax_norm(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    """The variance as a difference of means."""
    mean = x.mean(-1, keepdims=True)
    variance = jnp.maximum((x * x).mean(-1, keepdims=True) - mean * mean, 0.0)
    return (x - mean) * (jax.lax.rsqrt(variance + 1e-5) * w) + b


def torch_norm(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    centered = x - x.mean(-1, keepdims=True)
    variance = jnp.power(centered, 2.0).mean(-1, keepdims=True)
    return centered / jnp.sqrt(variance + 1e-5) * w + b


def bf16_norm(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    wide, w, b = (value.astype(jnp.float32) for value in (x, w, b))
    return torch_norm(wide, w, b).astype(x.dtype)


def rows_of_columns(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    """Features first."""
    turned = x.transpose(2, 0, 1)
    centered = turned - turned.mean(0, keepdims=True)
    root = jax.lax.rsqrt((centered * centered).mean(0, keepdims=True) + 1e-5)
    return centered * root * w[:, None, None] + b[:, None, None]


LAYER_NORMS = {
    "flax": flax_norm,
    "torch": torch_norm,
    "bf16": bf16_norm,
    "features first": rows_of_columns,
    "weight first": lambda x, w, b: w * ((x - x.mean(-1, keepdims=True)) * root_of(x)) + b,
}


def root_of(x: jax.Array) -> jax.Array:
    centered = x - x.mean(-1, keepdims=True)
    return jax.lax.rsqrt((centered * centered).sum(-1, keepdims=True) / WIDTH + 1e-5)


@pytest.mark.parametrize("name", LAYER_NORMS)
def test_layer_norms_are_found_in_each_spelling(name: str):
    kind = jnp.bfloat16 if name == "bf16" else np.float32
    module = lowered(LAYER_NORMS[name], SHAPE, (WIDTH,), (WIDTH,), kind=kind)
    assert raised(module) == {"layer_norm": 1}


def centered_root(x: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) * root_of(x)


def unit_root(x: jax.Array) -> jax.Array:
    """Llama 4's norm of queries and keys."""
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


BARE: dict[str, tuple[Callable[..., Any], str, str]] = {
    "Cohere": (lambda x, w: centered_root(x) * w, "layer_norm", "f32[6]"),
    "without weight": (lambda x, w: centered_root(x), "layer_norm", "f32[6]"),
    "one of each row": (lambda x, w: centered_root(x) * (1 + x[:, :1]), "layer_norm", "f32[6]"),
    "mean square": (lambda x, w: unit_root(x), "rms_norm", "f32[6]"),
    "columns": (lambda x, w: unit_root(x.transpose(0, 2, 1)), "rms_norm", "f32[3]"),
}


@pytest.mark.parametrize("name", BARE)
def test_norms_without_weight_or_bias_have_ones_and_zeros(name: str):
    function, composite, row = BARE[name]
    module = lowered(function, SHAPE, (WIDTH,))
    assert raised(module) == {composite: 1}
    (op,) = [op for op in module.function("main").ops if op.name == composite]
    assert {value.type.text for value in op.operands[1:]} == {row}


def test_a_softmax_of_the_chosen_is_no_attention():
    """What is chosen is the first result of two."""

    def chosen(x: jax.Array, w: jax.Array) -> jax.Array:
        scores, _ = jax.lax.top_k(x, 2)
        return jnp.einsum("bsk,kd->bsd", jax.nn.softmax(scores, -1), w[:2, None] * jnp.ones(3))

    assert raised(lowered(chosen, SHAPE, (WIDTH,))) == {"top_k": 1}


# ---- near misses ---------------------------------------------------------------------------------


NEAR: dict[str, tuple[Callable[..., Any], int, str]] = {
    "the root of another value": (
        lambda x, y, w: x * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5) * w,
        2,
        "operand is another value here",
    ),
    "an epsilon that is computed": (
        lambda x, y, w: x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + y) * w,
        2,
        "a constant is expected",
    ),
    "a sum that is not divided": (
        lambda x, w: x * jax.lax.rsqrt((x * x).sum(-1, keepdims=True) + 1e-5) * w,
        1,
        "divide is expected, and reduce found",
    ),
    "a sum that is divided by another count": (
        lambda x, w: x * jax.lax.rsqrt((x * x).sum(-1, keepdims=True) / 7 + 1e-5) * w,
        1,
        "the sum is not divided by the count of its terms",
    ),
    "a gelu of another constant": (
        lambda x: 0.5 * x * (1.0 + jnp.tanh(0.8 * (x + 0.044715 * x**3))),
        1,
        "0.797885 is expected, and 0.8 found",
    ),
}


@pytest.mark.parametrize("name", NEAR)
def test_how_far_a_pattern_fits_is_the_depth_of_the_near_miss(name: str):
    function, count, reason = NEAR[name]
    weight = [(WIDTH,)] if "gelu" not in name else []
    module = lowered(function, *[SHAPE] * count, *weight)
    journal = Journal()
    run_pipeline(module, pipeline("imported"), journal=journal)
    assert composites(module) == {}
    nearest = max(journal.misses, key=lambda miss: miss.why.depth)
    assert nearest.why.reason == reason


def _weighted(weights: Callable[[jax.Array], jax.Array]) -> Callable[..., jax.Array]:
    """Attention with weights that this function makes of the scores."""

    def function(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jnp.einsum("bsc,bcd->bsd", weights(jnp.einsum("bsd,bcd->bsc", q, k)), v)

    return function


def _without_maximum(scores: jax.Array) -> jax.Array:
    powers = jnp.exp(scores)
    return powers / powers.sum(-1, keepdims=True)


def _with_one_more(scores: jax.Array) -> jax.Array:
    powers = jnp.exp(scores - scores.max(-1, keepdims=True))
    return powers / (1 + powers.sum(-1, keepdims=True))


NEARLY: dict[str, tuple[Callable[[jax.Array], jax.Array], str]] = {
    "without maximum": (_without_maximum, "subtract is expected, and dot_general found"),
    "with one more": (_with_one_more, "reduce is expected, and add found"),
    "of queries": (
        lambda scores: jax.nn.softmax(scores, 1),
        "the softmax is not along the summed dimension",
    ),
}


@pytest.mark.parametrize("name", NEARLY)
def test_what_is_nearly_a_softmax_between_two_products_is_told(name: str):
    weights, reason = NEARLY[name]
    module = lowered(_weighted(weights), SHAPE, SHAPE, SHAPE)
    found = [miss.reason for miss in near_misses(module) if miss.rule == "raise-attention"]
    assert found == [reason]
    assert raised(module) == {}
