"""Read and write the rotary-embedding settings of a ``config.json``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.models.config_reader import ConfigReader
from graphgen.nn import RopeConfig
from graphgen.nn.rope import yarn_attention_factor
from graphgen.numbers import is_finite

# Settings that each form of scaling reads in transformers; the other forms ignore them.
_OF_FORMS = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": (
        *("factor", "original_max_position_embeddings", "attention_factor", "beta_fast"),
        *("beta_slow", "truncate", "mscale", "mscale_all_dim", "finetuned"),
    ),
    "longrope": (
        *("factor", "original_max_position_embeddings", "attention_factor", "short_factor"),
        "long_factor",
    ),
}


def read_rope(reader: ConfigReader) -> RopeConfig:
    """``rope_theta`` and ``rope_scaling``, or transformers 5's ``rope_parameters``."""
    scaling, theta = _scaling(reader)
    kind = scaling.only("rope_type", ["default", "linear", "llama3", "yarn"], "default")
    scaling.only("partial_rotary_factor", [1.0], 1.0)
    scaling.neutral(*_read_by_others(str(kind)))
    if kind == "default":
        scaling.finish()
        return RopeConfig(theta)
    if kind == "yarn":
        return _read_yarn(scaling, theta, reader)
    factor = scaling.number("factor")
    if kind == "linear":
        scaling.finish()
        return RopeConfig(theta, "linear", factor)
    low, high = scaling.number("low_freq_factor"), scaling.number("high_freq_factor")
    if high < low:
        raise GraphgenError(
            "GG0503", f"config: rope_scaling.high_freq_factor = {high} is below low {low}"
        )
    original = scaling.integer("original_max_position_embeddings")
    scaling.finish()
    return RopeConfig(theta, "llama3", factor, low, high, original)


def _read_by_others(kind: str) -> set[str]:
    """The settings that other forms read, and ``finetuned``, which none does."""
    own = {*_OF_FORMS[kind]} - {"finetuned"}
    return {name for names in _OF_FORMS.values() for name in names} - own


def _scaling(reader: ConfigReader) -> tuple[ConfigReader, float]:
    """The settings of scaled positions, and the base."""
    given, older = reader.mapping("rope_parameters") or {}, reader.mapping("rope_scaling") or {}
    if given and older and given != older:
        raise GraphgenError("GG0503", "config: rope_parameters and rope_scaling disagree")
    given = given or older
    scaling = ConfigReader({"rope_type": given.get("type"), **given})
    scaling.used |= {"type", "partial_rotary_factor"}
    factor = scaling.config.get("attn_factor")
    if factor is not None:
        raise GraphgenError(
            "GG0502",
            f"config: rope_scaling.attn_factor = {factor!r} is read in two ways: transformers "
            "ignores it, vLLM multiplies attention_factor by it",
            help="remove it, or set attention_factor to the product",
        )
    return scaling, scaling.number("rope_theta", reader.number("rope_theta", 10000.0))


def _read_yarn(scaling: ConfigReader, theta: float, reader: ConfigReader) -> RopeConfig:
    """YaRN; transformers' default of the original context is the context."""
    positions = reader.integer("max_position_embeddings", 2048)
    original = scaling.integer("original_max_position_embeddings", positions)
    factor = scaling.number("factor", positions / original)
    scales = [_optional(scaling, name) for name in ("mscale", "mscale_all_dim")]
    given = _optional(scaling, "attention_factor")
    rope = RopeConfig(
        theta,
        "yarn",
        factor,
        original_positions=original,
        attention_factor=yarn_attention_factor(factor, *scales) if given is None else given,
        beta_fast=scaling.number("beta_fast", 32.0),
        beta_slow=scaling.number("beta_slow", 1.0),
        truncate=scaling.boolean("truncate", True),
        mscale_all_dim=scales[1] or 0.0,
    )
    scaling.finish()
    return rope


