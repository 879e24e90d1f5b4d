"""Rotary position embedding (RoPE): inverse frequencies and their scalings."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphgen.ir import Literal
from graphgen.ir.dtype import f32
from graphgen.nn.yarn import yarn_frequencies


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
