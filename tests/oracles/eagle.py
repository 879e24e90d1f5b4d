"""Drafts of EAGLE in NumPy, from the papers: without a cache, every place computed again.

arXiv 2401.15077: the draft joins the embedding of token t + 1 with the feature of token t by ``fc``
and applies decoder layers; the first has no norm of its input. arXiv 2503.01840: ``fc`` joins three
states; the layer attends from norms of embedding and state side by side; a norm precedes the head.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

Array = npt.NDArray[Any]
# Of the small Llama that tests/oracles/llama.py writes.
SIZES: dict[str, Any] = {
    "vocab_size": 131,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}


def write_eagle(
    folder: Path,
    version: int = 1,
    *,
    layers: int = 1,
    bias: bool = True,
    input_norm: bool = False,
    words: int = 0,
    own: Sequence[str] = (),
    prefix: str = "",
    scale: float = 0.2,
    seed: int = 5,
    **changes: Any,
) -> dict[str, Array]:
    """Save a random draft under the names of published ones; its tensors.

    Args:
        folder: to write.
        version: 1 or 3.
        layers: of version 1.
        bias: ``fc`` of version 1 has a bias.
        input_norm: the first layer of version 1 has a norm.
        words: of a smaller vocabulary; 0 for the target's.
        own: ``embed_tokens`` and ``lm_head``, what the draft has of its own.
        prefix: of all tensors but the head.
        scale: standard deviation of the weights.
        seed: of the random numbers.
        changes: of the configuration.
    """
    sizes = {**SIZES, **changes}
    random = np.random.default_rng(seed)
    hidden, inner = sizes["hidden_size"], sizes["intermediate_size"]
    size = hidden // sizes["num_attention_heads"]
    kv = size * sizes["num_key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, (version if version == 3 else 2) * hidden)
    }
    names = ["midlayer"] if version == 3 else [f"layers.{n}" for n in range(layers)]
    for number, name in enumerate(names):
        into = 2 * hidden if version == 3 else hidden
        shapes[f"{name}.self_attn.q_proj.weight"] = (hidden, into)
        shapes[f"{name}.self_attn.k_proj.weight"] = (kv, into)
        shapes[f"{name}.self_attn.v_proj.weight"] = (kv, into)
        shapes[f"{name}.self_attn.o_proj.weight"] = (hidden, hidden)
        for part in ("gate", "up"):
            shapes[f"{name}.mlp.{part}_proj.weight"] = (inner, hidden)
        shapes[f"{name}.mlp.down_proj.weight"] = (hidden, inner)
        shapes[f"{name}.post_attention_layernorm.weight"] = (hidden,)
        if version == 3 or number or input_norm:
            shapes[f"{name}.input_layernorm.weight"] = (hidden,)
    if version == 3:
        shapes |= {"midlayer.hidden_norm.weight": (hidden,), "norm.weight": (hidden,)}
    elif bias:
        shapes["fc.bias"] = (hidden,)
    if "embed_tokens" in own:
        shapes["embed_tokens.weight"] = (sizes["vocab_size"], hidden)
    if "lm_head" in own:
        shapes["lm_head.weight"] = (words or sizes["vocab_size"], hidden)
    made: dict[str, Array] = {
        name: random.normal(0, scale, shape).astype(np.float32) for name, shape in shapes.items()
    }
    made |= {n: np.abs(a) * 2 + 0.5 for n, a in made.items() if "norm" in n}
    stored: dict[str, Any] = dict(made)
    if words:
        ids = np.sort(random.choice(sizes["vocab_size"], words, replace=False))
        stored["d2t"] = ids - np.arange(words)
        stored["t2d"] = np.isin(np.arange(sizes["vocab_size"]), ids)
        made["ids"] = ids
    folder.mkdir(exist_ok=True)
    save_file(
        {n if n == "lm_head.weight" else prefix + n: a for n, a in stored.items()},
        folder / "model.safetensors",
    )
    extra = {"draft_vocab_size": words or sizes["vocab_size"]} if version == 3 else {"bias": bias}
    config = {
        **sizes,
        **extra,
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM" + ("Eagle3" if version == 3 else "")],
        "num_hidden_layers": 1 if version == 3 else layers,
        "hidden_act": "silu",
    }
    (folder / "config.json").write_text(json.dumps(config))
    return made


class EagleOracle:
    """A draft with its tensors in double precision.

    Args:
        tensors: by published names, ``embed_tokens.weight`` and ``lm_head.weight`` included.
        sizes: of the configuration.
    """

    def __init__(self, tensors: Mapping[str, Array], sizes: Mapping[str, Any] = SIZES) -> None:
        self.w = {name: array.astype(np.float64) for name, array in tensors.items()}
        self.sizes = sizes
        self.third = "midlayer.hidden_norm.weight" in self.w

    def propose(self, tokens: Sequence[int], features: Array, count: int) -> list[int]:
        """The best ``count`` tokens after ``tokens`` [n + 1], by the target's features [n,W].

        Tokens are indices of the head's rows.
        """
        x = self.joined(features)
        known, made = list(tokens[1:]), list[int]()
        while True:
            out = self.run(known, x)
            made.append(int(self.logits(out[-1]).argmax()))
            if len(made) == count:
                return made
            known.append(self.token(made[-1]))
            x = np.concatenate([x, out[-1:]])

    def after(self, tokens: Sequence[int], features: Array) -> tuple[Array, Array]:
        """Logits [n,V] and predicted features [n,E] of tokens [n] with the target's features."""
        out = self.run(list(tokens), self.joined(features))
        return self.logits(out), out

    def logits(self, out: Array) -> Array:
        """Logits [...,Vd] of predicted features [...,E]."""
        return self._normed("norm", out) @ self.w["lm_head.weight"].T

    def token(self, word: int) -> int:
        """The target's token of a row of the head."""
        return int(self.w["ids"][word]) if "ids" in self.w else word

    def joined(self, features: Array) -> Array:
        """What stands for the features at each place: those that ``fc`` of version 3 joins."""
        given = np.asarray(features, np.float64)
        return given @ self.w["fc.weight"].T if self.third else given

    def run(self, tokens: list[int], features: Array) -> Array:
        """Predicted features [n,E] of n places."""
        embedded = self.w["embed_tokens.weight"][tokens]
        if self.third:
            h = np.concatenate(
                [
                    self._normed("midlayer.input_layernorm", embedded),
                    self._normed("midlayer.hidden_norm", features),
                ],
                1,
            )
            return self._layer("midlayer", features, h)
        x = np.concatenate([embedded, features], 1) @ self.w["fc.weight"].T
        x = x + self.w.get("fc.bias", 0.0)
        number = 0
        while f"layers.{number}.self_attn.q_proj.weight" in self.w:
            name = f"layers.{number}"
            x = self._layer(name, x, self._normed(f"{name}.input_layernorm", x))
            number += 1
        return x

    def _normed(self, name: str, x: Array) -> Array:
        """A root-mean-square norm, if the draft has it."""
        weight = self.w.get(f"{name}.weight")
        if weight is None:
            return x
        mean = (x * x).mean(-1, keepdims=True)
        return weight * x / np.sqrt(mean + self.sizes["rms_norm_eps"])

    def _layer(self, name: str, x: Array, h: Array) -> Array:
        x = x + self._attention(f"{name}.self_attn", h)
        h = self._normed(f"{name}.post_attention_layernorm", x)
        gate, up = (h @ self.w[f"{name}.mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        return x + (gate / (1 + np.exp(-gate)) * up) @ self.w[f"{name}.mlp.down_proj.weight"].T

    def _attention(self, name: str, h: Array) -> Array:
        count, heads = len(h), self.sizes["num_attention_heads"]
        groups = heads // self.sizes["num_key_value_heads"]
        q, k, v = (
            (h @ self.w[f"{name}.{part}_proj.weight"].T).reshape(count, -1, self._head_size)
            for part in "qkv"
        )
        q, k = self._rotated(q), self._rotated(k)
        k, v = np.repeat(k, groups, 1), np.repeat(v, groups, 1)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(self._head_size)
        scores = np.where(np.tri(count, dtype=bool), scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        out = np.einsum("hqk,khd->qhd", scores, v).reshape(count, -1)
        return out @ self.w[f"{name}.o_proj.weight"].T

    @property
    def _head_size(self) -> int:
        return self.sizes["hidden_size"] // self.sizes["num_attention_heads"]

    def _rotated(self, x: Array) -> Array:
        size = self._head_size
        turn = self.sizes["rope_theta"] ** (-np.arange(0, size, 2) / size)
        angle = np.arange(len(x))[:, None] * np.concatenate([turn, turn])
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        left, right = x[..., : size // 2], x[..., size // 2 :]
        return x * cos + np.concatenate([-right, left], -1) * sin
