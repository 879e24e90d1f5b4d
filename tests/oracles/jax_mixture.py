"""A layer of experts that somebody else wrote in plain JAX, in the styles one meets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

ROWS, TOKENS, EXPERTS, CHOSEN, WIDTH, INNER = 2, 3, 5, 2, 8, 6
Parameters = Mapping[str, Any]
Style = Callable[[Parameters, jax.Array], jax.Array]


def parameters(seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    shapes = {
        "router": (WIDTH, EXPERTS),
        "gate": (EXPERTS, WIDTH, INNER),
        "up": (EXPERTS, WIDTH, INNER),
        "down": (EXPERTS, INNER, WIDTH),
        "gate_bias": (EXPERTS, INNER),
        "up_bias": (EXPERTS, INNER),
        "down_bias": (EXPERTS, WIDTH),
        "both": (EXPERTS, WIDTH, 2 * INNER),
        "both_bias": (EXPERTS, 2 * INNER),
    }
    return {
        name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }


def hidden_states(seed: int = 1) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.standard_normal((ROWS, TOKENS, WIDTH)).astype(np.float32)


def routed(p: Parameters, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    weights, indices = jax.lax.top_k(jax.nn.softmax(x @ p["router"], -1), CHOSEN)
    return weights / weights.sum(-1, keepdims=True), indices


def hidden(p: Parameters, x: jax.Array) -> jax.Array:
    """The hidden features of every expert [B,S,E,I]."""
    gate = jnp.einsum("bsh,ehi->bsei", x, p["gate"])
    return jax.nn.silu(gate) * jnp.einsum("bsh,ehi->bsei", x, p["up"])


def one_hot(p: Parameters, x: jax.Array) -> jax.Array:
    """Every expert, combined by a product with the weights spread over all."""
    weights, indices = routed(p, x)
    combine = jnp.einsum("bske,bsk->bse", jax.nn.one_hot(indices, EXPERTS), weights)
    return jnp.einsum(
        "bseh,bse->bsh", jnp.einsum("bsei,eih->bseh", hidden(p, x), p["down"]), combine
    )


def summed(p: Parameters, x: jax.Array) -> jax.Array:
    """Every expert, combined by sums."""
    weights, indices = routed(p, x)
    combine = (jax.nn.one_hot(indices, EXPERTS) * weights[..., None]).sum(-2)
    y = jnp.einsum("bsei,eih->bseh", hidden(p, x), p["down"])
    return (y * combine[..., None]).sum(2)


def compared(p: Parameters, x: jax.Array) -> jax.Array:
    """Every expert of flat tokens, with what was not chosen selected away."""
    flat = x.reshape(-1, WIDTH)
    weights, indices = routed(p, flat)
    here = indices[..., None] == jnp.arange(EXPERTS)
    combine = jnp.where(here, weights[..., None], 0.0).sum(1)
    gate, up = (jnp.einsum("th,ehi->eti", flat, p[name]) for name in ("gate", "up"))
    y = jnp.einsum("eti,eih->eth", jax.nn.silu(gate) * up, p["down"])
    return jnp.einsum("eth,te->th", y, combine).reshape(x.shape)


def weighted_before(p: Parameters, x: jax.Array) -> jax.Array:
    """Every expert, weighted before its last product."""
    weights, indices = routed(p, x)
    combine = jnp.einsum("bsk,bske->bse", weights, jax.nn.one_hot(indices, EXPERTS))
    return jnp.einsum("bsei,eih,bse->bsh", hidden(p, x), p["down"], combine)


def gathered(p: Parameters, x: jax.Array) -> jax.Array:
    """The matrices of the chosen experts of each token."""
    weights, indices = routed(p, x)
    gate, up = (jnp.einsum("bsh,bskhi->bski", x, p[name][indices]) for name in ("gate", "up"))
    y = jnp.einsum("bski,bskih->bskh", jax.nn.gelu(gate) * up, p["down"][indices])
    return jnp.einsum("bskh,bsk->bsh", y, weights)


def clamped(p: Parameters, gate: jax.Array, up: jax.Array) -> jax.Array:
    """GPT-OSS's gating, with another scale than its models have."""
    gate, up = jnp.minimum(gate, 0.7), jnp.clip(up, -0.6, 0.6)
    return gate * jax.nn.sigmoid(1.3 * gate) * (up + 1)


def with_biases(p: Parameters, x: jax.Array) -> jax.Array:
    """The matrices and biases of the chosen experts of each token."""
    weights, indices = routed(p, x)
    gate, up = (
        jnp.einsum("bsh,bskhi->bski", x, p[name][indices]) + p[f"{name}_bias"][indices]
        for name in ("gate", "up")
    )
    y = jnp.einsum("bski,bskih->bskh", clamped(p, gate, up), p["down"][indices])
    return jnp.einsum("bskh,bsk->bsh", y + p["down_bias"][indices], weights)


