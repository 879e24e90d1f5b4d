"""The phase ``quantize``: weights and caches in narrow numbers."""

from __future__ import annotations

from graphgen.config.compile_config import CacheOptions, CompileConfig
from graphgen.passes.core import Pass, parse_pipeline
from graphgen.passes.quantization.quantize_cache import QuantizeCache


def quantize(config: CompileConfig) -> list[Pass]:
    """Weights and caches in narrow numbers."""
    return [*parse_pipeline(config.quantization), *narrow_caches(config)]


def narrow_caches(config: CacheOptions) -> list[Pass]:
    """Caches in 8 bits; before heads are laid out, so that scales go with them."""
    narrow = QuantizeCache(config.kv_cache_dtype, config.cache_scale, config.kv_cache_ranges)
    return [narrow] if config.kv_cache_quant else []
