"""Tensors of a transformers model under the names of its checkpoints, experts in one stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.oracles.fused_layers import FUSED, apart, stacked_norms

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

# Module of the mixture and names of gate, up and down in checkpoints; transformers' own are
# mlp.gate, mlp.experts.gate_up_proj and mlp.experts.down_proj.
_MIXTURES = {"mixtral": ("block_sparse_moe", ("w1", "w3", "w2"))}
_PLAIN = ("mlp", ("gate_proj", "up_proj", "down_proj"))


def stored_tensors(model: PreTrainedModel) -> dict[str, np.ndarray[Any, Any]]:
    """Every tensor of the model, as :func:`~graphgen.runtime.checkpoint.open_checkpoint` names it.

    transformers holds gate and up of a layer's experts in one tensor [E,2I,H].
    """
    return {name: tensor.numpy() for name, tensor in _stored(model)}


def stored_shapes(model: PreTrainedModel) -> dict[str, tuple[int, ...]]:
    """The shapes of :func:`stored_tensors`, of a model without data too."""
    return {name: tuple(tensor.shape) for name, tensor in _stored(model)}


def checkpoint_tensors(model: PreTrainedModel) -> dict[str, Tensor]:
    """Every tensor as checkpoints have it: one for each expert, or those of the model."""
    if model.config.model_type in (*_AS_HELD, *FUSED):
        names = _SAVED.get(str(model.config.model_type), {})
        return {_saved(name, names): tensor for name, tensor in model.state_dict().items()}
    found: dict[str, Tensor] = {}
    for name, tensor in _stored(model):
        layer, experts, last = name.partition(".experts.")
        if experts:
            found |= {f"{layer}.experts.{e}.{last}": one.clone() for e, one in enumerate(tensor)}
        else:
            found[name] = tensor
    return found


# What other names checkpoints have than the models of transformers, by the ends of names.
_SAVED = {
    "granitemoe": {
        "experts.gate_up_proj": "input_linear.weight",
        "experts.down_proj": "output_linear.weight",
        "router.weight": "router.layer.weight",
    }
}


def _saved(name: str, names: dict[str, str]) -> str:
    end = next((end for end in names if name.endswith(f".{end}")), "")
    return name.removesuffix(end) + names[end] if end else name


def _stored(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    split = _AS_HELD.get(str(model.config.model_type))
    if split is not None:
        yield from split(model)
        return
    if model.config.model_type in FUSED:
        yield from apart(model)
        return
    module, (gate, up, down) = _MIXTURES.get(str(model.config.model_type), _PLAIN)
    for name, tensor in model.state_dict().items():
        layer, found, last = name.partition("mlp.experts.")
        if found and last == "gate_up_proj":
            for part, half in zip((gate, up), tensor.chunk(2, dim=1), strict=True):
                yield f"{layer}{module}.experts.{part}.weight", half
        elif found:
            yield f"{layer}{module}.experts.{down}.weight", tensor
        else:
            yield name.replace(".mlp.gate.weight", f".{module}.gate.weight"), tensor


def _gpt_oss(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Of gate and up, whose features take turns; the matrices are [E,in,out]."""
    for name, tensor in model.state_dict().items():
        before, found, last = name.partition(".experts.")
        kind = "bias" if last.endswith("_bias") else "weight"
        whole = tensor.transpose(1, 2) if found and kind == "weight" else tensor
        if last.startswith("gate_up_proj"):
            yield f"{before}.experts.gate_proj.{kind}", whole[:, ::2]
            yield f"{before}.experts.up_proj.{kind}", whole[:, 1::2]
        elif found:
            yield f"{before}.experts.down_proj.{kind}", whole
        else:
            yield name, tensor


def _llama4(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Of gate and up [E,H,2I], one after the other, and down [E,I,H]."""
    for name, tensor in model.state_dict().items():
        before, found, last = name.partition(".experts.")
        if last == "gate_up_proj":
            for part, half in zip(("gate", "up"), tensor.chunk(2, dim=2), strict=True):
                yield f"{before}.experts.{part}_proj.weight", half.transpose(1, 2)
        elif found:
            yield f"{before}.experts.down_proj.weight", tensor.transpose(1, 2)
        else:
            yield name, tensor


def _dbrx(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Of q, k and v in one layer, and of experts below each other."""
    attention, ffn = model.config.attn_config, model.config.ffn_config
    width = model.config.d_model
    rows = attention.kv_n_heads * width // model.config.n_heads
    for name, tensor in model.state_dict().items():
        before, found, last = name.partition(".experts.mlp.")
        if found:
            apart = tensor.reshape(ffn.moe_num_experts, ffn.ffn_hidden_size, width)
            yield f"{before}.experts.{last}.weight", apart.mT if last == "w2" else apart
        elif name.endswith("Wqkv.weight"):
            for part, own in zip("qkv", tensor.split([width, rows, rows]), strict=True):
                yield name.replace("Wqkv", f"{part}_proj"), own
        else:
            yield name, tensor


def _granite_moe(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Of gate and up [E,2I,H], one after the other; the router is a layer of a module."""
    for name, tensor in model.state_dict().items():
        before, found, last = name.partition(".experts.")
        layer, shared, _ = name.partition(".shared_mlp.")
        beside = f"{layer}.block_sparse_moe.shared_experts"
        if last == "gate_up_proj":
            for part, half in zip(("gate", "up"), tensor.chunk(2, dim=1), strict=True):
                yield f"{before}.experts.{part}_proj.weight", half
        elif name.endswith("shared_mlp.input_linear.weight"):
            for part, half in zip(("gate", "up"), tensor.chunk(2), strict=True):
                yield f"{beside}.{part}_proj.weight", half
        elif shared:
            yield f"{beside}.down_proj.weight", tensor
        elif found:
            yield f"{before}.experts.down_proj.weight", tensor
        else:
            yield name.replace(".router.weight", ".router.layer.weight"), tensor


# Those whose checkpoints have the tensors of transformers' models, and how they are split.
_AS_HELD: dict[str, Callable[[PreTrainedModel], Iterator[tuple[str, Tensor]]]] = {
    "gpt_oss": _gpt_oss,
    "llama4_text": _llama4,
    "stablelm": stacked_norms,
    "dbrx": _dbrx,
    "granitemoe": _granite_moe,
    "granitemoeshared": _granite_moe,
}
