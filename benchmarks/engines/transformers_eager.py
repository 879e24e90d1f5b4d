"""transformers, eager, with a cache that grows."""

from __future__ import annotations

from typing import Any

from transformers import DynamicCache

from benchmarks.comparison.interfaces import Case
from benchmarks.comparison.torch_llama import TorchLlama


def _cache(model: Any, case: Case) -> DynamicCache:
    return DynamicCache()


def create() -> TorchLlama:
    """The engine."""
    return TorchLlama("transformers eager", _cache, lambda model: model)
