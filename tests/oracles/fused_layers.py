"""Layers that transformers, as checkpoints, has in one: their tensors apart; and heads in one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


def _phi3(config: Any, module: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """q, then k, then v; gate, then up."""
    if module.endswith("qkv_proj"):
        size = getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
        counts = (config.num_attention_heads, *[config.num_key_value_heads] * 2)
        parts = tensor.split([count * size for count in counts])
        names = ("q_proj", "k_proj", "v_proj")
    else:
        parts, names = tensor.chunk(2), ("gate_proj", "up_proj")
    before = module.rpartition(".")[0]
    yield from zip([f"{before}.{name}" for name in names], parts, strict=True)


def _falcon(config: Any, module: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The rows that transformers' attention takes for q, k and v."""
    import torch
    from transformers.models.falcon.modeling_falcon import FalconAttention

    rows = torch.arange(len(tensor)).reshape(1, 1, -1)
    q, k, v = FalconAttention(config, 0)._split_heads(rows)
    # The new architecture repeats k and v for the query heads of a group.
    group = config.num_attention_heads // config.num_kv_heads
    step = group if config.new_decoder_architecture else 1
    before = module.rpartition(".")[0]
    for name, part in (("q", q), ("k", k[:, :, ::step]), ("v", v[:, :, ::step])):
        yield f"{before}.{name}_proj", tensor[part.flatten()]


# By model_type: the names of fused layers, and the parts of one.
_Parts = Callable[[Any, str, "Tensor"], Iterator[tuple[str, "Tensor"]]]
FUSED: dict[str, tuple[tuple[str, ...], _Parts]] = {
    "falcon": (("query_key_value",), _falcon),
    "phi3": (("qkv_proj", "gate_up_proj"), _phi3),
    "glm": (("gate_up_proj",), _phi3),
    "glm4": (("gate_up_proj",), _phi3),
}


def apart(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of the model, those of fused layers apart."""
    layers, parts = FUSED[str(model.config.model_type)]
    for name, tensor in model.state_dict().items():
        module, _, kind = name.rpartition(".")
        if module.endswith(layers):
            yield from (
                (f"{own}.{kind}", rows) for own, rows in parts(model.config, module, tensor)
            )
        else:
            yield name, tensor


def stacked_norms(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a StableLM, the norms of a layer's heads in one."""
    import torch

    heads: dict[str, list[Tensor]] = {}
    for name, tensor in model.state_dict().items():
        before, found, last = name.partition(".norms.")
        if found:
            kind = last.partition(".")[2]
            heads.setdefault(f"{before}.norms.{kind}", []).append(tensor)
        else:
            yield name, tensor
    for name, tensors in heads.items():
        yield name, torch.stack(tensors)
