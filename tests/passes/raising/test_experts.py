"""Experts of programs written in JAX: found in each style, right in numbers, divided over ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from graphgen.ir import Module, Role
from graphgen.ir.clone import clone_module
from graphgen.lowering.stablehlo.read import read_stablehlo
from graphgen.passes.core import run_pipeline
from graphgen.passes.inspect.explain import ExplainQuery, explain
from graphgen.passes.pipelines import parse
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import print_module
from tests.oracles import jax_mixture as theirs

INPUTS = {f"p.{name}": array for name, array in theirs.parameters().items()}
INPUTS["x"] = theirs.hidden_states()


def traced(function: theirs.Style) -> Module:
    """A function of parameters and hidden states as JAX lowers it."""
    lowered = jax.jit(function).lower(theirs.parameters(), theirs.hidden_states())
    module = read_stablehlo(lowered.as_text(debug_info=True))
    for name, row in list(module.interface.items()):
        if name.startswith("p."):
            module.interface[name] = replace(row, role=Role.WEIGHT)
    return module


@cache
def raised(style: str) -> Module:
    module = traced(theirs.STYLES[style])
    run_pipeline(module, parse("imported"))
    return module


def given_to(module: Module) -> dict[str, np.ndarray]:
    """What of the inputs a module reads."""
    return {name: array for name, array in INPUTS.items() if name in module.interface}


def ops(module: Module) -> list[str]:
    return [op.name for op in module.function("main").ops]


@pytest.mark.parametrize("style", theirs.STYLES)
@pytest.mark.one_in(2)
def test_experts_are_found_and_say_what_they_said(style: str):
    module = raised(style)
    assert ops(module).count("experts") == ops(module).count("top_k") == 1
    assert "gather" not in ops(module)
    # Beside the router's, no product is left.
    assert ops(module).count("dot_general") == 1
    right = theirs.STYLES[style](theirs.parameters(), jnp.asarray(theirs.hidden_states()))
    found = np.asarray(module.evaluate(given_to(module))["result"])
    np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("style", theirs.STYLES)
@pytest.mark.one_in(2)
def test_they_are_divided_and_dispatched_as_those_of_families(style: str):
    module = clone_module(raised(style))
    script = make_workload(module, seed=0)
    verdicts = validate(module, parse("default{tp=4,moe_ep_degree=2}"), script)
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []


SWIGLU = (
    "activation=sigmoid glu=swiglu activation_scale=1.2999999523162842 up_offset=1.0 "
    "gate_upper=0.699999988079071 up_lower=-0.6000000238418579 up_upper=0.6000000238418579 "
)
# Beside gate, up and down, biases of each.
TEXTS = {
    "one hot": (6, "dtype=f32"),
    "gathers": (6, "activation=gelu_pytorch_tanh dtype=f32"),
    "biases": (9, f"{SWIGLU}dtype=f32"),
    "biases of all": (9, f"{SWIGLU}dtype=f32"),
    "weighted tokens": (6, "modulate=input dtype=f32"),
    "one expert": (6, "modulate=input dtype=f32"),
    "one gathered": (6, "dtype=f32"),
    "grouped": (6, "dtype=f32"),
    "grouped, put back": (9, f"{SWIGLU}dtype=f32"),
}


@pytest.mark.parametrize("style", TEXTS)
def test_the_op_says_what_was_between_the_products(style: str):
    operands, attributes = TEXTS[style]
    (line,) = [x for x in print_module(raised(style), locs=False).splitlines() if "experts(" in x]
    given, _, rest = line.partition("experts(")[2].partition(") ")
    assert len(given.split(", ")) == operands
    assert rest.rpartition(" : ")[0] == attributes


# ---- what is not quite experts -------------------------------------------------------------------


def all_of_them(p: theirs.Parameters, x: jax.Array) -> jax.Array:
    """Every expert, weighted by its score: none is chosen."""
    y = jnp.einsum("bsei,eih->bseh", theirs.hidden(p, x), p["down"])
    return jnp.einsum("bseh,bse->bsh", y, jax.nn.softmax(x @ p["router"], -1))


def other_choices(p: theirs.Parameters, x: jax.Array) -> jax.Array:
    """The matrices of the experts with the lowest scores."""
    weights, indices = theirs.routed(p, x)
    worst = jnp.argsort(x @ p["router"], -1)[..., : theirs.CHOSEN]
    gate, up = (jnp.einsum("bsh,bskhi->bski", x, p[name][worst]) for name in ("gate", "up"))
    y = jnp.einsum("bski,bskih->bskh", jax.nn.silu(gate) * up, p["down"][worst])
    return jnp.einsum("bskh,bsk->bsh", y, weights) + 0 * indices.sum()


def mixed_choices(p: theirs.Parameters, x: jax.Array) -> jax.Array:
    """Gate and up of the experts that were chosen, down of the ones before them."""
    weights, indices = theirs.routed(p, x)
    _, before = jax.lax.top_k(-(x @ p["router"]), theirs.CHOSEN)
    gate, up = (jnp.einsum("bsh,bskhi->bski", x, p[name][indices]) for name in ("gate", "up"))
    y = jnp.einsum("bski,bskih->bskh", jax.nn.silu(gate) * up, p["down"][before])
    return jnp.einsum("bskh,bsk->bsh", y, weights)


def other_tokens(p: theirs.Parameters, x: jax.Array) -> jax.Array:
    """Up of the tokens in the opposite order."""
    weights, indices = theirs.routed(p, x)
    gate = jnp.einsum("bsh,bskhi->bski", x, p["gate"][indices])
    up = jnp.einsum("bsh,bskhi->bski", x[:, ::-1], p["up"][indices])
    y = jnp.einsum("bski,bskih->bskh", jax.nn.silu(gate) * up, p["down"][indices])
    return jnp.einsum("bskh,bsk->bsh", y, weights)


def without_gate(p: theirs.Parameters, x: jax.Array) -> jax.Array:
    """Experts of two matrices."""
    weights, indices = theirs.routed(p, x)
    up = jnp.einsum("bsh,bskhi->bski", x, p["up"][indices])
    y = jnp.einsum("bski,bskih->bskh", jax.nn.silu(up), p["down"][indices])
    return jnp.einsum("bskh,bsk->bsh", y, weights)


def some_biases(p: theirs.Parameters, x: jax.Array) -> jax.Array:
    """A bias of gate, and none of up and down."""
    weights, indices = theirs.routed(p, x)
    gate, up = (jnp.einsum("bsh,bskhi->bski", x, p[name][indices]) for name in ("gate", "up"))
    inner = jax.nn.silu(gate + p["gate_bias"][indices]) * up
    y = jnp.einsum("bski,bskih->bskh", inner, p["down"][indices])
    return jnp.einsum("bskh,bsk->bsh", y, weights)


def biases_of_all_tokens(p: theirs.Parameters, x: jax.Array) -> jax.Array:
    """Tokens are weighted, and every expert adds its biases to those of weight 0 too."""
    flat = x.reshape(-1, theirs.WIDTH)
    best, indices = jax.lax.top_k(flat @ p["router"], theirs.CHOSEN)
    rows = jnp.arange(len(flat))[:, None]
    weights = jnp.zeros((len(flat), theirs.EXPERTS)).at[rows, indices].set(best)
    given = flat * weights.T[..., None]
    gate, up = (
        jnp.einsum("eth,ehi->eti", given, p[name]) + p[f"{name}_bias"][:, None]
        for name in ("gate", "up")
    )
    y = jnp.einsum("eti,eih->eth", jax.nn.silu(gate) * up, p["down"]) + p["down_bias"][:, None]
    return y.sum(0).reshape(x.shape)


def written(order: jax.Array) -> jax.Array:
    """The inverse of an order, written at it."""
    return jnp.zeros_like(order).at[order].set(jnp.arange(len(order), dtype=order.dtype))


# The inverse of an order, by which rows come back from it.
BACK: dict[str, Callable[[jax.Array], jax.Array]] = {"sorted": jnp.argsort, "written": written}


def grouped(
    p: theirs.Parameters,
    x: jax.Array,
    *,
    sizes: str = "",
    rows: str = "",
    weights: str = "",
    back: str = "sorted",
) -> jax.Array:
    """Rows of each expert together, one part of which may be others."""
    flat = x.reshape(-1, theirs.WIDTH)
    shares, order, ids, counts = theirs.sorted_rows(p, flat)
    counts = jnp.bincount(ids // 2, length=theirs.EXPERTS) if sizes else counts
    given = flat[(order % len(flat)) if rows else order // theirs.CHOSEN]
    gate, up = (jax.lax.ragged_dot(given, p[name], counts) for name in ("gate", "up"))
    made = jax.lax.ragged_dot(jax.nn.silu(gate) * up, p["down"], counts)
    made = made * (shares if weights else shares[order])[:, None]
    made = made[BACK[back](order)] if back else made
    return made.reshape(-1, theirs.CHOSEN, theirs.WIDTH).sum(1).reshape(x.shape)


@pytest.mark.parametrize(
    "other", [{"sizes": "of pairs"}, {"rows": "others"}, {"weights": "unsorted"}, {"back": ""}]
)
def test_sorted_rows_with_one_part_in_another_order_are_left_as_they_are(other: dict[str, Any]):
    function = partial(grouped, **other)
    module = traced(function)
    run_pipeline(module, parse("imported"))
    assert "experts" not in ops(module)
    right = function(theirs.parameters(), jnp.asarray(theirs.hidden_states()))
    found = np.asarray(module.evaluate(given_to(module))["result"])
    np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("back", BACK)
def test_the_same_rows_in_order_are_experts(back: str):
    """So the cases above miss by their one part alone."""
    module = traced(partial(grouped, back=back))
    run_pipeline(module, parse("imported"))
    assert ops(module).count("experts") == 1


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (some_biases, "some products of experts have a bias, and others have none"),
        (biases_of_all_tokens, "experts make more than zeros of tokens that were not theirs"),
        (all_of_them, "experts are not weighted by those that top_k chose"),
        (other_choices, "matrices are not looked up by the indices of a top_k over them"),
        (mixed_choices, "gate, up and down are not of the same experts"),
        (other_tokens, "gate and up do not read the same tokens"),
        (without_gate, "the operand of the experts' last product is not act(gate) * up"),
    ],
)
def test_what_is_not_quite_experts_is_left_as_it_is(function: theirs.Style, reason: str):
    module = traced(function)
    found = explain(
        clone_module(module),
        parse("imported"),
        "raise-composites",
        ExplainQuery(rule="raise-experts"),
    )
    assert reason in [item.reason for item in found.reasons]
    run_pipeline(module, parse("imported"))
    assert "experts" not in ops(module)
    right = function(theirs.parameters(), jnp.asarray(theirs.hidden_states()))
    found_now = np.asarray(module.evaluate(given_to(module))["result"])
    np.testing.assert_allclose(found_now, right, rtol=1e-4, atol=1e-4)
