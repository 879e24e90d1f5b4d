"""All attributes by class, with inheritance between classes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from graphgen.runtime.aws_config.attribute import Attribute
from graphgen.runtime.aws_config.device_rows import COMPILER, LOADING, PARALLELISM
from graphgen.runtime.aws_config.expert_rows import (
    BLOCKWISE,
    EXPERTS,
    FUSED_TOKEN_EXPERTS,
    HYBRID_SHARDING,
    ROUTED_EXPERTS,
    ROUTER,
)
from graphgen.runtime.aws_config.kernel_rows import ATTENTION, KERNELS
from graphgen.runtime.aws_config.quantization_rows import (
    CACHE_QUANTIZATION,
    KV_QUANTIZATION,
    QUANTIZATION,
)
from graphgen.runtime.aws_config.sampling_rows import ON_DEVICE_SAMPLING, SAMPLING
from graphgen.runtime.aws_config.serving_rows import (
    CHUNKED_PREFILL,
    FUSED_SPECULATION,
    LORA,
    LORA_SERVING,
    PAGES,
    SPECULATION,
)
from graphgen.runtime.aws_config.size_rows import BATCHES, BUCKETS, DTYPES, PREFIXES, SIZES
from graphgen.runtime.aws_config.tnx_part_rows import (
    TNX_BATCHING,
    TNX_CACHE_QUANTIZATION,
    TNX_GENERATION,
    TNX_QUANTIZATION,
    TNX_SPARSE,
)
from graphgen.runtime.aws_config.tnx_rows import TNX_CONFIG, TNX_OPTIONS

ATTRIBUTES: tuple[Attribute, ...] = (
    *SIZES,
    *DTYPES,
    *BATCHES,
    *BUCKETS,
    *SAMPLING,
    *PARALLELISM,
    *ATTENTION,
    *QUANTIZATION,
    *CACHE_QUANTIZATION,
    *LOADING,
    *COMPILER,
    *KERNELS,
    *SPECULATION,
    *LORA,
    *PAGES,
    *PREFIXES,
    *ON_DEVICE_SAMPLING,
    *KV_QUANTIZATION,
    *FUSED_SPECULATION,
    *LORA_SERVING,
    *CHUNKED_PREFILL,
    *EXPERTS,
    *ROUTER,
    *ROUTED_EXPERTS,
    *BLOCKWISE,
    *FUSED_TOKEN_EXPERTS,
    *HYBRID_SHARDING,
    *TNX_CONFIG,
    *TNX_OPTIONS,
    *TNX_QUANTIZATION,
    *TNX_CACHE_QUANTIZATION,
    *TNX_GENERATION,
    *TNX_BATCHING,
    *TNX_SPARSE,
)

# The class whose attributes a class has too.
BASES: Mapping[str, str] = {"MoENeuronConfig": "NeuronConfig"}


@cache
def attributes_of(owner: str) -> Mapping[str, Attribute]:
    """The attributes of a class and of the class it extends, by name."""
    inherited = dict(attributes_of(BASES[owner])) if owner in BASES else {}
    return inherited | {row.name: row for row in ATTRIBUTES if row.owner == owner}


def owners() -> tuple[str, ...]:
    """The classes of the table, in its order."""
    return tuple(dict.fromkeys(row.owner for row in ATTRIBUTES))
