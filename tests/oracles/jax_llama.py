"""Llamas that somebody else wrote in plain JAX, in the two styles one meets.

``llama`` keeps heads behind tokens, repeats keys with ``jnp.repeat`` and hides scores by a number.
``llama_hf`` writes what transformers' eager code does: heads before tokens, tables of whole heads,
``rotate_half``, keys expanded and reshaped, a mask that is added.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

HEADS, KV_HEADS, SIZE, WIDTH, VOCABULARY = 8, 2, 8, 64, 50
EPSILON = 1e-5


def parameters(seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return (0.2 * random.standard_normal(shape)).astype(np.float32)

    def layer() -> dict[str, np.ndarray]:
        kv = KV_HEADS * SIZE
        return {
            "ln1": 1 + normal(WIDTH),
            "ln2": 1 + normal(WIDTH),
            "wq": normal(WIDTH, HEADS * SIZE),
            "wk": normal(WIDTH, kv),
            "wv": normal(WIDTH, kv),
            "wo": normal(HEADS * SIZE, WIDTH),
            "wg": normal(WIDTH, 96),
            "wu": normal(WIDTH, 96),
            "wd": normal(96, WIDTH),
        }

    return {
        "embed": normal(VOCABULARY, WIDTH),
        "layers": [layer(), layer()],
        "norm": 1 + normal(WIDTH),
        "head": normal(WIDTH, VOCABULARY),
    }


def rms_norm(x: jax.Array, weight: jax.Array) -> jax.Array:
    mean = jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True)
    return (x * jax.lax.rsqrt(mean + EPSILON)).astype(x.dtype) * weight


def rope(x: jax.Array, positions: jax.Array) -> jax.Array:
    half = SIZE // 2
    angles = positions[..., None] * (1.0 / 10000.0 ** (jnp.arange(0, SIZE, 2) / SIZE))
    cos, sin = jnp.cos(angles)[:, :, None], jnp.sin(angles)[:, :, None]
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def attention(p: Any, h: jax.Array, positions: jax.Array, mask: jax.Array) -> jax.Array:
    rows, tokens, _ = h.shape
    q = rope((h @ p["wq"]).reshape(rows, tokens, HEADS, SIZE), positions)
    k = rope((h @ p["wk"]).reshape(rows, tokens, KV_HEADS, SIZE), positions)
    v = (h @ p["wv"]).reshape(rows, tokens, KV_HEADS, SIZE)
    k, v = (jnp.repeat(x, HEADS // KV_HEADS, 2) for x in (k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(SIZE)
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), -1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(rows, tokens, HEADS * SIZE)


def feed_forward(p: Any, h: jax.Array) -> jax.Array:
    return (jax.nn.silu(h @ p["wg"]) * (h @ p["wu"])) @ p["wd"]


def llama(params: Any, tokens: jax.Array) -> jax.Array:
    """Logits f32 [B,S,V] of tokens s32 [B,S]."""
    x = params["embed"][tokens]
    rows, count = tokens.shape
    positions = jnp.broadcast_to(jnp.arange(count), (rows, count))
    mask = jnp.tril(jnp.ones((count, count), bool))[None, None]
    for p in params["layers"]:
        x = x + attention(p, rms_norm(x, p["ln1"]), positions, mask) @ p["wo"]
        x = x + feed_forward(p, rms_norm(x, p["ln2"]))
    return rms_norm(x, params["norm"]) @ params["head"]


def stacked(params: Any) -> dict[str, Any]:
    """The same weights, those of all layers in one array each."""
    layers = params["layers"]
    together = {name: np.stack([layer[name] for layer in layers]) for name in layers[0]}
    return {**params, "layers": together}


def llama_scan(params: Any, tokens: jax.Array) -> jax.Array:
    """The same numbers from a loop over the layers, whose weights are stacked."""
    x = params["embed"][tokens]
    rows, count = tokens.shape
    positions = jnp.broadcast_to(jnp.arange(count), (rows, count))
    mask = jnp.tril(jnp.ones((count, count), bool))[None, None]

    def layer(x: jax.Array, p: Any) -> tuple[jax.Array, None]:
        x = x + attention(p, rms_norm(x, p["ln1"]), positions, mask) @ p["wo"]
        return x + feed_forward(p, rms_norm(x, p["ln2"])), None

    x, _ = jax.lax.scan(layer, x, params["layers"])
    return rms_norm(x, params["norm"]) @ params["head"]


def rotate_half(x: jax.Array) -> jax.Array:
    return jnp.concatenate([-x[..., SIZE // 2 :], x[..., : SIZE // 2]], -1)


def attention_hf(p: Any, h: jax.Array, tables: tuple[jax.Array, ...], bias: jax.Array) -> jax.Array:
    rows, tokens, _ = h.shape
    cos, sin = (table[:, None] for table in tables)

    def heads(weight: str, count: int) -> jax.Array:
        return (h @ p[weight]).reshape(rows, tokens, count, SIZE).transpose(0, 2, 1, 3)

    def expanded(x: jax.Array) -> jax.Array:
        group = HEADS // KV_HEADS
        wide = jnp.broadcast_to(x[:, :, None], (rows, KV_HEADS, group, tokens, SIZE))
        return wide.reshape(rows, HEADS, tokens, SIZE)

    q, k, v = heads("wq", HEADS), heads("wk", KV_HEADS), heads("wv", KV_HEADS)
    q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
    k, v = expanded(k), expanded(v)
    scores = (q @ k.transpose(0, 1, 3, 2)) * SIZE**-0.5 + bias
    out = jax.nn.softmax(scores, -1) @ v
    return out.transpose(0, 2, 1, 3).reshape(rows, tokens, HEADS * SIZE)


def llama_hf(params: Any, tokens: jax.Array) -> jax.Array:
    """The same numbers from code in transformers' style."""
    x = params["embed"][tokens]
    rows, count = tokens.shape
    positions = jnp.broadcast_to(jnp.arange(count), (rows, count)).astype(jnp.float32)
    angles = positions[..., None] * (1.0 / 10000.0 ** (jnp.arange(0, SIZE, 2) / SIZE))
    whole = jnp.concatenate([angles, angles], -1)
    tables = jnp.cos(whole), jnp.sin(whole)
    allowed = jnp.tril(jnp.ones((count, count), bool))[None, None]
    bias = jnp.where(allowed, 0.0, jnp.finfo(jnp.float32).min)
    for p in params["layers"]:
        x = x + attention_hf(p, rms_norm(x, p["ln1"]), tables, bias) @ p["wo"]
        x = x + feed_forward(p, rms_norm(x, p["ln2"]))
    return rms_norm(x, params["norm"]) @ params["head"]


def tokens(rows: int = 2, count: int = 8) -> np.ndarray:
    return np.random.default_rng(1).integers(0, VOCABULARY, (rows, count)).astype(np.int32)


def lowered() -> Any:
    """What a user's file returns to `graphgen import`."""
    return jax.jit(llama).lower(parameters(), tokens())
