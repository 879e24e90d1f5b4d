"""Random small Llama models as transformers makes and runs them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SIZES: dict[str, Any] = {
    "vocab_size": 131,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}


def write_llama(folder: Path, **changes: Any) -> PreTrainedModel:
    """Save a random model with ``save_pretrained`` and return it.

    Norm weights are not 1 and biases not 0, as they are in a new model: a forgotten one would not
    show. The weights are large enough for attention to choose between positions.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(11)
    model = LlamaForCausalLM(LlamaConfig(**{**SIZES, "initializer_range": 0.2, **changes}))
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if name.endswith("norm.weight"):
                tensor.uniform_(0.5, 1.5)
            elif name.endswith("bias"):
                tensor.normal_(0, 0.3)
    model.save_pretrained(folder)
    return model.eval()


def all_logits(model: PreTrainedModel, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
    """f32 [len(tokens), V]: the logits after every prefix, from one pass without a cache."""
    import torch

    with torch.no_grad():
        return model(torch.tensor([list(tokens)]), use_cache=False).logits[0].float().numpy()
