"""DeepSeek-V2 and DeepSeek-V3: latent attention and many small experts, some of them shared."""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.ir import DType, Value
from graphgen.ir.dtype import f32
from graphgen.models.decoders.decoder import EMBEDDING, head
from graphgen.models.decoders.deepseek_config import (
    ALIASES,
    DeepseekConfig,
    read_deepseek_v2,
    read_deepseek_v3,
)
from graphgen.models.family import Family
from graphgen.nn import (
    StepInputs,
    causal_mask,
    embed,
    gated_mlp,
    latent_attention,
    mixture,
    rms_norm,
    rotary,
)


def body(
    b: Builder, config: DeepseekConfig, tokens: Value, step: StepInputs, dtype: DType
) -> Value:
    """Embedding, layers and last norm: hidden states [B,S,E]; the residual stream is f32."""
    turns = rotary(b, step, config.rope_frequencies(), config.rope.attention_factor)
    mask, epsilon, latent = causal_mask(b, step), config.rms_norm_eps, config.latent
    with b.scope("model"):
        x = embed(b, "embed_tokens", tokens, config.vocab_size, config.hidden_size, dtype)
        x = b.convert(x, f32)
        for layer in range(config.num_hidden_layers):
            step.keep(x)
            with b.scope(f"layers.{layer}"):
                h = rms_norm(b, "input_layernorm", x, epsilon, dtype)
                x = x + latent_attention(b, h, latent, step, mask, turns, f32)
                h = rms_norm(b, "post_attention_layernorm", x, epsilon, dtype)
                x = x + _feed_forward(b, config, layer, h)
        return rms_norm(b, "norm", x, epsilon, dtype)


def _feed_forward(b: Builder, config: DeepseekConfig, layer: int, h: Value) -> Value:
    """The experts, or one MLP: f32 [B,S,E] of h [B,S,E]."""
    experts = config.mixture(layer)
    if experts is not None:
        return mixture(b, h, experts, config.hidden_act, f32)
    activation, bias = config.hidden_act, config.mlp_bias
    return gated_mlp(b, h, config.intermediate_size, activation=activation, bias=bias, dtype=f32)


DEEPSEEK_V2 = Family(
    "deepseek_v2",
    ("DeepseekV2ForCausalLM",),
    read_deepseek_v2,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
    aliases=ALIASES["deepseek_v2"],
)
DEEPSEEK_V3 = Family(
    "deepseek_v3",
    ("DeepseekV3ForCausalLM",),
    read_deepseek_v3,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
    aliases=ALIASES["deepseek_v3"],
)
