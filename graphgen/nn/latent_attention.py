"""Multi-head latent attention (arXiv 2405.04434): keys and values from one cached latent vector."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import DType, Value
from graphgen.ir.dtype import f32
from graphgen.nn.attention import Rotary, StepInputs, read_updated
from graphgen.nn.linear import linear
from graphgen.nn.norm import rms_norm

# Of the norms within attention, whatever that of the other norms is (transformers).
_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class LatentConfig:
    """Sizes of one layer's latent attention.

    Attributes:
        heads: of queries; each has keys and values of its own, made of the latent vector.
        latent: size of the latent vector, ``kv_lora_rank``.
        plain: elements of a query and a key that are not rotated, ``qk_nope_head_dim``.
        rotated: those that are, ``qk_rope_head_dim``; all heads share one rotated key.
        value: elements of a value, ``v_head_dim``.
        query_latent: size of the vector that queries are made of; 0 for the hidden states.
        scale: factor of the scores.
        bias: the products with hidden states, and that of the output, have a bias.
        pairs: of elements that are rotated together, as in ``rope``.
    """

    heads: int
    latent: int
    plain: int
    rotated: int
    value: int
    query_latent: int
    scale: float
    bias: bool = False
    pairs: str = "neighbors"


def latent_attention(
    b: Builder,
    x: Value,
    config: LatentConfig,
    step: StepInputs,
    mask: Value,
    turns: Rotary,
    dtype: DType,
) -> Value:
    """Attention of x [B,S,E] over the cache of latent vectors: ``dtype`` [B,S,E].

    The cache has one head of ``latent`` normalized elements and the rotated key, such as 512 + 64.
    """
    width = x.shape[-1]
    assert isinstance(width, int)
    with b.scope("self_attn"):
        query = _query(b, x, config, turns)
        cached = read_updated(b, "latent_cache", _latent(b, x, config, turns), step)
        keys, values = _expand(b, cached, config)
        out = b.attention(query, keys, values, mask, config.scale)
        flat = b.reshape(out, (*x.shape[:2], config.heads * config.value))
        return linear(b, "o_proj", flat, width, bias=config.bias, dtype=dtype)


def _query(b: Builder, x: Value, config: LatentConfig, turns: Rotary) -> Value:
    """Queries [B,S,H,D]: plain elements, then rotated ones."""
    size = config.plain + config.rotated
    name, source = "q_proj", x
    if config.query_latent:
        source = linear(b, "q_a_proj", x, config.query_latent, bias=config.bias, dtype=f32)
        name, source = "q_b_proj", rms_norm(b, "q_a_layernorm", source, _EPSILON, x.dtype)
    flat = linear(b, name, source, config.heads * size, dtype=f32)
    query = b.reshape(flat, (*x.shape[:2], config.heads, size))
    plain = b.slice_dim(query, 3, 0, config.plain)
    turned = b.slice_dim(query, 3, config.plain, size)
    turned = b.rope(turned, turns.cos, turns.sin, config.pairs)
    # Rotated in f32 and rounded once.
    return b.concatenate([b.convert(part, x.dtype) for part in (plain, turned)], 3)


def _latent(b: Builder, x: Value, config: LatentConfig, turns: Rotary) -> Value:
    """The latent vector and the rotated key of each token, [B,S,1,latent + rotated]."""
    size = config.latent + config.rotated
    both = linear(b, "kv_a_proj_with_mqa", x, size, bias=config.bias, dtype=f32)
    latent = b.slice_dim(both, 2, 0, config.latent)
    latent = rms_norm(b, "kv_a_layernorm", latent, _EPSILON, x.dtype)
    key = b.slice_dim(both, 2, config.latent, size)
    key = b.reshape(key, (*x.shape[:2], 1, config.rotated))
    key = b.convert(b.rope(key, turns.cos, turns.sin, config.pairs), x.dtype)
    return b.concatenate([b.reshape(latent, (*x.shape[:2], 1, config.latent)), key], 3)


def _expand(b: Builder, cached: Value, config: LatentConfig) -> tuple[Value, Value]:
    """Keys [B,C,H,plain + rotated] and values [B,C,H,value] of the cache's [B,C,1,...]."""
    places = cached.shape[:2]
    latent = b.reshape(b.slice_dim(cached, 3, 0, config.latent), (*places, config.latent))
    size = config.plain + config.value
    flat = linear(b, "kv_b_proj", latent, config.heads * size)
    both = b.reshape(flat, (*places, config.heads, size))
    shared = b.slice_dim(cached, 3, config.latent, config.latent + config.rotated)
    shared = b.broadcast_in_dim(shared, (*places, config.heads, config.rotated), list(range(4)))
    keys = b.concatenate([b.slice_dim(both, 3, 0, config.plain), shared], 3)
    return keys, b.slice_dim(both, 3, config.plain, size)
