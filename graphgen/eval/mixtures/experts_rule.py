"""NumPy rule of ``experts``: one expert after the other.

Each computes every token, and its own are kept: how a product of matrices rounds a row may depend
on the number of rows, and so a token would on the choices of others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphgen.eval.arithmetic import Arithmetic, Array
from graphgen.eval.op_rules import COMPOSITES, composite_rule
from graphgen.eval.rules_elementwise import logistic
from graphgen.ir import Attrs, attrs_of
from graphgen.ir.dtype import f32


@composite_rule("experts")
def _experts(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    operand, indices, weights, *held = x
    rows = operand.reshape(-1, operand.shape[-1])
    chosen = indices.reshape(len(rows), indices.shape[-1])
    shares = weights.reshape(chosen.shape).astype(how.dtype(f32))
    out = np.zeros((len(rows), held[2].shape[1]), how.dtype(f32))
    for expert in range(len(held[0])):
        tokens, at = kept_tokens(chosen, expert, attrs.integer("capacity"))
        if not len(tokens):
            continue
        share = np.zeros((len(rows), 1), shares.dtype)
        share[tokens, 0] = shares[tokens, at]
        early = attrs.text("modulate") == "input"
        given = (rows.astype(share.dtype) * share).astype(rows.dtype) if early else rows
        made = _mlp(how, attrs, given, [weight[expert] for weight in held])
        out[tokens] += (made if early else made * share)[tokens]
    shape = (*operand.shape[:-1], out.shape[1])
    return [out.astype(how.dtype(attrs.element("dtype"))).reshape(shape)]


def kept_tokens(indices: Array, expert: int, capacity: int) -> tuple[Array, Array]:
    """The tokens that an expert computes, in order, and which of their choices it is.

    Args:
        indices: [T,K].
        expert: its number.
        capacity: how many it computes at most; 0 for all.
    """
    tokens, at = np.nonzero(indices == expert)
    return (tokens[:capacity], at[:capacity]) if capacity else (tokens, at)


def _mlp(how: Arithmetic, attrs: Attrs, x: Array, weights: Sequence[Array]) -> Array:
    """One expert's result in f32 for its tokens [N,H]."""
    kind = how.dtype(f32)
    gate_weight, up_weight, down_weight = (weight.astype(kind) for weight in weights[:3])
    biases = [bias.astype(kind) for bias in weights[3:]] or [np.zeros((), kind)] * 3
    wide = x.astype(kind)
    gate = _clipped(attrs, "gate", wide @ gate_weight.T + biases[0])
    up = _clipped(attrs, "up", wide @ up_weight.T + biases[1])
    scaled = gate * how.scalar(attrs.number("activation_scale"))
    active = _activated(how, attrs.text("activation"), scaled)
    active = gate * active if attrs.text("glu") == "swiglu" else active
    hidden = (active * (up + how.scalar(attrs.number("up_offset")))).astype(x.dtype)
    return hidden.astype(kind) @ down_weight.T + biases[2]


def _clipped(attrs: Attrs, name: str, x: Array) -> Array:
    return np.clip(x, attrs.number(f"{name}_lower"), attrs.number(f"{name}_upper")).astype(x.dtype)


def _activated(how: Arithmetic, name: str, x: Array) -> Array:
    if name == "sigmoid":
        return logistic(x)
    if name == "relu":
        return np.maximum(x, 0)
    rule, attrs = COMPOSITES["silu" if name == "silu" else "gelu"], attrs_of({})
    if name != "silu":
        attrs = attrs_of({"approximate": _APPROXIMATE[name]})
    return rule(how, attrs, [x])[0]


_APPROXIMATE = {"gelu": "none", "gelu_pytorch_tanh": "tanh", "quick_gelu": "sigmoid"}
