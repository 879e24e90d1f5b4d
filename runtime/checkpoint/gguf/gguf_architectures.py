"""The architectures that GGUF files are read of: names of tensors, and how their values are kept.

Names on the left are llama.cpp's, as in the table ``MODEL_TENSORS`` of the gguf package; what
happens to values is what llama.cpp's converter does to the model of that name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from graphgen.runtime.checkpoint.gguf.gguf_order import (
    ONE_LESS,
    TRANSPOSED,
    Restore,
    fused_rows,
    rotary_rows,
)

_NAME: Final = re.compile(
    r"(?:blk\.(?P<layer>0|[1-9][0-9]*)\.)?(?P<part>\w+)\.(?P<kind>weight|bias)"
)


@dataclass(frozen=True)
class Architecture:
    """How the tensors of one architecture are called, and what has to be done to them.

    Attributes:
        name: ``general.architecture``.
        layers: what Hugging Face's names of a layer's tensors begin with, before its number.
        whole: llama.cpp's name to Hugging Face's of tensors there is one of, without the ending.
        layer: likewise of a layer's, without what they begin with.
        restore: by llama.cpp's name with its ending, or without it for weight and bias.
    """

    name: str
    layers: str
    whole: Mapping[str, str]
    layer: Mapping[str, str]
    restore: Mapping[str, Restore] = field(default_factory=dict[str, Restore])

    def hf_name(self, name: str) -> str:
        """The Hugging Face name of the GGUF tensor ``name``; the name itself if there is none."""
        match = _NAME.fullmatch(name)
        if match is None:
            return name
        layer, part, kind = match["layer"], match["part"], match["kind"]
        if layer is None:
            return f"{self.whole[part]}.{kind}" if part in self.whole else name
        known = self.layer.get(part)
        return f"{self.layers}.{layer}.{known}.{kind}" if known else name

    def restore_of(self, name: str) -> Restore | None:
        """What has to be undone to the values of the GGUF tensor ``name``, if anything."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        part = match["part"]
        return self.restore.get(f"{part}.{match['kind']}", self.restore.get(part))


_DECODER: Final[Mapping[str, str]] = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_DECODER_LAYER: Final[Mapping[str, str]] = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_HEAD_NORMS: Final = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_GEMMA_NORMS: Final = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
# BLOOM's, which GPT-NeoX has taken over with one change.
_FUSED_LAYER: Final[Mapping[str, str]] = {
    "attn_norm": "input_layernorm",
    "attn_qkv": "self_attention.query_key_value",
    "attn_output": "self_attention.dense",
    "ffn_norm": "post_attention_layernorm",
    "ffn_up": "mlp.dense_h_to_4h",
    "ffn_down": "mlp.dense_4h_to_h",
}

LLAMA: Final = Architecture(
    "llama",
    "model.layers",
    _DECODER,
    _DECODER_LAYER,
    {
        "attn_q": rotary_rows("num_attention_heads"),
        "attn_k": rotary_rows("num_key_value_heads"),
    },
)
QWEN2: Final = Architecture("qwen2", "model.layers", _DECODER, _DECODER_LAYER)
QWEN3: Final = Architecture("qwen3", "model.layers", _DECODER, {**_DECODER_LAYER, **_HEAD_NORMS})
GEMMA3: Final = Architecture(
    "gemma3",
    "model.layers",
    _DECODER,
    {**_DECODER_LAYER, **_HEAD_NORMS, **_GEMMA_NORMS},
    dict.fromkeys(("output_norm", "attn_norm", *_HEAD_NORMS, *_GEMMA_NORMS), ONE_LESS),
)
GPT2: Final = Architecture(
    "gpt2",
    "transformer.h",
    {
        "token_embd": "transformer.wte",
        "position_embd": "transformer.wpe",
        "output_norm": "transformer.ln_f",
        "output": "lm_head",
    },
    {
        "attn_norm": "ln_1",
        "attn_qkv": "attn.c_attn",
        "attn_output": "attn.c_proj",
        "ffn_norm": "ln_2",
        "ffn_up": "mlp.c_fc",
        "ffn_down": "mlp.c_proj",
    },
    {f"{name}.weight": TRANSPOSED for name in ("attn_qkv", "attn_output", "ffn_up", "ffn_down")},
)
BLOOM: Final = Architecture(
    "bloom",
    "transformer.h",
    {
        "token_embd": "transformer.word_embeddings",
        "token_embd_norm": "transformer.word_embeddings_layernorm",
        "output_norm": "transformer.ln_f",
        "output": "lm_head",
    },
    _FUSED_LAYER,
    {"attn_qkv": fused_rows("n_head")},
)
GPT_NEOX: Final = Architecture(
    "gptneox",
    "gpt_neox.layers",
    {
        "token_embd": "gpt_neox.embed_in",
        "output_norm": "gpt_neox.final_layer_norm",
        "output": "lm_head",
    },
    {
        **_FUSED_LAYER,
        "attn_qkv": "attention.query_key_value",
        "attn_output": "attention.dense",
    },
    {"attn_qkv": fused_rows("num_attention_heads")},
)

ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    item.name: item for item in (LLAMA, QWEN2, QWEN3, GEMMA3, GPT2, BLOOM, GPT_NEOX)
}
"""By ``general.architecture``."""
