"""transformers with the forward pass compiled by torch.compile, weights frozen, a static cache."""

from __future__ import annotations

from typing import Any

import torch
from transformers import StaticCache

from benchmarks.comparison.interfaces import Case
from benchmarks.comparison.torch_llama import TorchLlama


def _cache(model: Any, case: Case) -> StaticCache:
    return StaticCache(config=model.config, max_cache_len=case.slots)


def _compiled(model: Any) -> Any:
    # Frozen weights are packed once by Inductor, for oneDNN's products.
    torch._inductor.config.freezing = True  # pyright: ignore
    torch.compiler.reset()
    return torch.compile(model.forward, dynamic=False)


def create() -> TorchLlama:
    """The engine."""
    return TorchLlama("transformers compiled", _cache, _compiled)
