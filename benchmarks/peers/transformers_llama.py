"""The transformers side of ``generate.py``: the same weights, run eagerly."""

from __future__ import annotations

import time
from typing import Any, cast

import numpy as np
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from graphgen.runtime.checkpoint.interfaces import Checkpoint

_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


class Eager:
    """A Llama of transformers with the tensors of a checkpoint, stepped greedily.

    Args:
        checkpoint: where the weights come from, as arrays.
        dtype: ``f32`` or ``bf16``.
    """

    def __init__(self, checkpoint: Checkpoint, dtype: str) -> None:
        model: Any = LlamaForCausalLM(LlamaConfig(**cast(dict[str, Any], checkpoint.config)))
        names = dict(checkpoint.tensors())
        tensors = {n: torch.from_numpy(np.array(checkpoint.read(n), np.float32)) for n in names}
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
        model.load_state_dict(tensors)
        model.tie_weights()
        self.model: Any = model.to(_DTYPES[dtype]).eval()
        self.cache: Any = None
        self.next: Any = None

    @torch.inference_mode()
    def prefill(self, prompts: np.ndarray[Any, Any]) -> float:
        """Process [B,S] prompts into a new cache; seconds."""
        tokens = torch.from_numpy(prompts).long()
        start = time.perf_counter()
        self.cache = DynamicCache()
        out = self.model(tokens, past_key_values=self.cache, use_cache=True, logits_to_keep=1)
        self.next = out.logits[:, -1].argmax(-1)
        return time.perf_counter() - start

    @torch.inference_mode()
    def decode(self, steps: int) -> list[float]:
        """Append ``steps`` greedy tokens; seconds of each step."""
        out: list[float] = []
        for _ in range(steps):
            start = time.perf_counter()
            logits = self.model(
                self.next[:, None], past_key_values=self.cache, use_cache=True
            ).logits
            self.next = logits[:, -1].argmax(-1)
            out.append(time.perf_counter() - start)
        return out
