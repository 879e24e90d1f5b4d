"""NumPy rule of ``experts``: one expert after the other.

Each computes every token, and its own are kept: how a product of matrices rounds a row may depend
on the number of rows, and so a token would on the choices of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from graphgen.eval.arithmetic import Arithmetic, Array
from graphgen.eval.elementwise import logistic
from graphgen.eval.registry import COMPOSITES, composite_rule
from graphgen.ir import Attrs, attrs_of
from graphgen.ir.dtype import f32
from graphgen.ops.experts import expert_operands


@composite_rule("experts")
def _experts(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    plain, low_rank = expert_operands(x)
    operand, indices, weights, *held = plain
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
        own = [matrices[:, expert] for matrices in low_rank[1:]]
        adapted = _Adapted(low_rank[0].reshape(-1), own) if own else None
        made = _mlp(how, attrs, given, [weight[expert] for weight in held], adapted)
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


@dataclass(frozen=True, slots=True)
class _Adapted:
    """The slot [N] of each token, and a and b [L,...] of gate, up and down of one expert."""

    slots: Array
    matrices: Sequence[Array]

    def term(self, x: Array, place: int, kind: DTypeLike) -> Array:
        """``b a x`` of each token with the matrices of its slot; zeros for one without."""
        lora_a, lora_b = (matrix.astype(kind) for matrix in self.matrices[place : place + 2])
        out = np.zeros((len(x), lora_b.shape[1]), kind)
        for slot in range(len(lora_a)):
            own = (self.slots == slot)[:, None]
            low = (x.astype(kind) @ lora_a[slot].T).astype(x.dtype).astype(kind)
            out += np.where(own, low @ lora_b[slot].T, 0)
        return out


def _mlp(
    how: Arithmetic,
    attrs: Attrs,
    x: Array,
    weights: Sequence[Array],
    adapted: _Adapted | None,
) -> Array:
    """One expert's result in f32 for its tokens [N,H]."""
    kind = how.dtype(f32)
    gate_weight, up_weight, down_weight = (weight.astype(kind) for weight in weights[:3])
    biases = [bias.astype(kind) for bias in weights[3:]] or [np.zeros((), kind)] * 3

    def product(x: Array, weight: Array, place: int) -> Array:
        y = x.astype(kind) @ weight.T + biases[place]
        return y if adapted is None else y + adapted.term(x, 2 * place, kind)

    gate = _clipped(attrs, "gate", product(x, gate_weight, 0))
    up = _clipped(attrs, "up", product(x, up_weight, 1))
    scaled = gate * how.scalar(attrs.number("activation_scale"))
    active = _activated(how, attrs.text("activation"), scaled)
    active = gate * active if attrs.text("glu") == "swiglu" else active
    hidden = (active * (up + how.scalar(attrs.number("up_offset")))).astype(x.dtype)
    return product(hidden, down_weight, 2)


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
