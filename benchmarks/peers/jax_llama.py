"""Llama in plain, unrolled JAX: the program a JAX user writes for what our Llama computes.

The same inputs, the same KV caches (one argument each, donated), the same mathematics and the same
rounding as ``graphgen.models.llama``. The letters are those of the op table: B
rows of a call, R rows of the cache, S active tokens, C attended length, M allocated length, H query
heads, K key-value heads, G = H/K, D head size, E model width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax.stages import Wrapped

Params = Mapping[str, jax.Array]
Cache = tuple[jax.Array, jax.Array]
Arguments = tuple[object, ...]
LOWEST = float(jnp.finfo(jnp.float32).min)
# Ids outside the vocabulary are clamped, writes outside the cache are dropped; -1 is outside.
CLIP = {"mode": "clip", "wrap_negative_indices": False}
DROP = {"mode": "drop", "wrap_negative_indices": False}


@dataclass(frozen=True, slots=True)
class Llama:
    """The sizes of a model, and its rotary frequencies.

    Attributes:
        hidden, intermediate, layers, heads, kv_heads, head_dim, vocabulary: sizes.
        epsilon: of the norms.
        frequencies: f32 [D/2], the inverse frequencies of the rotary embedding.
    """

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    epsilon: float
    frequencies: tuple[float, ...]


def rms_norm(x: jax.Array, weight: jax.Array, epsilon: float) -> jax.Array:
    """Root-mean-square norm of f32 x over the last dimension, rounded before the weight."""
    scale = jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + epsilon)
    return (x * scale).astype(weight.dtype) * weight


def rope(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Rotate the halves of the last dimension of f32 x [B,S,heads,D]; cos, sin are [B,S,1,D/2]."""
    first, second = jnp.split(x, 2, axis=-1)
    turned = (first * cos - second * sin, second * cos + first * sin)
    return jnp.concatenate(turned, axis=-1)


def linear(x: jax.Array, weight: jax.Array) -> jax.Array:
    """x [B,S,K] through weight [N,K]: f32 [B,S,N]."""
    return jnp.einsum("bsk,nk->bsn", x, weight, preferred_element_type=jnp.float32)


