"""Rotary position embedding (RoPE): inverse frequencies and their scalings."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphgen.ir import Literal
from graphgen.ir.dtype import f32


def yarn_frequencies(
    theta: float,
    dims: int,
    factor: float,
    original_positions: int,
    *,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
) -> list[float]:
    """``theta ** (-2i / dims)`` for i < dims / 2, stretched as transformers' ``yarn`` does.

    Dimensions that turn more than ``beta_fast`` times over the original context are kept, those
    that turn less than ``beta_slow`` times are divided by ``factor``, and those between are blended
    linearly by their index.

    Args:
        theta: the base.
        dims: the rotated elements of a head.
        factor: the stretch of the context.
        original_positions: the context length before it.
        beta_fast, beta_slow: turns at both ends of the blend.
        truncate: whether its ends are rounded to whole dimensions.
    """
    low, high = (
        dims * math.log(original_positions / (turns * 2 * math.pi)) / (2 * math.log(theta))
        for turns in (beta_fast, beta_slow)
    )
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    if low == high:
        # A blend over no dimension is a step.
        high += 0.001
    found: list[float] = []
    for index in range(dims // 2):
        plain = theta ** (-2.0 * index / dims)
        stretched = min(max((index - low) / (high - low), 0.0), 1.0)
        found.append(stretched * plain / factor + (1 - stretched) * plain)
    return found


def yarn_attention_factor(
    factor: float, mscale: float | None = None, mscale_all_dim: float | None = None
) -> float:
    """The number that cosine and sine are multiplied by: ``0.1 * log(factor) + 1`` by default."""
    if mscale and mscale_all_dim:
        return yarn_scale(factor, mscale) / yarn_scale(factor, mscale_all_dim)
    return yarn_scale(factor, 1.0)


def yarn_scale(factor: float, mscale: float) -> float:
    """``0.1 * mscale * log(factor) + 1`` of a context stretched by ``factor``, else 1."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Parameters of rotary frequencies.

    Attributes:
        theta: the base.
        kind: ``default``, ``linear``, ``llama3``, ``yarn`` or ``longrope``, as in
            ``rope_scaling.rope_type``.
        factor: the stretch of the others than ``default``.
        low_freq_factor, high_freq_factor: the band ``llama3`` blends over.
        original_positions: the context length before the stretch (``llama3``, ``yarn``,
            ``longrope``).
        attention_factor: what cosine and sine are multiplied by (``yarn``, ``longrope``).
        beta_fast, beta_slow: the turns between which ``yarn`` blends.
        truncate: whether the blend of ``yarn`` begins and ends at whole dimensions.
        mscale_all_dim: what DeepSeek's models scale scores by (``yarn``); 0 for nothing.
        short_factors: divisor of each frequency (``longrope``) in caches whose rows have up to
            ``original_positions``.
        long_factors: those in larger ones.
    """

    theta: float = 10000.0
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_positions: int = 8192
    attention_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    mscale_all_dim: float = 0.0
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()


def inverse_frequencies(config: RopeConfig, head_dim: int) -> Literal:
    """f32 [head_dim / 2]: :func:`scaled_frequencies` as a literal."""
    return Literal.of(f32, scaled_frequencies(config, head_dim))


def scaled_frequencies(config: RopeConfig, head_dim: int) -> list[float]:
    """``theta ** (-2i / head_dim)`` for i < head_dim / 2, scaled by ``config.kind``.

    ``llama3`` keeps wavelengths shorter than original/high, divides those longer than original/low
    by ``factor``, and blends linearly in between, if they differ (Llama 3.1 model card;
    transformers' ``_compute_llama3_parameters``). ``longrope`` divides each by its short factor;
    see :func:`long_frequencies`.
    """
    if config.kind == "yarn":
        return yarn_frequencies(
            config.theta,
            head_dim,
            config.factor,
            config.original_positions,
            beta_fast=config.beta_fast,
            beta_slow=config.beta_slow,
            truncate=config.truncate,
        )
    plain = _plain(config, head_dim)
    if config.kind == "longrope":
        return [f / factor for f, factor in zip(plain, config.short_factors, strict=True)]
    return [_scaled(config, frequency) for frequency in plain]


def long_frequencies(config: RopeConfig, head_dim: int) -> Literal | None:
    """f32 [head_dim / 2] of caches with longer rows than ``original_positions``, of ``longrope``.

    ``None`` for the other kinds.
    """
    if config.kind != "longrope":
        return None
    pairs = zip(_plain(config, head_dim), config.long_factors, strict=True)
    return Literal.of(f32, [f / factor for f, factor in pairs])


def _plain(config: RopeConfig, head_dim: int) -> list[float]:
    return [config.theta ** (-2.0 * i / head_dim) for i in range(head_dim // 2)]


def _scaled(config: RopeConfig, frequency: float) -> float:
    if config.kind == "default":
        return frequency
    if config.kind == "linear":
        return frequency / config.factor
    turns = config.original_positions * frequency / (2 * math.pi)
    low, high = config.low_freq_factor, config.high_freq_factor
    if low == high:
        return frequency if turns > high else frequency / config.factor
    blend = min(max((turns - low) / (high - low), 0.0), 1.0)
    return (1 - blend) * frequency / config.factor + blend * frequency