def all_with_biases(p: Parameters, x: jax.Array) -> jax.Array:
    """Every expert with its biases, gate and up in turns in one matrix."""
    weights, indices = routed(p, x)
    made = jnp.einsum("bsh,ehi->bsei", x, p["both"]) + p["both_bias"]
    inner = clamped(p, made[..., ::2], made[..., 1::2])
    y = jnp.einsum("bsei,eih->bseh", inner, p["down"]) + p["down_bias"]
    combine = (jax.nn.one_hot(indices, EXPERTS) * weights[..., None]).sum(-2)
    return (y * combine[..., None]).sum(2)


def weighted_tokens(p: Parameters, x: jax.Array, chosen: int = CHOSEN) -> jax.Array:
    """Every expert on tokens times its weight, which is 0 where it was not chosen (Llama 4)."""
    flat = x.reshape(-1, WIDTH)
    best, indices = jax.lax.top_k(flat @ p["router"], chosen)
    rows = jnp.arange(len(flat))[:, None]
    scores = jnp.full((len(flat), EXPERTS), -jnp.inf).at[rows, indices].set(best)
    given = flat * jax.nn.sigmoid(scores).T[..., None]
    gate, up = (jnp.einsum("eth,ehi->eti", given, p[name]) for name in ("gate", "up"))
    return jnp.einsum("eti,eih->eth", jax.nn.silu(gate) * up, p["down"]).sum(0).reshape(x.shape)


def one_expert(p: Parameters, x: jax.Array) -> jax.Array:
    """Weighted tokens of one expert."""
    return weighted_tokens(p, x, 1)


def one_gathered(p: Parameters, x: jax.Array) -> jax.Array:
    """The matrices of the one expert of each token."""
    weights, indices = jax.lax.top_k(jax.nn.softmax(x @ p["router"], -1), 1)
    gate, up = (jnp.einsum("bsh,bskhi->bski", x, p[name][indices]) for name in ("gate", "up"))
    y = jnp.einsum("bski,bskih->bskh", jax.nn.silu(gate) * up, p["down"][indices])
    return (y * weights[..., None]).sum(2)


def sorted_rows(
    p: Parameters, flat: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Weights, the order of experts, experts in this order, and how many rows each has."""
    weights, indices = routed(p, flat)
    ids = indices.reshape(-1)
    order = jnp.argsort(ids, stable=True)
    return weights.reshape(-1), order, ids[order], jnp.bincount(ids, length=EXPERTS)


def grouped(p: Parameters, x: jax.Array) -> jax.Array:
    """Rows of each expert together, added to their tokens."""
    flat = x.reshape(-1, WIDTH)
    weights, order, _, sizes = sorted_rows(p, flat)
    rows = flat[order // CHOSEN]
    gate, up = (jax.lax.ragged_dot(rows, p[name], sizes) for name in ("gate", "up"))
    made = jax.lax.ragged_dot(jax.nn.silu(gate) * up, p["down"], sizes)
    made = made * weights[order][:, None]
    return jnp.zeros_like(flat).at[order // CHOSEN].add(made).reshape(x.shape)


def grouped_and_put_back(p: Parameters, x: jax.Array) -> jax.Array:
    """Rows of each expert together, with biases, in the order of the tokens in the end."""
    flat = x.reshape(-1, WIDTH)
    weights, order, ids, sizes = sorted_rows(p, flat)
    rows = flat[order // CHOSEN]
    gate, up = (
        jax.lax.ragged_dot(rows, p[name], sizes) + p[f"{name}_bias"][ids] for name in ("gate", "up")
    )
    made = jax.lax.ragged_dot(clamped(p, gate, up), p["down"], sizes) + p["down_bias"][ids]
    back = made[jnp.argsort(order)].reshape(-1, CHOSEN, WIDTH)
    return (back * weights.reshape(-1, CHOSEN)[..., None]).sum(1).reshape(x.shape)


STYLES: Mapping[str, Style] = {
    "one hot": one_hot,
    "sums": summed,
    "comparisons": compared,
    "weighted before": weighted_before,
    "gathers": gathered,
    "biases": with_biases,
    "biases of all": all_with_biases,
    "weighted tokens": weighted_tokens,
    "one expert": one_expert,
    "one gathered": one_gathered,
    "grouped": grouped,
    "grouped, put back": grouped_and_put_back,
}
