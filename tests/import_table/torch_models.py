"""Small random models of transformers' own classes, one function an architecture.

``graphgen import tests.import_table.torch_models:llama`` exports one as a user's file would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers as hf
from torch import nn

ROWS, TOKENS, WORDS = 2, 8, 61
WIDTH, HEADS, KV_HEADS, HEAD, INNER, LAYERS = 32, 4, 2, 8, 48, 2
# A model and its arguments, by position and by name.
Given = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Architecture:
    """An architecture of the table.

    Attributes:
        make: builds the model and what it is called with.
        composites: how many of each composite its mathematics has.
        differs: settings that are not transformers' defaults.
    """

    make: Callable[[], Given]
    composites: Mapping[str, int]
    differs: str = ""


ARCHITECTURES: dict[str, Architecture] = {}


def _enter(
    label: str, composites: Mapping[str, int], differs: str = ""
) -> Callable[[Callable[[], Given]], Callable[[], Given]]:
    def enter(make: Callable[[], Given]) -> Callable[[], Given]:
        ARCHITECTURES[label] = Architecture(make, composites, differs)
        return make

    return enter


def ids() -> torch.Tensor:
    """Token ids of every row."""
    made = torch.Generator().manual_seed(3)
    return torch.randint(3, WORDS, (ROWS, TOKENS), generator=made)


def random(model: Any) -> Any:
    """A model with weights far enough from zero that no part of it is without effect."""
    made = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=made))
    return model.eval()


def sizes(**changes: Any) -> dict[str, Any]:
    """Settings that decoders share."""
    shared = {
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "vocab_size": WORDS,
        "max_position_embeddings": 64,
        "use_cache": False,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return {**shared, **changes}


def language_model(name: str, **changes: Any) -> Given:
    """A causal language model by the prefix of its two classes."""
    torch.manual_seed(0)
    config = getattr(hf, f"{name}Config")(**sizes(**changes))
    return random(getattr(hf, f"{name}ForCausalLM")(config)), (ids(),), {}


@_enter("Llama", {"attention": 2, "rms_norm": 5, "rope": 4, "silu": 2})
def llama() -> Given:
    return language_model("Llama")


@_enter("Mistral", {"attention": 2, "rms_norm": 5, "rope": 4, "silu": 2})
def mistral() -> Given:
    return language_model("Mistral", sliding_window=4)


@_enter("Qwen2", {"attention": 2, "rms_norm": 5, "rope": 4, "silu": 2})
def qwen2() -> Given:
    return language_model("Qwen2")


@_enter("Qwen3", {"attention": 2, "rms_norm": 9, "rope": 4, "silu": 2})
def qwen3() -> Given:
    return language_model("Qwen3", head_dim=HEAD)


@_enter("Gemma 2", {"attention": 2, "rms_norm": 9, "rope": 4, "gelu": 2})
def gemma2() -> Given:
    return language_model("Gemma2", head_dim=HEAD, sliding_window=4, query_pre_attn_scalar=HEAD)


@_enter("Gemma 3", {"attention": 2, "rms_norm": 13, "rope": 4, "gelu": 2})
def gemma3() -> Given:
    torch.manual_seed(0)
    settings = sizes(
        head_dim=HEAD,
        sliding_window=4,
        query_pre_attn_scalar=HEAD,
        layer_types=["sliding_attention", "full_attention"],
    )
    return random(hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**settings))), (ids(),), {}


@_enter("Phi", {"attention": 2, "layer_norm": 3, "rope": 4, "gelu": 2})
def phi() -> Given:
    return language_model("Phi", partial_rotary_factor=0.5, num_key_value_heads=HEADS)


@_enter("Phi-3", {"attention": 2, "rms_norm": 5, "rope": 4, "silu": 2})
def phi3() -> Given:
    return language_model("Phi3")


@_enter("Falcon", {"attention": 2, "layer_norm": 3, "rope": 4, "gelu": 2})
def falcon() -> Given:
    return language_model("Falcon", multi_query=True, num_kv_heads=1, ffn_hidden_size=INNER)


@_enter("StableLM", {"attention": 2, "layer_norm": 5, "rope": 4, "silu": 2})
def stablelm() -> Given:
    return language_model("StableLm", partial_rotary_factor=0.5)


@_enter("OLMo 2", {"attention": 2, "rms_norm": 9, "rope": 4, "silu": 2})
def olmo2() -> Given:
    return language_model("Olmo2")


@_enter("Cohere", {"attention": 2, "layer_norm": 3, "rope": 4, "silu": 2})
def cohere() -> Given:
    return language_model("Cohere")


@_enter("GPT-2", {"attention": 2, "layer_norm": 5, "gelu": 2})
def gpt2() -> Given:
    torch.manual_seed(0)
    config = hf.GPT2Config(
        **sizes(n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=64, n_inner=INNER)
    )
    return random(hf.GPT2LMHeadModel(config)), (ids(),), {}


@_enter("GPT-NeoX", {"attention": 2, "layer_norm": 5, "rope": 4, "gelu": 2})
def gpt_neox() -> Given:
    return language_model("GPTNeoX", rotary_pct=0.5)


@_enter("GPT-J", {"attention": 2, "layer_norm": 3, "rope": 4, "gelu": 2})
def gptj() -> Given:
    return language_model("GPTJ", n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, rotary_dim=4)


@_enter("OPT", {"attention": 2, "layer_norm": 5})
def opt() -> Given:
    return language_model("OPT", ffn_dim=INNER, word_embed_proj_dim=WIDTH)


@_enter("BLOOM", {"attention": 2, "layer_norm": 6, "gelu": 2})
def bloom() -> Given:
    return language_model("Bloom", n_layer=LAYERS, n_head=HEADS)


@_enter("Mixtral", {"attention": 2, "rms_norm": 5, "rope": 4, "experts": 2})
def mixtral() -> Given:
    return language_model("Mixtral", num_local_experts=4, num_experts_per_tok=2)


@_enter("Qwen2-MoE", {"attention": 2, "rms_norm": 5, "rope": 4, "silu": 2, "experts": 2})
def qwen2_moe() -> Given:
    return language_model(
        "Qwen2Moe",
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=24,
        shared_expert_intermediate_size=INNER,
        decoder_sparse_step=1,
    )


def _latent(**changes: Any) -> dict[str, Any]:
    """Settings of attention over latent keys, with values of another width than keys."""
    return {
        "num_key_value_heads": HEADS,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 24,
        "n_group": 2,
        "topk_group": 1,
        **changes,
    }


@_enter("DeepSeek-V2", {"attention": 2, "rms_norm": 9, "rope": 4, "silu": 2, "experts": 1})
def deepseek_v2() -> Given:
    return language_model("DeepseekV2", **_latent())


@_enter("DeepSeek-V3", {"attention": 2, "rms_norm": 9, "rope": 4, "silu": 2, "experts": 1})
def deepseek_v3() -> Given:
    return language_model("DeepseekV3", **_latent())


@_enter("Llama 4", {"attention": 2, "rms_norm": 9, "rope": 4, "silu": 2, "experts": 1})
def llama4() -> Given:
    torch.manual_seed(0)
    settings = sizes(
        intermediate_size_mlp=INNER,
        head_dim=HEAD,
        num_local_experts=4,
        num_experts_per_tok=1,
        interleave_moe_layer_step=2,
    )
    return random(hf.Llama4ForCausalLM(hf.Llama4TextConfig(**settings))), (ids(),), {}


@_enter("GPT-OSS", {"attention": 2, "rms_norm": 5, "rope": 4, "experts": 2})
def gpt_oss() -> Given:
    return language_model(
        "GptOss", head_dim=HEAD, num_local_experts=4, num_experts_per_tok=2, sliding_window=4
    )


def _t5() -> Any:
    return hf.T5Config(
        d_model=WIDTH,
        d_kv=HEAD,
        d_ff=INNER,
        num_layers=LAYERS,
        num_heads=HEADS,
        vocab_size=WORDS,
        use_cache=False,
    )


@_enter("T5 encoder", {"attention": 2, "rms_norm": 5})
def t5_encoder() -> Given:
    torch.manual_seed(0)
    return random(hf.T5EncoderModel(_t5())), (ids(),), {}


@_enter("T5", {"attention": 6, "rms_norm": 12})
def t5() -> Given:
    torch.manual_seed(0)
    model = random(hf.T5ForConditionalGeneration(_t5()))
    return model, (), {"input_ids": ids(), "decoder_input_ids": ids()[:, :5]}


@_enter("BERT", {"attention": 2, "layer_norm": 5, "gelu": 2})
def bert() -> Given:
    torch.manual_seed(0)
    return random(hf.BertModel(hf.BertConfig(**sizes()))), (ids(),), {}


def _seen(**changes: Any) -> dict[str, Any]:
    """Settings of models of images, in patches."""
    return sizes(image_size=16, patch_size=4, **changes)


@_enter("CLIP text", {"attention": 2, "layer_norm": 5, "gelu": 2})
def clip_text() -> Given:
    torch.manual_seed(0)
    return random(hf.CLIPTextModel(hf.CLIPTextConfig(**sizes(projection_dim=16)))), (ids(),), {}


@_enter("ViT", {"attention": 2, "layer_norm": 5, "gelu": 2})
def vit() -> Given:
    torch.manual_seed(0)
    return random(hf.ViTModel(hf.ViTConfig(**_seen()))), (torch.randn(ROWS, 3, 16, 16),), {}


@_enter("Whisper encoder", {"attention": 2, "layer_norm": 5, "gelu": 4})
def whisper_encoder() -> Given:
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    torch.manual_seed(0)
    config = hf.WhisperConfig(
        d_model=WIDTH,
        encoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        encoder_ffn_dim=INNER,
        num_mel_bins=8,
        max_source_positions=TOKENS,
        vocab_size=WORDS,
    )
    return random(WhisperEncoder(config)), (torch.randn(ROWS, 8, 2 * TOKENS),), {}


# Each mixer calls silu twice: after its convolution, and on its gate.
@_enter("Mamba", {"rms_norm": 3, "silu": 4})
def mamba() -> Given:
    return language_model("Mamba", state_size=8, expand=2, time_step_rank=4)
