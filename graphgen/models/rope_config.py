"""Read and write the rotary-embedding settings of a ``config.json``."""

from __future__ import annotations

from graphgen.errors import GraphgenError
from graphgen.models.config_reader import ConfigReader
from graphgen.nn import RopeConfig
from graphgen.nn.yarn import yarn_attention_factor


def read_rope(reader: ConfigReader) -> RopeConfig:
    """``rope_theta`` and ``rope_scaling``, or transformers 5's ``rope_parameters``."""
    given, older = reader.mapping("rope_parameters") or {}, reader.mapping("rope_scaling") or {}
    if given and older and given != older:
        raise GraphgenError("GG0503", "config: rope_parameters and rope_scaling disagree")
    given = given or older
    scaling = ConfigReader({"rope_type": given.get("type"), **given})
    scaling.used |= {"type", "partial_rotary_factor"}
    theta = scaling.number("rope_theta", reader.number("rope_theta", 10000.0))
    kind = scaling.only("rope_type", ["default", "linear", "llama3", "yarn"], "default")
    scaling.only("partial_rotary_factor", [1.0], 1.0)
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
    if high <= low:
        raise GraphgenError(
            "GG0503", f"config: rope_scaling.high_freq_factor = {high} is not above low {low}"
        )
    original = scaling.integer("original_max_position_embeddings")
    scaling.finish()
    return RopeConfig(theta, "llama3", factor, low, high, original)


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


def _optional(scaling: ConfigReader, name: str) -> float | None:
    scaling.used.add(name)
    return None if scaling.config.get(name) is None else scaling.number(name)


def rope_to_hf(rope: RopeConfig) -> dict[str, object]:
    """``rope_theta`` and, for scaled frequencies, ``rope_scaling``."""
    out: dict[str, object] = {"rope_theta": rope.theta}
    if rope.kind == "default":
        return out
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
