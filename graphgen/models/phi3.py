"""Phi-3 and Phi-4: Mistral's decoder; q, k, v and gate, up are one layer each in checkpoints.

Parts of heads may be rotated (Phi-4-mini). LongRoPE divides frequencies by other factors where the
rows of a cache are longer than the context that it stretches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self, TypeVar

from graphgen.errors import GraphgenError
from graphgen.models.config_reader import ConfigReader
from graphgen.models.decoder import EMBEDDING, body, head
from graphgen.models.decoder_config import read_sizes, smaller, to_hf, wider
from graphgen.models.family import Family, FusedRows
from graphgen.models.mistral import MistralConfig
from graphgen.models.rope_config import read_longrope, read_partial, rotated
from graphgen.models.twins import WIDE_WINDOW, wide_head_dim
from graphgen.nn import RopeConfig


@dataclass(frozen=True, slots=True)
class Phi3Config(MistralConfig):
    """Sizes and switches under Hugging Face's names.

    ``partial_rotary_factor`` of each head is rotated; ``sliding_window`` None means no window.
    """

    partial_rotary_factor: float = 1.0

    @property
    def rotary_dim(self) -> int:
        """The rotated elements of a head, which come first."""
        return int(self.head_dim * self.partial_rotary_factor)

    def mini(self) -> Self:
        """See :func:`~.decoder_config.smaller`; the window is felt after 6 tokens."""
        small = replace(smaller(self), sliding_window=self.sliding_window and 6)
        # Rows of the MLP on a rank are not those of its heads.
        inner = 24 * small.num_attention_heads
        # Of 16 elements any of the usual fractions is even.
        return replace(_with_heads_of(16, small), intermediate_size=inner)

    def wide(self) -> Self:
        """See :func:`~.decoder_config.wider`; a window of few positions."""
        window = self.sliding_window and WIDE_WINDOW
        size = wide_head_dim(self.partial_rotary_factor)
        return _with_heads_of(size, replace(wider(self), sliding_window=window))

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        return to_hf(self, "phi3", "Phi3ForCausalLM")


Config = TypeVar("Config", bound=Phi3Config)


def _with_heads_of(size: int, config: Config) -> Config:
    """Heads of another size; as many factors of frequencies as are rotated."""
    made = replace(config, hidden_size=size * config.num_attention_heads, head_dim=size)
    count = made.rotary_dim // 2
    short, long = made.rope.short_factors[:count], made.rope.long_factors[:count]
    return replace(made, rope=replace(made.rope, short_factors=short, long_factors=long))


def read_phi3(config: Mapping[str, object]) -> Phi3Config:
    """A ``config.json`` of ``model_type: phi3`` (GG0502, GG0503)."""
    fraction, left = read_partial(config)
    reader = ConfigReader({"rms_norm_eps": 1e-5, **left})
    rope = read_longrope(reader)
    read = Phi3Config(
        **read_sizes(reader, positions=4096, rope=rope),
        sliding_window=reader.optional_integer("sliding_window"),
        partial_rotary_factor=fraction,
    )
    rotated(read.head_dim, fraction)
    if rope is not None:
        _check_factors(rope, read.rotary_dim // 2)
    # The context before it was stretched matters to LongRoPE alone.
    reader.neutral("original_max_position_embeddings")
    for key in ("full_attn_mod", "interpolate_factor"):
        reader.only(key, [1], 1)
    reader.finish()
    return read


def _check_factors(rope: RopeConfig, count: int) -> None:
    """Refuse lists of factors that are not one for each frequency (GG0503)."""
    for key, factors in (("short", rope.short_factors), ("long", rope.long_factors)):
        if len(factors) != count:
            raise GraphgenError(
                "GG0503",
                f"config: rope_scaling.{key}_factor has {len(factors)} numbers for {count} "
                "frequencies",
            )


def _fused(config: Phi3Config) -> Mapping[str, FusedRows]:
    kv_rows, inner = config.num_key_value_heads * config.head_dim, config.intermediate_size
    q_rows = config.num_attention_heads * config.head_dim
    heads = ("q_proj", q_rows), ("k_proj", kv_rows), ("v_proj", kv_rows)
    return {
        "qkv_proj": FusedRows(heads),
        "gate_up_proj": FusedRows((("gate_proj", inner), ("up_proj", inner))),
    }


PHI3 = Family(
    "phi3",
    ("Phi3ForCausalLM",),
    read_phi3,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
    fused=_fused,
)
