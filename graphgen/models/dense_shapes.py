"""Named configurations of published decoders without experts: OLMo-2, Phi-3 and Phi-4."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from graphgen.models.expert_shapes import decoder

_OLMO2: dict[str, object] = {
    "vocab_size": 100352,
    "rms_norm_eps": 1e-6,
    "rope_theta": 500000.0,
    "max_position_embeddings": 4096,
}


DENSE_SHAPES: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "olmo-2-7b": decoder("olmo2", *(4096, 11008, 32, 32, 32), **_OLMO2),
        "olmo-2-32b": decoder("olmo2", *(5120, 27648, 64, 40, 8), **_OLMO2),
        "phi-3-mini": decoder(
            "phi3",
            *(3072, 8192, 32, 32, 32),
            vocab_size=32064,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            max_position_embeddings=4096,
            sliding_window=2047,
        ),
        "phi-4": decoder(
            "phi3",
            *(5120, 17920, 40, 40, 10),
            vocab_size=100352,
            rms_norm_eps=1e-5,
            rope_theta=250000.0,
            max_position_embeddings=16384,
        ),
    }
)