def read_longrope(reader: ConfigReader) -> RopeConfig | None:
    """LongRoPE (arXiv 2402.13753); ``None`` for another kind.

    transformers divides by ``long_factor`` in calls that reach beyond the context before it was
    stretched, and computes a text from its beginning when it gets there. Here a cache has one kind
    of keys: those of ``long_factor`` if its rows have more slots than that context.
    """
    scaling, theta = _scaling(reader)
    if scaling.config.get("rope_type") not in ("longrope", "su", "yarn"):
        return None
    positions = reader.integer("max_position_embeddings", 4096)
    original = scaling.integer(
        "original_max_position_embeddings",
        reader.integer("original_max_position_embeddings", positions),
    )
    scaling.neutral("rope_type")
    factor = _optional(scaling, "factor") or positions / original
    given = _optional(scaling, "attention_factor")
    root = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    rope = RopeConfig(
        theta,
        "longrope",
        original_positions=original,
        attention_factor=root if given is None else given,
        short_factors=_factors(scaling, "short_factor"),
        long_factors=_factors(scaling, "long_factor"),
    )
    scaling.finish()
    return rope


def _factors(scaling: ConfigReader, key: str) -> tuple[float, ...]:
    """Divisors of frequencies (GG0503)."""
    value = scaling.config.get(key)
    scaling.neutral(key)
    listed = cast("list[object]", value) if isinstance(value, list) else []
    found = [float(one) for one in listed if is_finite(one) and one > 0]
    if not found or len(found) != len(listed):
        what = f"config: rope_scaling.{key} = {value!r} is not a list of positive numbers"
        raise GraphgenError("GG0503", what)
    return tuple(found)


def read_partial(
    config: Mapping[str, object], fraction: float = 1.0
) -> tuple[float, Mapping[str, object]]:
    """The rotated fraction of a head, and the ``config.json`` without it.

    transformers 5 keeps ``partial_rotary_factor`` with the other rotary parameters. ``fraction`` is
    the default.
    """
    left, given = dict(config), config.get("rope_parameters")
    found = left.pop("partial_rotary_factor", None)
    if isinstance(given, Mapping):
        facts = dict(cast("Mapping[str, object]", given))
        found = facts.pop("partial_rotary_factor", None) or found
        left["rope_parameters"] = facts
    own = ConfigReader({"partial_rotary_factor": found})
    return own.number("partial_rotary_factor", fraction), left


def rotated(head_dim: int, fraction: float) -> int:
    """The rotated elements of a head (GG0503 for a fraction that gives no even number)."""
    size = int(head_dim * fraction)
    if size % 2 or not 0 < size <= head_dim:
        raise GraphgenError(
            "GG0503",
            f"config: partial_rotary_factor = {fraction} rotates {size} dimensions, "
            f"expected an even number up to {head_dim}",
        )
    return size


def _optional(scaling: ConfigReader, name: str) -> float | None:
    scaling.used.add(name)
    return None if scaling.config.get(name) is None else scaling.number(name)


def rope_to_hf(rope: RopeConfig) -> dict[str, object]:
    """``rope_theta`` and, for scaled frequencies, ``rope_scaling``."""
    out: dict[str, object] = {"rope_theta": rope.theta}
    if rope.kind == "default":
        return out
    if rope.kind == "longrope":
        return {**out, "rope_scaling": _longrope_to_hf(rope)}
    scaling: dict[str, object] = {"rope_type": rope.kind, "factor": rope.factor}
    if rope.kind == "llama3":
        scaling |= {
            "low_freq_factor": rope.low_freq_factor,
            "high_freq_factor": rope.high_freq_factor,
            "original_max_position_embeddings": rope.original_positions,
        }
    if rope.kind == "yarn":
        scaling |= {
            "original_max_position_embeddings": rope.original_positions,
            "attention_factor": rope.attention_factor,
            "beta_fast": rope.beta_fast,
            "beta_slow": rope.beta_slow,
            "truncate": rope.truncate,
        }
        scaling |= {"mscale_all_dim": rope.mscale_all_dim} if rope.mscale_all_dim else {}
    return {**out, "rope_scaling": scaling}


def _longrope_to_hf(rope: RopeConfig) -> dict[str, object]:
    return {
        "rope_type": rope.kind,
        "original_max_position_embeddings": rope.original_positions,
        "attention_factor": rope.attention_factor,
        "short_factor": list(rope.short_factors),
        "long_factor": list(rope.long_factors),
    }
