"""Models that users write in PyTorch with NxD's layers, and the same in plain PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional

from graphgen.runtime.aws.nxdi import (
    ColumnParallelLinear,
    CustomRMSNorm,
    InferenceConfig,
    ModelWrapper,
    NeuronApplicationBase,
    NeuronAttentionBase,
    NeuronBaseForCausalLM,
    NeuronBaseModel,
    NeuronConfig,
    ParallelEmbedding,
    RotaryEmbedding,
    RowParallelLinear,
    load_pretrained_config,
)


class Attention(NeuronAttentionBase):
    """Grouped queries, rotated."""

    def __init__(self, config: Any):
        size = config.hidden_size // config.num_attention_heads
        rope = getattr(config, "rope_parameters", None) or {}
        super().__init__(
            config=config,
            hidden_size=config.hidden_size,
            num_attention_heads=config.num_attention_heads,
            num_key_value_heads=config.num_key_value_heads,
            head_dim=size,
            rotary_emb=RotaryEmbedding(
                size, config.max_position_embeddings, base=rope.get("rope_theta", 10000.0)
            ),
        )


class MLP(nn.Module):
    """A gated MLP of parallel layers."""

    def __init__(self, config: Any):
        super().__init__()
        dtype = config.neuron_config.torch_dtype
        width, inner = config.hidden_size, config.intermediate_size
        column: dict[str, Any] = {"bias": False, "gather_output": False, "pad": True}
        self.gate_proj = ColumnParallelLinear(width, inner, dtype=dtype, **column)
        self.up_proj = ColumnParallelLinear(width, inner, dtype=dtype, **column)
        self.down_proj = RowParallelLinear(
            inner, width, bias=False, input_is_parallel=True, dtype=dtype
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    """A layer that takes and gives what NxD Inference's do."""

    def __init__(self, config: Any):
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = MLP(config)
        self.input_layernorm = CustomRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = CustomRMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: Any = None,
        position_ids: Any = None,
        past_key_value: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        attended, present, cos, sin = self.self_attn(
            hidden_states=self.input_layernorm(hidden_states),
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_value=past_key_value,
            **kwargs,
        )
        hidden_states = hidden_states + attended
        hidden_states = hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))
        return hidden_states, present, cos, sin, None


class OwnLlamaModel(NeuronBaseModel):
    """Llama of parallel layers."""

    def setup_attr_for_model(self, config: Any) -> None:
        settings = config.neuron_config
        self.on_device_sampling = settings.on_device_sampling_config is not None
        self.tp_degree = settings.tp_degree
        self.hidden_size = config.hidden_size
        self.num_attention_heads = config.num_attention_heads
        self.num_key_value_heads = config.num_key_value_heads
        self.max_batch_size = settings.max_batch_size
        self.buckets = settings.buckets

    def init_model(self, config: Any) -> None:
        dtype = config.neuron_config.torch_dtype
        self.embed_tokens = ParallelEmbedding(
            config.vocab_size, config.hidden_size, dtype=dtype, shard_across_embedding=True
        )
        self.layers = nn.ModuleList([DecoderLayer(config) for _ in range(config.num_hidden_layers)])
        self.norm = CustomRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = ColumnParallelLinear(
            config.hidden_size,
            config.vocab_size,
            bias=False,
            gather_output=not self.on_device_sampling,
            dtype=dtype,
        )


class OwnLlamaForCausalLM(NeuronBaseForCausalLM):
    """Its application, with the conversion of NxD Inference's Llama."""

    _model_cls = OwnLlamaModel

    @staticmethod
    def convert_hf_to_neuron_state_dict(state_dict: Any, config: Any) -> Any:
        ranks = torch.arange(config.neuron_config.tp_degree, dtype=torch.int32)
        for layer in range(config.num_hidden_layers):
            state_dict[f"layers.{layer}.self_attn.rank_util.rank"] = ranks
        return state_dict


