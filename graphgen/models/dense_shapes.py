"""Named configurations of published decoders without experts: OLMo-2."""

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
    }
)
