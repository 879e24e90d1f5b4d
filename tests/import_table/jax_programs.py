"""Programs of JAX as somebody else would write them, one function each.

``graphgen import tests.import_table.jax_programs:vit`` traces one as a user's file would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.import_table.jax_layers import (
    Params,
    Weights,
    attend,
    dense,
    encoder_block,
    layer_norm,
    rms_norm,
    rope,
    split_heads,
)

ROWS, TOKENS, WORDS, SLOTS = 2, 8, 61, 16
WIDTH, HEADS, KV_HEADS, HEAD, INNER, LAYERS, EXPERTS = 32, 4, 2, 8, 48, 2, 4


@dataclass(frozen=True, slots=True)
class Program:
    """A program of the table.

    Attributes:
        function: takes the parameters and the arguments by name.
        params: the parameters, a tree of arrays.
        arguments: the arguments by name, arrays or trees of them.
        composites: how many of each composite its mathematics has.
        options: of ``graphgen import``, besides the weights.
    """

    function: Callable[..., Any]
    params: Params
    arguments: Mapping[str, Any]
    composites: Mapping[str, int]
    options: Sequence[str] = field(default_factory=list[str])

    def lowered(self) -> Any:
        """The program as ``graphgen import`` takes it."""
        return jax.jit(self.function).lower(self.params, *self.arguments.values())

    def result(self) -> Any:
        """The tree of what JAX computes."""
        return self.function(self.params, *self.arguments.values())


PROGRAMS: dict[str, Callable[[], Program]] = {}


def _enter(label: str) -> Callable[[Callable[[], Program]], Callable[[], Any]]:
    def enter(make: Callable[[], Program]) -> Callable[[], Any]:
        PROGRAMS[label] = make

        def lowered() -> Any:
            return make().lowered()

        lowered.__name__ = make.__name__
        return lowered

    return enter


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def _tokens(*shape: int) -> np.ndarray:
    return np.random.default_rng(8).integers(0, WORDS, shape or (ROWS, TOKENS)).astype(np.int32)


@_enter("ViT, patches by convolution")
def vit() -> Program:
    w = Weights(1)
    params = {
        "patch": w.normal(4, 4, 3, WIDTH),
        "place": w.normal(16, WIDTH),
        "layers": [w.encoder(WIDTH, INNER) for _ in range(LAYERS)],
        "norm": w.norm(WIDTH),
        "head": w.linear(WIDTH, 10),
    }

    def forward(params: Params, images: jax.Array) -> jax.Array:
        x = lax.conv_general_dilated(
            images, params["patch"], (4, 4), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = x.reshape(x.shape[0], -1, WIDTH) + params["place"]
        for p in params["layers"]:
            x = encoder_block(x, p, HEADS)
        return dense(jnp.mean(layer_norm(x, params["norm"]), 1), params["head"])

    images = {"images": _normal(ROWS, 16, 16, 3)}
    return Program(forward, params, images, {"attention": 2, "layer_norm": 5, "gelu": 2})


@_enter("audio encoder, strided convolutions")
def audio() -> Program:
    w = Weights(2)
    params = {
        "first": w.normal(WIDTH, 8, 3),
        "second": w.normal(WIDTH, WIDTH, 3),
        "layers": [w.encoder(WIDTH, INNER) for _ in range(LAYERS)],
        "norm": w.norm(WIDTH),
    }

    def forward(params: Params, features: jax.Array) -> jax.Array:
        x = jax.nn.gelu(lax.conv(features, params["first"], (1,), "SAME"))
        x = jax.nn.gelu(lax.conv(x, params["second"], (2,), "SAME")).transpose(0, 2, 1)
        for p in params["layers"]:
            x = encoder_block(x, p, HEADS)
        return layer_norm(x, params["norm"])

    features = {"features": _normal(ROWS, 8, 2 * TOKENS)}
    return Program(forward, params, features, {"attention": 2, "layer_norm": 5, "gelu": 4})


def _buckets(count: int) -> np.ndarray:
    away = np.arange(TOKENS)[None] - np.arange(TOKENS)[:, None]
    half = count // 2
    return np.minimum(np.abs(away), half - 1) + half * (away > 0)


@_enter("T5 encoder, relative bias")
def t5_encoder() -> Program:
    w = Weights(3)

    def layer() -> Params:
        made: Params = {n: w.normal(WIDTH, WIDTH) for n in "qkvo"}
        made |= {"ln1": 1 + w.normal(WIDTH), "ln2": 1 + w.normal(WIDTH)}
        return made | {"up": w.normal(WIDTH, INNER), "down": w.normal(INNER, WIDTH)}

    params = {
        "embed": w.normal(WORDS, WIDTH),
        "bias": w.normal(8, HEADS),
        "layers": [layer() for _ in range(LAYERS)],
        "norm": 1 + w.normal(WIDTH),
    }

    def forward(params: Params, tokens: jax.Array) -> jax.Array:
        x = params["embed"][tokens]
        bias = params["bias"][_buckets(8)].transpose(2, 0, 1)[None]
        for p in params["layers"]:
            h = rms_norm(x, p["ln1"])
            q, k, v = (split_heads(h @ p[name], HEADS) for name in "qkv")
            x = x + attend(q, k, v, bias=bias) @ p["o"]
            x = x + jax.nn.relu(rms_norm(x, p["ln2"]) @ p["up"]) @ p["down"]
        return rms_norm(x, params["norm"])

    found = {"attention": 2, "rms_norm": 5, "embedding": 1}
    return Program(forward, params, {"tokens": _tokens()}, found)


def _experts(w: Weights) -> Params:
    return {
        "router": w.normal(WIDTH, EXPERTS),
        "gate": w.normal(EXPERTS, WIDTH, INNER),
        "up": w.normal(EXPERTS, WIDTH, INNER),
        "down": w.normal(EXPERTS, INNER, WIDTH),
    }


def _routed(x: jax.Array, p: Params) -> tuple[jax.Array, jax.Array]:
    """The two best experts of each token and their shares."""
    best, which = lax.top_k(x @ p["router"], 2)
    return jax.nn.softmax(best, -1), which


@_enter("experts, `lax.ragged_dot`")
def moe_ragged() -> Program:
    def forward(params: Params, x: jax.Array) -> jax.Array:
        shares, which = _routed(x, params)
        order = jnp.argsort(which.reshape(-1), stable=True)
        rows = x[order // 2]
        sizes = jnp.bincount(which.reshape(-1), length=EXPERTS).astype(jnp.int32)
        inner = jax.nn.silu(lax.ragged_dot(rows, params["gate"], sizes))
        inner = inner * lax.ragged_dot(rows, params["up"], sizes)
        made = lax.ragged_dot(inner, params["down"], sizes)
        made = made * shares.reshape(-1)[order][:, None]
        return jnp.zeros_like(x).at[order // 2].add(made)

    x = {"x": _normal(ROWS * TOKENS, WIDTH)}
    return Program(forward, _experts(Weights(4)), x, {"experts": 1})


@_enter("experts, one-hot")
def moe_one_hot() -> Program:
    def forward(params: Params, x: jax.Array) -> jax.Array:
        return _all_experts(x, params)

    x = {"x": _normal(ROWS * TOKENS, WIDTH)}
    return Program(forward, _experts(Weights(5)), x, {"experts": 1})


def _all_experts(x: jax.Array, p: Params) -> jax.Array:
    shares, which = _routed(x, p)
    weights = jnp.einsum("...k,...ke->...e", shares, jax.nn.one_hot(which, EXPERTS))
    inner = jax.nn.silu(jnp.einsum("...d,edf->...ef", x, p["gate"]))
    inner = inner * jnp.einsum("...d,edf->...ef", x, p["up"])
    return jnp.einsum("...ef,efd,...e->...d", inner, p["down"], weights)


def _decoder(w: Weights, experts: bool = False) -> Params:
    def layer() -> Params:
        made = {
            "ln1": 1 + w.normal(WIDTH),
            "ln2": 1 + w.normal(WIDTH),
            "q": w.normal(WIDTH, HEADS * HEAD),
            "k": w.normal(WIDTH, KV_HEADS * HEAD),
            "v": w.normal(WIDTH, KV_HEADS * HEAD),
            "o": w.normal(HEADS * HEAD, WIDTH),
        }
        if experts:
            return {**made, "experts": _experts(w)}
        inner = {"gate": w.normal(WIDTH, INNER), "up": w.normal(WIDTH, INNER)}
        return {**made, **inner, "down": w.normal(INNER, WIDTH)}

    return {
        "embed": w.normal(WORDS, WIDTH),
        "layers": [layer() for _ in range(LAYERS)],
        "norm": 1 + w.normal(WIDTH),
        "head": w.normal(WIDTH, WORDS),
    }


def _cached(params: Params, tokens: jax.Array, cache: Any, start: Any) -> Any:
    """Logits, and the cache with the keys and values of the tokens written from ``start``."""
    x = params["embed"][tokens]
    places = start + jnp.arange(tokens.shape[1])
    shown = (jnp.arange(SLOTS) <= places[:, None])[None, None]
    new: list[Any] = []
    for p, (keys, values) in zip(params["layers"], cache, strict=True):
        h = rms_norm(x, p["ln1"])
        heads = (HEADS, KV_HEADS, KV_HEADS)
        q, k, v = (split_heads(h @ p[n], c) for n, c in zip("qkv", heads, strict=True))
        q, k = rope(q, places[None]), rope(k, places[None])
        keys = lax.dynamic_update_slice(keys, k, (0, start, 0, 0))
        values = lax.dynamic_update_slice(values, v, (0, start, 0, 0))
        new.append((keys, values))
        x = x + attend(q, keys, values, shown=shown, scale=HEAD**-0.5) @ p["o"]
        x = x + _all_experts(rms_norm(x, p["ln2"]), p["experts"])
    return rms_norm(x, params["norm"]) @ params["head"], new


def _cache(fill: float) -> Any:
    shape = (ROWS, SLOTS, KV_HEADS, HEAD)
    return [(fill * _normal(*shape), fill * _normal(*shape)[::-1]) for _ in range(LAYERS)]


_MIXTRAL = {"attention": 2, "rms_norm": 5, "rope": 4, "experts": 2, "embedding": 1, "kv_update": 4}


@_enter("Mixtral, prefill into a cache")
def mixtral_prefill() -> Program:
    def forward(params: Params, tokens: jax.Array, cache: Any) -> Any:
        return _cached(params, tokens, cache, 0)

    given = {"tokens": _tokens(), "cache": _cache(0.0)}
    return Program(
        forward,
        _decoder(Weights(6), experts=True),
        given,
        _MIXTRAL,
        ["--state", "cache.*=result.1.*"],
    )


@_enter("Mixtral, decode")
def mixtral_decode() -> Program:
    def forward(params: Params, tokens: jax.Array, cache: Any, start: jax.Array) -> Any:
        return _cached(params, tokens, cache, start)

    given = {"tokens": _tokens(ROWS, 1), "cache": _cache(1.0), "start": np.int32(5)}
    return Program(
        forward,
        _decoder(Weights(6), experts=True),
        given,
        _MIXTRAL,
        ["--state", "cache.*=result.1.*"],
    )


def _space(w: Weights) -> Params:
    return {
        "in": w.linear(WIDTH, INNER),
        "rate": w.normal(INNER),
        "step": w.linear(WIDTH, INNER),
        "out": w.linear(INNER, WIDTH),
    }


def _gates(params: Params, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """How much of the state is kept and what is added, [B, S, N] each."""
    step = jax.nn.sigmoid(dense(x, params["step"]))
    return jnp.exp(-step * jnp.exp(params["rate"])), step * dense(x, params["in"])


@_enter("state space, `lax.scan`")
def ssm_scan() -> Program:
    def forward(params: Params, x: jax.Array) -> jax.Array:
        kept, added = _gates(params, x)

        def step(state: jax.Array, now: Any) -> Any:
            state = state * now[0] + now[1]
            return state, state

        rows = (kept.swapaxes(0, 1), added.swapaxes(0, 1))
        _, states = lax.scan(step, jnp.zeros((x.shape[0], INNER)), rows)
        return dense(states.swapaxes(0, 1), params["out"])

    return Program(forward, _space(Weights(7)), {"x": _normal(ROWS, TOKENS, WIDTH)}, {})


@_enter("state space, `associative_scan`")
def ssm_associative() -> Program:
    def forward(params: Params, x: jax.Array) -> jax.Array:
        def joined(a: Any, b: Any) -> Any:
            return a[0] * b[0], a[1] * b[0] + b[1]

        _, states = lax.associative_scan(joined, _gates(params, x), axis=1)
        return dense(states, params["out"])

    return Program(forward, _space(Weights(8)), {"x": _normal(ROWS, TOKENS, WIDTH)}, {})


@_enter("RetNet")
def retnet() -> Program:
    w = Weights(9)
    layer: Params = {n: w.normal(WIDTH, WIDTH) for n in "qkvog"}
    layer["ln"] = 1 + w.normal(WIDTH)

    def forward(params: Params, x: jax.Array) -> jax.Array:
        h = rms_norm(x, params["ln"])
        q, k, v = (split_heads(h @ params[n], HEADS) for n in "qkv")
        decay = 1 - 2.0 ** (-5.0 - jnp.arange(HEADS))
        away = jnp.arange(TOKENS)[:, None] - jnp.arange(TOKENS)
        mask = jnp.where(away >= 0, decay[:, None, None] ** jnp.maximum(away, 0), 0.0)
        scores = jnp.einsum("bshd,bchd->bhsc", q, k) * HEAD**-0.5 * mask
        mixed = jnp.einsum("bhsc,bchd->bshd", scores, v)
        mixed = mixed * lax.rsqrt(jnp.mean(mixed**2, -1, keepdims=True) + 1e-6)
        return x + (jax.nn.silu(h @ params["g"]) * mixed.reshape(x.shape)) @ params["o"]

    return Program(forward, layer, {"x": _normal(ROWS, TOKENS, WIDTH)}, {"rms_norm": 1, "silu": 1})


@_enter("GPT")
def gpt() -> Program:
    w = Weights(10)
    params = {
        "words": w.normal(WORDS, WIDTH),
        "places": w.normal(TOKENS, WIDTH),
        "layers": [w.encoder(WIDTH, INNER) for _ in range(LAYERS)],
        "norm": w.norm(WIDTH),
    }

    def forward(params: Params, tokens: jax.Array) -> jax.Array:
        x = params["words"][tokens] + params["places"]
        below = jnp.tril(jnp.ones((TOKENS, TOKENS), bool))
        for p in params["layers"]:
            h = layer_norm(x, p["ln1"])
            q, k, v = (split_heads(dense(h, p[name]), HEADS) for name in "qkv")
            x = x + dense(attend(q, k, v, shown=below, scale=HEAD**-0.5), p["o"])
            inner = jax.nn.gelu(dense(layer_norm(x, p["ln2"]), p["up"]))
            x = x + dense(inner, p["down"])
        return layer_norm(x, params["norm"]) @ params["words"].T

    found = {"attention": 2, "layer_norm": 5, "gelu": 2, "embedding": 1}
    return Program(forward, params, {"tokens": _tokens()}, found)


@_enter("Llama, grouped heads")
def llama() -> Program:
    def forward(params: Params, tokens: jax.Array) -> jax.Array:
        x = params["embed"][tokens]
        places = jnp.arange(TOKENS)
        below = places[:, None] >= places
        for p in params["layers"]:
            h = rms_norm(x, p["ln1"])
            heads = (HEADS, KV_HEADS, KV_HEADS)
            q, k, v = (split_heads(h @ p[n], c) for n, c in zip("qkv", heads, strict=True))
            q, k = rope(q, places[None]), rope(k, places[None])
            x = x + attend(q, k, v, shown=below, scale=HEAD**-0.5) @ p["o"]
            h = rms_norm(x, p["ln2"])
            x = x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]
        return rms_norm(x, params["norm"]) @ params["head"]

    found = {"attention": 2, "rms_norm": 5, "rope": 4, "silu": 2, "embedding": 1}
    return Program(forward, _decoder(Weights(11)), {"tokens": _tokens()}, found)


@_enter("BERT, rows of several lengths")
def bert() -> Program:
    w = Weights(12)
    params = {
        "words": w.normal(WORDS, WIDTH),
        "places": w.normal(TOKENS, WIDTH),
        "kinds": w.normal(2, WIDTH),
        "norm": w.norm(WIDTH),
        "layers": [w.encoder(WIDTH, INNER) for _ in range(LAYERS)],
    }

    def forward(params: Params, tokens: jax.Array, lengths: jax.Array) -> jax.Array:
        x = params["words"][tokens] + params["places"] + params["kinds"][0]
        x = layer_norm(x, params["norm"])
        shown = (jnp.arange(TOKENS) < lengths[:, None])[:, None, None]
        for p in params["layers"]:
            q, k, v = (split_heads(dense(x, p[name]), HEADS) for name in "qkv")
            mixed = dense(attend(q, k, v, shown=shown, scale=HEAD**-0.5), p["o"])
            x = layer_norm(x + mixed, p["ln1"])
            inner = jax.nn.gelu(dense(x, p["up"]), approximate=False)
            x = layer_norm(x + dense(inner, p["down"]), p["ln2"])
        return x

    given = {"tokens": _tokens(), "lengths": np.array([8, 5], np.int32)}
    found = {"attention": 2, "layer_norm": 5, "gelu": 2, "embedding": 1}
    return Program(forward, params, given, found)


@_enter("MLP-Mixer")
def mixer() -> Program:
    w = Weights(13)

    def layer() -> Params:
        made: Params = {"ln1": w.norm(WIDTH), "ln2": w.norm(WIDTH)}
        made |= {"in": w.linear(16, INNER), "out": w.linear(INNER, 16)}
        return made | {"up": w.linear(WIDTH, INNER), "down": w.linear(INNER, WIDTH)}

    params = {
        "patch": w.linear(48, WIDTH),
        "layers": [layer() for _ in range(LAYERS)],
        "norm": w.norm(WIDTH),
        "head": w.linear(WIDTH, 10),
    }

    def forward(params: Params, images: jax.Array) -> jax.Array:
        x = images.reshape(ROWS, 4, 4, 4, 4, 3).transpose(0, 1, 3, 2, 4, 5).reshape(ROWS, 16, 48)
        x = dense(x, params["patch"])
        for p in params["layers"]:
            h = layer_norm(x, p["ln1"]).swapaxes(1, 2)
            x = x + dense(jax.nn.gelu(dense(h, p["in"])), p["out"]).swapaxes(1, 2)
            x = x + dense(jax.nn.gelu(dense(layer_norm(x, p["ln2"]), p["up"])), p["down"])
        return dense(jnp.mean(layer_norm(x, params["norm"]), 1), params["head"])

    found = {"layer_norm": 5, "gelu": 4}
    return Program(forward, params, {"images": _normal(ROWS, 16, 16, 3)}, found)


@_enter("LSTM")
def lstm() -> Program:
    w = Weights(14)
    params = {
        "words": w.normal(WORDS, WIDTH),
        "in": w.linear(WIDTH, 4 * WIDTH),
        "again": w.normal(WIDTH, 4 * WIDTH),
        "head": w.linear(WIDTH, WORDS),
    }

    def forward(params: Params, tokens: jax.Array) -> jax.Array:
        def step(state: Any, x: jax.Array) -> Any:
            hidden, cell = state
            gates = dense(x, params["in"]) + hidden @ params["again"]
            i, f, g, o = jnp.split(gates, 4, -1)
            cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
            return (hidden, cell), hidden

        first = jnp.zeros((tokens.shape[0], WIDTH))
        _, states = lax.scan(step, (first, first), params["words"][tokens].swapaxes(0, 1))
        return dense(states.swapaxes(0, 1), params["head"])

    return Program(forward, params, {"tokens": _tokens()}, {"embedding": 1})
