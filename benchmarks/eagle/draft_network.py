"""The draft in PyTorch, with the losses of the paper, and as a published checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

# Sizes of the layer under Hugging Face's names.
Sizes = Mapping[str, int]


class Norm(nn.Module):
    """A root-mean-square norm."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """x [...,E], normalized."""
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon)


class Attention(nn.Module):
    """Causal attention with rotary positions from 0 on."""

    def __init__(self, sizes: Sizes, theta: float) -> None:
        super().__init__()
        width, heads = sizes["hidden_size"], sizes["num_attention_heads"]
        self.size = width // heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, self.size * sizes["num_key_value_heads"], bias=False)
        self.v_proj = nn.Linear(width, self.size * sizes["num_key_value_heads"], bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)
        self.theta = theta

    def forward(self, x: Tensor) -> Tensor:
        """x [B,S,E]."""
        batch, count, _ = x.shape
        q, k, v = (
            project(x).view(batch, count, -1, self.size).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        turn = self.theta ** (-torch.arange(0, self.size, 2) / self.size)
        angle = torch.arange(count)[:, None] * torch.cat([turn, turn])
        q, k = (_rotated(part, angle.cos(), angle.sin()) for part in (q, k))
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).reshape(batch, count, -1))


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


class Mlp(nn.Module):
    """The gated MLP of Llama."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, inner = sizes["hidden_size"], sizes["intermediate_size"]
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [...,E]."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """A decoder layer with a norm of its input, AWS's ``enable_eagle_draft_input_norm``."""

    def __init__(self, sizes: Sizes, theta: float, epsilon: float) -> None:
        super().__init__()
        width = sizes["hidden_size"]
        self.self_attn = Attention(sizes, theta)
        self.mlp = Mlp(sizes)
        self.input_layernorm = Norm(width, epsilon)
        self.post_attention_layernorm = Norm(width, epsilon)

    def forward(self, x: Tensor) -> Tensor:
        """x [B,S,E]."""
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class DraftNetwork(nn.Module):
    """EAGLE's draft (arXiv 2401.15077) with one layer.

    Args:
        sizes: of the target, under Hugging Face's names.
        embedding: f32 [V,E], the target's; it is not trained.
        theta: the base of rotary positions.
        epsilon: of the norms.
    """

    def __init__(self, sizes: Sizes, embedding: Tensor, theta: float, epsilon: float) -> None:
        super().__init__()
        width = sizes["hidden_size"]
        self.embedding = embedding
        self.fc = nn.Linear(2 * width, width)
        self.layers = nn.ModuleList([Layer(sizes, theta, epsilon)])

    def forward(self, tokens: Tensor, features: Tensor) -> Tensor:
        """Predicted features [B,S,E] after tokens s64 [B,S] with the features before them."""
        joined = torch.cat([self.embedding[tokens], features], -1)
        return self.layers[0](self.fc(joined))

    def begin_linear(self, inputs: Tensor, wanted: Tensor, penalty: float) -> None:
        """Let ``fc`` be the linear map that predicts best, and the layer add nothing yet.

        It is ridge regression: a few thousand tokens teach it in a second what takes a random
        beginning many passes.

        Args:
            inputs: f32 [N,2E], embeddings and features side by side.
            wanted: f32 [N,E], the features of the next token.
            penalty: on squared weights of inputs that are scaled to a deviation of 1.
        """
        scale = inputs.std(0) + 1e-6
        x = torch.cat([inputs / scale, torch.ones(len(inputs), 1)], 1)
        found = torch.linalg.solve(x.T @ x + penalty * torch.eye(x.shape[1]), x.T @ wanted)
        with torch.no_grad():
            self.fc.weight.copy_((found[:-1] / scale[:, None]).T)
            self.fc.bias.copy_(found[-1])
            layer = cast(Layer, self.layers[0])
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()

    def save(self, folder: Path, config: Mapping[str, object], words: np.ndarray) -> None:
        """Write a checkpoint under published names, without embedding and head.

        Args:
            folder: to write.
            config: of the target.
            words: s64 [Vd] in order, the tokens that the draft's head has.
        """
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: value.detach().contiguous() for name, value in self.state_dict().items()}
        tensors["d2t"] = torch.from_numpy(words - np.arange(len(words)))
        save_file(tensors, folder / "model.safetensors")
        kept = {key: value for key, value in config.items() if key != "tie_word_embeddings"}
        made = {**kept, "num_hidden_layers": 1, "draft_vocab_size": len(words), "bias": True}
        (folder / "config.json").write_text(json.dumps(made, indent=1))


def losses(predicted: Tensor, wanted: Tensor, head: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """The paper's two losses: smooth L1 of features, cross-entropy of the target's distribution.

    Args:
        predicted: f32 [N,E].
        wanted: f32 [N,E], the target's features.
        head: f32 [Vd,E], the rows of the target's head that the draft has.
        real: f32 [N], 1 for places that count.
    """
    count = real.sum()
    regression = functional.smooth_l1_loss(predicted, wanted, reduction="none").mean(-1)
    with torch.no_grad():
        teacher = functional.softmax(wanted @ head.T, -1)
    scores = functional.log_softmax(predicted @ head.T, -1)
    entropy = -(teacher * scores).sum(-1)
    return (regression * real).sum() / count, (entropy * real).sum() / count
