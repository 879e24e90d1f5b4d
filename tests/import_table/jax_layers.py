"""Layers of the table's programs in plain JAX, written as one writes them there."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, Any]


def layer_norm(x: jax.Array, p: Params) -> jax.Array:
    """``(x - mean) / deviation * scale + bias`` of each token."""
    mean = jnp.mean(x, -1, keepdims=True)
    spread = jnp.mean(jnp.square(x - mean), -1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(spread + 1e-5) * p["scale"] + p["bias"]


def rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """``x / sqrt(mean(x^2)) * scale`` of each token."""
    mean = jnp.mean(jnp.square(x), -1, keepdims=True)
    return x * jax.lax.rsqrt(mean + 1e-6) * scale


def dense(x: jax.Array, p: Params) -> jax.Array:
    """``x @ w + b``."""
    return x @ p["w"] + p["b"]


def rope(x: jax.Array, positions: jax.Array) -> jax.Array:
    """Rotary embedding of [B, S, H, D] in halves."""
    half = x.shape[-1] // 2
    rates = 1.0 / 10000.0 ** (jnp.arange(half) / half)
    angles = positions[:, :, None, None] * rates
    a, b = x[..., :half], x[..., half:]
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def split_heads(x: jax.Array, heads: int) -> jax.Array:
    """[B, S, H * D] as [B, S, H, D]."""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads)


def attend(
    q: jax.Array, k: jax.Array, v: jax.Array, *, shown: Any = None, bias: Any = None, scale: Any = 1
) -> jax.Array:
    """Attention of [B, S, H, D] over [B, C, K, D], each of K read by H / K heads."""
    k, v = (jnp.repeat(x, q.shape[2] // x.shape[2], axis=2) for x in (k, v))
    scores = jnp.einsum("bshd,bchd->bhsc", q, k) * scale
    if bias is not None:
        scores = scores + bias
    if shown is not None:
        scores = jnp.where(shown, scores, -1e9)
    mixed = jnp.einsum("bhsc,bchd->bshd", jax.nn.softmax(scores, -1), v)
    return mixed.reshape(*mixed.shape[:2], -1)


def encoder_block(x: jax.Array, p: Params, heads: int) -> jax.Array:
    """Attention over everything and a feed-forward layer, each behind its norm."""
    h = layer_norm(x, p["ln1"])
    q, k, v = (split_heads(dense(h, p[name]), heads) for name in "qkv")
    x = x + dense(attend(q, k, v, scale=q.shape[-1] ** -0.5), p["o"])
    return x + dense(jax.nn.gelu(dense(layer_norm(x, p["ln2"]), p["up"])), p["down"])


class Weights:
    """Random parameters from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def normal(self, *shape: int) -> np.ndarray:
        """Normal numbers with deviation 0.3."""
        return (0.3 * self.random.standard_normal(shape)).astype(np.float32)

    def linear(self, wide: int, out: int) -> Params:
        """A matrix and its bias."""
        return {"w": self.normal(wide, out), "b": self.normal(out)}

    def norm(self, wide: int) -> Params:
        """The scale and bias of a layer norm."""
        return {"scale": 1 + self.normal(wide), "bias": self.normal(wide)}

    def encoder(self, wide: int, inner: int) -> Params:
        """The parameters of :func:`encoder_block`."""
        made: Params = {name: self.linear(wide, wide) for name in "qkvo"}
        made |= {"ln1": self.norm(wide), "ln2": self.norm(wide)}
        return made | {"up": self.linear(wide, inner), "down": self.linear(inner, wide)}