class ScoringHead(nn.Module):
    """A head of two products with a bound of the logits."""

    def __init__(self, config: Any):
        super().__init__()
        self.inner = nn.Linear(config.hidden_size, 3 * config.hidden_size // 2)
        self.out = ColumnParallelLinear(3 * config.hidden_size // 2, config.vocab_size, bias=True)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return 5 * torch.tanh(self.out(functional.gelu(self.inner(hidden))) / 5)


class BiasedAttention(NeuronAttentionBase):
    """Attention in the form of earlier releases: attributes first, then the projections."""

    def __init__(self, config: Any):
        super().__init__()
        self.config = config
        self.hidden_size = config.hidden_size
        self.num_attention_heads = config.num_attention_heads
        self.num_key_value_heads = config.num_key_value_heads
        self.qkv_bias = self.o_bias = True
        self.sliding_window = config.sliding_window
        self.init_gqa_properties()


class HeadedLayer(nn.Module):
    """A layer that gives hidden states alone."""

    def __init__(self, config: Any):
        super().__init__()
        self.norm = nn.LayerNorm(config.hidden_size)
        self.attention = BiasedAttention(config)
        self.up = ColumnParallelLinear(config.hidden_size, config.intermediate_size)
        self.down = RowParallelLinear(config.intermediate_size, config.hidden_size)

    def forward(self, x: torch.Tensor, position_ids: Any = None) -> torch.Tensor:
        x = x + self.attention(self.norm(x), position_ids=position_ids)[0]
        return x + self.down(functional.relu(self.up(x)))


class HeadedModel(NeuronBaseModel):
    """Learned positions, biases, windows, and a head of its own."""

    def init_model(self, config: Any) -> None:
        self.embed_tokens = ParallelEmbedding(config.vocab_size, config.hidden_size)
        self.positions = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.layers = nn.ModuleList([HeadedLayer(config) for _ in range(config.num_hidden_layers)])
        self.norm = nn.LayerNorm(config.hidden_size)
        self.lm_head = ScoringHead(config)

    def get_model_output(
        self, input_ids: Any = None, position_ids: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        places = self.positions(position_ids.clamp(min=0))
        x = self.embed_tokens(input_ids) + places
        for layer in self.layers:
            x = layer(x, position_ids=position_ids)
        return self.norm(x), None


class HeadedForCausalLM(NeuronBaseForCausalLM):
    """Its application."""

    _model_cls = HeadedModel


def headed_logits(state: dict[str, torch.Tensor], config: dict[str, Any], ids: Any) -> Any:
    """f32 [B,S,V] of HeadedModel, by plain functions of PyTorch."""
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    width, size = config["hidden_size"], config["hidden_size"] // config["num_attention_heads"]
    place = torch.arange(ids.shape[1])
    near = (place[:, None] >= place) & (place[:, None] - place < config["sliding_window"])
    x = state["embed_tokens.weight"][ids] + state["positions.weight"][: ids.shape[1]]

    def linear(name: str, given: Any) -> Any:
        return functional.linear(given, state[f"{name}.weight"], state[f"{name}.bias"])

    def normed(name: str, given: Any) -> Any:
        return functional.layer_norm(
            given, (width,), state[f"{name}.weight"], state[f"{name}.bias"]
        )

    for layer in range(config["num_hidden_layers"]):
        home = f"layers.{layer}"
        h = normed(f"{home}.norm", x)
        q, k, v = (
            linear(f"{home}.attention.{part}_proj", h).unflatten(-1, (count, size)).transpose(1, 2)
            for part, count in (("q", heads), ("k", groups), ("v", groups))
        )
        k, v = (part.repeat_interleave(heads // groups, 1) for part in (k, v))
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=near)
        x = x + linear(f"{home}.attention.o_proj", out.transpose(1, 2).flatten(2))
        x = x + linear(f"{home}.down", functional.relu(linear(f"{home}.up", x)))
    hidden = functional.gelu(linear("lm_head.inner", normed("norm", x)))
    return 5 * torch.tanh(linear("lm_head.out", hidden) / 5)


def random_state(model: nn.Module, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random values of a model's parameters, small enough for its layers."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(value.shape, generator=generator) * 0.3 / max(value.shape[-1], 1) ** 0.25
        for name, value in model.named_parameters()
    }


def configured(path: Path, tp: int, **given: Any) -> InferenceConfig:
    """The configuration of a checkpoint in f32, for two rows of 32 tokens."""
    options = {"batch_size": 2, "seq_len": 32, "torch_dtype": torch.float32, **given}
    settings = NeuronConfig(tp_degree=tp, **options)
    return InferenceConfig(settings, load_config=load_pretrained_config(path))


class SteeredModel(nn.Module):
    """A decoder without NxD's attention: caches in buffers, and a vector that steers each row."""

    def __init__(self, config: Any):
        super().__init__()
        self.heads, self.width = config.num_attention_heads, config.hidden_size
        self.embed = ParallelEmbedding(config.vocab_size, self.width)
        self.steering = nn.Linear(config.steering_size, self.width)
        self.layers = nn.ModuleList()
        settings = config.neuron_config
        shape = (settings.batch_size, settings.seq_len, self.heads, self.width // self.heads)
        for layer in range(config.num_hidden_layers):
            parts = {name: ColumnParallelLinear(self.width, self.width) for name in "qkv"}
            out = RowParallelLinear(self.width, self.width)
            up = ColumnParallelLinear(self.width, config.intermediate_size)
            down = RowParallelLinear(config.intermediate_size, self.width)
            self.layers.append(nn.ModuleDict({**parts, "out": out, "up": up, "down": down}))
            for name in ("keys", "values"):
                self.register_buffer(f"{name}_{layer}", torch.zeros(shape), persistent=False)
        self.head = ColumnParallelLinear(self.width, config.vocab_size, bias=False)

    def forward(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor, steer: torch.Tensor
    ) -> torch.Tensor:
        x = self.embed(input_ids) + self.steering(steer)[:, None]
        rows = torch.arange(input_ids.shape[0])[:, None]
        slots = torch.arange(self.get_buffer("keys_0").shape[1])
        seen = slots[None, None, None] <= position_ids[:, None, :, None]
        for number, layer in enumerate(self.layers):
            part: Any = layer
            q, k, v = (part[name](x).unflatten(-1, (self.heads, -1)) for name in "qkv")
            keys = self.get_buffer(f"keys_{number}")
            values = self.get_buffer(f"values_{number}")
            keys.index_put_((rows, position_ids), k)
            values.index_put_((rows, position_ids), v)
            scores = torch.einsum("bshd,bchd->bhsc", q, keys) / q.shape[-1] ** 0.5
            weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
            out = torch.einsum("bhsc,bchd->bshd", weights, values).flatten(2)
            x = x + part["out"](out)
            x = x + part["down"](functional.gelu(part["up"](x)))
        return self.head(x)


class SteeredWrapper(ModelWrapper):
    """Prompts or single tokens, with the vector that steers them."""

    def __init__(self, config: Any, tag: str, lengths: list[int]):
        super().__init__(config, SteeredModel, tag)
        self.lengths = lengths

    def input_generator(self) -> list[Any]:
        config = cast(Any, self.config)
        batch, size = config.neuron_config.batch_size, config.steering_size
        return [
            (
                torch.zeros((batch, length), dtype=torch.int32),
                torch.arange(length, dtype=torch.int32).expand(batch, -1).contiguous(),
                torch.zeros((batch, size)),
            )
            for length in self.lengths
        ]


class SteeredApplication(NeuronApplicationBase):
    """Two sub-models over the same weights and caches."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.models.append(SteeredWrapper(self.config, "prompt_model", [4, 5]))
        self.models.append(SteeredWrapper(self.config, "token_model", [1]))

    def forward(self, input_ids: Any, position_ids: Any, steer: Any) -> Any:
        model = self.models[0 if input_ids.shape[1] > 1 else 1]
        return model(input_ids, position_ids, steer)


class ScoredForCausalLM(OwnLlamaForCausalLM):
    """A causal LM beside a sub-model with inputs of its own."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.models.append(ScoreWrapper(self.config, ScoreModel, "score_model"))

    def score(self, logits: Any) -> Any:
        """``log_softmax`` of logits, and how sure they are."""
        return self.models[-1](logits)


class ScoreModel(nn.Module):
    """Two results without a weight."""

    def __init__(self, config: Any):
        super().__init__()

    def forward(self, logits: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = logits.log_softmax(-1)
        return {"scores": scores, "best": scores.amax(-1)}


class ScoreWrapper(ModelWrapper):
    """The logits of two rows."""

    def input_generator(self) -> list[Any]:
        return [(torch.zeros((2, cast(Any, self.config).vocab_size)),)]
