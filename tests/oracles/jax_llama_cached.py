"""Llamas with a KV cache that somebody else wrote in plain JAX, in four styles one meets.

``positions`` writes each token at a position of its own: ``cache.at[rows, positions].set(new)``.
``sliced`` writes all rows at one place by ``dynamic_update_slice`` and groups the query heads in a
dimension of their own. ``heads_first`` keeps heads before slots, as transformers' static cache
does, and chooses between the new token and what is there. ``mapped`` is written for one sequence
and spread over rows by ``vmap``.

Each has a prefill of tokens s32 [B,S] and a decode of one token a row; both take the cache and give
it back, with the logits f32 [B,V] of the last token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.oracles.jax_llama import (
    HEADS,
    KV_HEADS,
    SIZE,
    feed_forward,
    parameters,
    rms_norm,
    rope,
    rotate_half,
)

LAYERS, ROWS, SLOTS = 2, 3, 12
GROUP = HEADS // KV_HEADS
Cache = Any
Attend = Callable[[Any, jax.Array, Cache], tuple[jax.Array, Cache]]


def layers(params: Any, x: jax.Array, cache: list[Cache], attend: Attend) -> Any:
    """The decoder over embedded tokens: hidden states and the new cache."""
    new: list[Cache] = []
    for p, kept in zip(params["layers"], cache, strict=True):
        read, kept = attend(p, rms_norm(x, p["ln1"]), kept)
        new.append(kept)
        x = x + read @ p["wo"]
        x = x + feed_forward(p, rms_norm(x, p["ln2"]))
    return rms_norm(x, params["norm"]), new


def projected(p: Any, h: jax.Array) -> tuple[jax.Array, ...]:
    rows, tokens, _ = h.shape
    counts = (("wq", HEADS), ("wk", KV_HEADS), ("wv", KV_HEADS))
    return tuple((h @ p[name]).reshape(rows, tokens, count, SIZE) for name, count in counts)


# ---- positions: ragged rows, left or right padding ----------------------------------------------


def positions_forward(params: Any, cache: Any, tokens: jax.Array, positions: jax.Array) -> Any:
    """Hidden states of tokens at these positions; -1 for padding."""
    rows = jnp.arange(tokens.shape[0])[:, None]
    count = cache[0]["k"].shape[1]
    # An index of -1 would be the last slot.
    slots = jnp.where(positions < 0, count, positions)
    mask = jnp.arange(count)[None, None, :] <= positions[:, :, None]

    def attend(p: Any, h: Any, kept: Any) -> Any:
        q, k, v = projected(p, h)
        q, k = rope(q, positions), rope(k, positions)
        k_cache = kept["k"].at[rows, slots].set(k, mode="drop")
        v_cache = kept["v"].at[rows, slots].set(v, mode="drop")
        keys, values = (jnp.repeat(x, GROUP, 2) for x in (k_cache, v_cache))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, keys) / np.sqrt(SIZE)
        weights = jax.nn.softmax(jnp.where(mask[:, None], scores, -1e9), -1)
        read = jnp.einsum("bhqk,bkhd->bqhd", weights, values)
        return read.reshape(*h.shape[:2], HEADS * SIZE), {"k": k_cache, "v": v_cache}

    return layers(params, params["embed"][tokens], cache, attend)


def positions_prefill(params: Any, cache: Any, tokens: jax.Array, lengths: jax.Array) -> Any:
    slots = jnp.arange(tokens.shape[1])
    positions = jnp.where(slots[None] < lengths[:, None], slots[None], -1)
    x, cache = positions_forward(params, cache, tokens, positions)
    last = jnp.take_along_axis(x, (lengths - 1)[:, None, None], axis=1)[:, 0]
    return last @ params["head"], cache


def positions_decode(params: Any, cache: Any, tokens: jax.Array, lengths: jax.Array) -> Any:
    x, cache = positions_forward(params, cache, tokens, (lengths - 1)[:, None])
    return x[:, 0] @ params["head"], cache


# ---- sliced: one place for all rows --------------------------------------------------------------


def sliced_forward(params: Any, cache: Any, tokens: jax.Array, start: Any) -> Any:
    rows, count = tokens.shape
    positions = jnp.broadcast_to(start + jnp.arange(count), (rows, count))
    mask = jnp.arange(cache[0][0].shape[1])[None] <= positions[0][:, None]

    def attend(p: Any, h: Any, kept: Any) -> Any:
        q, k, v = projected(p, h)
        q, k = rope(q, positions), rope(k, positions)
        k_cache = jax.lax.dynamic_update_slice(kept[0], k, (0, start, 0, 0))
        v_cache = jax.lax.dynamic_update_slice(kept[1], v, (0, start, 0, 0))
        grouped = q.reshape(rows, count, KV_HEADS, GROUP, SIZE)
        scores = jnp.einsum("bskgd,btkd->bkgst", grouped, k_cache) * SIZE**-0.5
        scores = jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
        read = jnp.einsum("bkgst,btkd->bskgd", jax.nn.softmax(scores, -1), v_cache)
        return read.reshape(rows, count, HEADS * SIZE), (k_cache, v_cache)

    return layers(params, params["embed"][tokens], cache, attend)


def sliced_prefill(params: Any, cache: Any, tokens: jax.Array) -> Any:
    x, cache = sliced_forward(params, cache, tokens, 0)
    return x[:, -1] @ params["head"], cache


def sliced_decode(params: Any, cache: Any, tokens: jax.Array, start: jax.Array) -> Any:
    x, cache = sliced_forward(params, cache, tokens, start)
    return x[:, 0] @ params["head"], cache


# ---- heads_first: transformers' layout -----------------------------------------------------------


def heads_first_forward(params: Any, cache: Any, tokens: jax.Array, positions: jax.Array) -> Any:
    rows, count = tokens.shape
    angles = positions[..., None] * (1.0 / 10000.0 ** (jnp.arange(0, SIZE, 2) / SIZE))
    whole = jnp.concatenate([angles, angles], -1)[:, None]
    cos, sin = jnp.cos(whole), jnp.sin(whole)
    slots = cache[0]["k"].shape[2]
    allowed = jnp.arange(slots)[None, None] <= positions[:, :, None]
    bias = jnp.where(allowed, 0.0, jnp.finfo(jnp.float32).min)[:, None]

    def turned(x: jax.Array) -> jax.Array:
        return x * cos + rotate_half(x) * sin

    def updated(kept: jax.Array, new: jax.Array) -> jax.Array:
        if count > 1:
            return kept.at[:, :, :count].set(new)
        here = jnp.arange(slots)[None, None, :, None] == positions[:, None, :, None]
        return jnp.where(here, new, kept)

    def attend(p: Any, h: Any, kept: Any) -> Any:
        q, k, v = (x.transpose(0, 2, 1, 3) for x in projected(p, h))
        k_cache, v_cache = updated(kept["k"], turned(k)), updated(kept["v"], v)

        def expanded(x: jax.Array) -> jax.Array:
            wide = jnp.broadcast_to(x[:, :, None], (rows, KV_HEADS, GROUP, slots, SIZE))
            return wide.reshape(rows, HEADS, slots, SIZE)

        keys, values = expanded(k_cache), expanded(v_cache)
        scores = (turned(q) @ keys.transpose(0, 1, 3, 2)) * SIZE**-0.5 + bias
        read = jax.nn.softmax(scores, -1) @ values
        read = read.transpose(0, 2, 1, 3).reshape(rows, count, HEADS * SIZE)
        return read, {"k": k_cache, "v": v_cache}

    return layers(params, params["embed"][tokens], cache, attend)


def heads_first_prefill(params: Any, cache: Any, tokens: jax.Array) -> Any:
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    x, cache = heads_first_forward(params, cache, tokens, positions)
    return x[:, -1] @ params["head"], cache


def heads_first_decode(params: Any, cache: Any, tokens: jax.Array, positions: jax.Array) -> Any:
    x, cache = heads_first_forward(params, cache, tokens, positions[:, None])
    return x[:, 0] @ params["head"], cache


# ---- mapped: one sequence, spread over rows by vmap ----------------------------------------------


def mapped_forward(params: Any, cache: Any, tokens: jax.Array, start: Any) -> Any:
    """Of one sequence: tokens s32 [S], caches [M,K,D]."""
    (count,) = tokens.shape
    positions = start + jnp.arange(count)
    mask = jnp.arange(cache[0]["k"].shape[0])[None] <= positions[:, None]
    angles = positions[:, None] * (1.0 / 10000.0 ** (jnp.arange(0, SIZE, 2) / SIZE))
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]

    def turned(x: jax.Array) -> jax.Array:
        a, b = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def attend(p: Any, h: Any, kept: Any) -> Any:
        q = (h @ p["wq"]).reshape(count, HEADS, SIZE)
        k, v = ((h @ p[name]).reshape(count, KV_HEADS, SIZE) for name in ("wk", "wv"))
        q, k = turned(q), turned(k)
        k_cache = jax.lax.dynamic_update_slice_in_dim(kept["k"], k, start, 0)
        v_cache = jax.lax.dynamic_update_slice_in_dim(kept["v"], v, start, 0)
        keys, values = (jnp.repeat(x, GROUP, 1) for x in (k_cache, v_cache))
        scores = jnp.einsum("qhd,khd->hqk", q, keys) / jnp.sqrt(SIZE)
        weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), -1)
        read = jnp.einsum("hqk,khd->qhd", weights, values)
        return read.reshape(count, HEADS * SIZE), {"k": k_cache, "v": v_cache}

    return layers(params, params["embed"][tokens], cache, attend)


def mapped_prefill(params: Any, cache: Any, tokens: jax.Array) -> Any:
    def one(cache: Any, tokens: jax.Array) -> Any:
        x, cache = mapped_forward(params, cache, tokens, 0)
        return x[-1] @ params["head"], cache

    return jax.vmap(one)(cache, tokens)


def mapped_decode(params: Any, cache: Any, tokens: jax.Array, positions: jax.Array) -> Any:
    def one(cache: Any, token: jax.Array, position: jax.Array) -> Any:
        x, cache = mapped_forward(params, cache, token, position)
        return x[0] @ params["head"], cache

    return jax.vmap(one)(cache, tokens, positions)


# ---- stacked: the layers' weights in one tensor each, and their caches ---------------------------


def stacked_parameters() -> Any:
    """The same weights, those of all layers in one tensor each."""
    params = parameters()
    return {**params, "layers": jax.tree.map(lambda *x: np.stack(x), *params["layers"])}


def stacked_decode(
    params: Any, cache: Any, tokens: jax.Array, start: jax.Array, *, scanned: bool
) -> Any:
    """One token a row at slot ``start``; caches f32 [L,B,M,K,D], by a scan or layer by layer."""
    rows, count = tokens.shape
    positions = jnp.broadcast_to(start + jnp.arange(count), (rows, count))
    mask = jnp.arange(cache["k"].shape[2])[None] <= positions[0][:, None]

    def layer(x: jax.Array, given: Any) -> Any:
        p, k_cache, v_cache = given
        q, k, v = projected(p, rms_norm(x, p["ln1"]))
        q, k = rope(q, positions), rope(k, positions)
        k_cache = jax.lax.dynamic_update_slice(k_cache, k, (0, start, 0, 0))
        v_cache = jax.lax.dynamic_update_slice(v_cache, v, (0, start, 0, 0))
        keys, values = (jnp.repeat(y, GROUP, 2) for y in (k_cache, v_cache))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, keys) / np.sqrt(SIZE)
        weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), -1)
        read = jnp.einsum("bhqk,bkhd->bqhd", weights, values).reshape(rows, count, -1)
        x = x + read @ p["wo"]
        return x + feed_forward(p, rms_norm(x, p["ln2"])), (k_cache, v_cache)

    x, keys, values = params["embed"][tokens], cache["k"], cache["v"]
    if scanned:
        x, (keys, values) = jax.lax.scan(layer, x, (params["layers"], keys, values))
    for i in () if scanned else range(LAYERS):
        own = jax.tree.map(lambda y, i=i: y[i], params["layers"])
        x, (k, v) = layer(x, (own, keys[i], values[i]))
        keys, values = keys.at[i].set(k), values.at[i].set(v)
    return rms_norm(x, params["norm"])[:, 0] @ params["head"], {"k": keys, "v": values}


STYLES = {
    "positions": (positions_prefill, positions_decode),
    "sliced": (sliced_prefill, sliced_decode),
    "heads_first": (heads_first_prefill, heads_first_decode),
    "mapped": (mapped_prefill, mapped_decode),
}


def empty_cache(style: str, B: int = ROWS, M: int = SLOTS) -> Any:
    """Zeros for every layer, in the layout of a style."""
    inner = (KV_HEADS, M) if style == "heads_first" else (M, KV_HEADS)
    zeros = np.zeros((B, *inner, SIZE), np.float32)
    return [(zeros, zeros) if style == "sliced" else {"k": zeros, "v": zeros}] * LAYERS


def prefill_arguments(style: str, B: int = ROWS, S: int = 6) -> tuple[Any, ...]:
    """Arguments behind parameters and cache; rows of different lengths where they may differ."""
    random = np.random.default_rng(1)
    tokens = random.integers(0, 50, (B, S)).astype(np.int32)
    return (tokens, _lengths(B, S)) if style == "positions" else (tokens,)


def decode_arguments(style: str, step: int, B: int = ROWS, S: int = 6) -> tuple[Any, ...]:
    """The same of the decode step ``step``, from 0."""
    random = np.random.default_rng(2 + step)
    tokens = random.integers(0, 50, (B, 1)).astype(np.int32)
    if style == "positions":
        return tokens, _lengths(B, S) + np.int32(1 + step)
    if style == "sliced":
        return tokens, np.int32(S + step)
    return tokens, np.full(B, S + step, np.int32)


def _lengths(rows: int, count: int) -> np.ndarray:
    return np.array([max(count - 2 * row, 1) for row in range(rows)], np.int32)


def lowered(
    style: str,
    phase: str,
    *,
    donate: bool = True,
    B: int = ROWS,
    S: int = 6,
    M: int = SLOTS,
) -> Any:
    """``jax.jit(...).lower(...)`` of one program."""
    which = ("prefill", "decode").index(phase)
    arguments = prefill_arguments(style, B, S) if which == 0 else decode_arguments(style, 0, B, S)
    jitted = jax.jit(STYLES[style][which], donate_argnums=(1,) if donate else ())
    return jitted.lower(parameters(), empty_cache(style, B, M), *arguments)


# What ``graphgen import FILE.py:NAME --dim B=3,S=6,M=12`` calls.


def prefill(B: int = ROWS, S: int = 6, M: int = SLOTS) -> Any:
    return lowered("positions", "prefill", donate=False, B=B, S=S, M=M)


def decode(B: int = ROWS, S: int = 6, M: int = SLOTS) -> Any:
    return lowered("positions", "decode", donate=False, B=B, S=S, M=M)
