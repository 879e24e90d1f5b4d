"""Read and write the rotary-embedding settings of a ``config.json``."""

from __future__ import annotations

from graphgen.errors import GraphgenError
from graphgen.models.config_reader import ConfigReader
from graphgen.nn import RopeConfig


def read_rope(reader: ConfigReader) -> RopeConfig:
    """``rope_theta`` and ``rope_scaling``, or transformers 5's ``rope_parameters``."""
    given, older = reader.mapping("rope_parameters") or {}, reader.mapping("rope_scaling") or {}
    if given and older and given != older:
        raise GraphgenError("GG0503", "config: rope_parameters and rope_scaling disagree")
    given = given or older
    scaling = ConfigReader({"rope_type": given.get("type"), **given})
    scaling.used |= {"type", "partial_rotary_factor"}
    theta = scaling.number("rope_theta", reader.number("rope_theta", 10000.0))
    kind = scaling.only("rope_type", ["default", "linear", "llama3"], "default")
    scaling.only("partial_rotary_factor", [1.0], 1.0)
    if kind == "default":
        scaling.finish()
        return RopeConfig(theta)
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
    return {**out, "rope_scaling": scaling}