def attend(q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array) -> jax.Array:
    """Softmax attention of q [B,S,H,D] over k and v [B,C,K,D], masked by [B,S,C]; [B,S,H*D]."""
    batch, active, heads, size = q.shape
    kv_heads = k.shape[2]
    q = q.reshape(batch, active, kv_heads, heads // kv_heads, size)
    scores = jnp.einsum("bskgd,bckd->bksgc", q, k, preferred_element_type=jnp.float32)
    scores = jnp.where(mask[:, None, :, None, :], scores * size**-0.5, LOWEST)
    weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    out = jnp.einsum("bksgc,bckd->bskgd", weights, v, preferred_element_type=jnp.float32)
    return out.astype(q.dtype).reshape(batch, active, heads * size)


@dataclass(frozen=True, slots=True)
class Call:
    """What every layer of one call shares.

    Attributes:
        rows, positions: s32 [B,1] and [B,S], where in the cache each token is written.
        cos, sin: f32 [B,S,1,D/2].
        mask: pred [B,S,C].
    """

    rows: jax.Array
    positions: jax.Array
    cos: jax.Array
    sin: jax.Array
    mask: jax.Array

    @property
    def attended(self) -> int:
        """C."""
        return self.mask.shape[2]


def attention(
    model: Llama, params: Params, name: str, x: jax.Array, cache: Cache, call: Call
) -> tuple[jax.Array, Cache]:
    """The attention ``name`` of a layer on x [B,S,E], and its caches after the call."""
    q, k, v = (
        linear(x, params[f"{name}.{part}_proj.weight"]).reshape(*x.shape[:2], -1, model.head_dim)
        for part in "qkv"
    )
    q = rope(q, call.cos, call.sin).astype(x.dtype)
    k = rope(k, call.cos, call.sin).astype(x.dtype)
    keys = cache[0].at[call.rows, call.positions].set(k, **DROP)
    values = cache[1].at[call.rows, call.positions].set(v.astype(x.dtype), **DROP)
    out = attend(q, keys[:, : call.attended], values[:, : call.attended], call.mask)
    return linear(out, params[f"{name}.o_proj.weight"]), (keys, values)


def mlp(params: Params, name: str, x: jax.Array) -> jax.Array:
    """The gated MLP ``name`` of a layer on x [B,S,E]: f32, rounded before the last product."""
    gate = linear(x, params[f"{name}.gate_proj.weight"])
    up = linear(x, params[f"{name}.up_proj.weight"])
    hidden = (jax.nn.silu(gate) * up).astype(x.dtype)
    return linear(hidden, params[f"{name}.down_proj.weight"])


def forward(
    model: Llama,
    attended: int,
    params: Params,
    caches: Sequence[Cache],
    tokens: jax.Array,
    positions: jax.Array,
    lengths: jax.Array,
    seq_ids: jax.Array,
) -> tuple[jax.Array, list[Cache]]:
    """One call of the model: logits f32 [B,V] of each row's last token, and the caches after it.

    Args:
        model: sizes.
        attended: C.
        params: weights by their names in the checkpoint.
        caches: a key and a value cache [R,M,K,D] for each layer.
        tokens, positions: s32 [B,S]; position -1 is padding.
        lengths, seq_ids: s32 [B]; row b of the call is row b of the cache, or idle: with
            ``seq_id == R`` it writes nothing.
    """
    angle = positions[..., None, None].astype(jnp.float32) * jnp.array(model.frequencies)
    slots = jnp.arange(attended)
    mask = (slots <= positions[..., None]) & (slots < lengths[:, None, None])
    call = Call(seq_ids[:, None], positions, jnp.cos(angle), jnp.sin(angle), mask)
    x = params["model.embed_tokens.weight"].at[tokens].get(**CLIP).astype(jnp.float32)
    after: list[Cache] = []
    for index, cache in enumerate(caches):
        layer = f"model.layers.{index}"
        h = rms_norm(x, params[f"{layer}.input_layernorm.weight"], model.epsilon)
        out, cache_after = attention(model, params, f"{layer}.self_attn", h, cache, call)
        after.append(cache_after)
        x = x + out
        h = rms_norm(x, params[f"{layer}.post_attention_layernorm.weight"], model.epsilon)
        x = x + mlp(params, f"{layer}.mlp", h)
    x = rms_norm(x, params["model.norm.weight"], model.epsilon)
    chosen = positions == lengths[:, None] - 1
    x = jnp.sum(jnp.where(chosen[..., None], x, 0), axis=1)
    head = params["lm_head.weight"]
    return jnp.einsum("bk,nk->bn", x, head, preferred_element_type=jnp.float32), after


def abstract_params(model: Llama) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes of the weights under their names in the checkpoint; bf16, nothing allocated."""
    E, F, D = model.hidden, model.intermediate, model.head_dim
    layer = {
        "input_layernorm": (E,),
        "self_attn.q_proj": (model.heads * D, E),
        "self_attn.k_proj": (model.kv_heads * D, E),
        "self_attn.v_proj": (model.kv_heads * D, E),
        "self_attn.o_proj": (E, model.heads * D),
        "post_attention_layernorm": (E,),
        "mlp.gate_proj": (F, E),
        "mlp.up_proj": (F, E),
        "mlp.down_proj": (E, F),
    }
    shapes: dict[str, tuple[int, ...]] = {
        f"model.layers.{index}.{name}.weight": shape
        for index in range(model.layers)
        for name, shape in layer.items()
    }
    shapes["model.embed_tokens.weight"] = shapes["lm_head.weight"] = (model.vocabulary, E)
    shapes["model.norm.weight"] = (E,)
    return {name: jax.ShapeDtypeStruct(shape, jnp.bfloat16) for name, shape in shapes.items()}


def lowerable(model: Llama, *, batch: int, active: int, attended: int) -> tuple[Wrapped, Arguments]:
    """The jitted model, and shapes to trace one call of ``active`` tokens a row with.

    The caches have a row for each row of the call and ``attended`` slots, and are donated.
    """
    shape = (batch, attended, model.kv_heads, model.head_dim)
    cache = jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    grid = jax.ShapeDtypeStruct((batch, active), jnp.int32)
    row = jax.ShapeDtypeStruct((batch,), jnp.int32)
    caches = [(cache, cache) for _ in range(model.layers)]
    call = jax.jit(partial(forward, model, attended), donate_argnums=1)
    return call, (abstract_params(model), caches, grid, grid, row, row)
