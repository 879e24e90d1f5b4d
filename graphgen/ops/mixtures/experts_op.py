"""The composite ``experts``: gated MLPs chosen by token, the meaning of every dispatch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from graphgen.ir import Attrs, Dim, TensorType, tensor
from graphgen.ir.dtype import f32, s32
from graphgen.ops.factors import Factors, Notation
from graphgen.ops.opdef import REQUIRED, Attr, define, float_operand, rank_of, require
from graphgen.ops.traits import Trait, Types

ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh", "quick_gelu", "relu", "sigmoid")
_WHOLE = Notation("* H, * K, * K, e i H, e i H, e o i, e i, e i, e o -> * o", {"e": "add"}, "e")


def _factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """Experts and inner features are reduced; a capacity counts all tokens."""
    found = _WHOLE(operands, results, attrs)
    inner = found.operands[3][1][0]
    special = found.special | ({inner} if len(operands) > _TERMS else frozenset[int]())
    found = replace(found, reduction={**found.reduction, inner: "add"}, special=special)
    if not attrs.integer("capacity"):
        return found
    tokens = {factor for word in found.results[0][:-1] for factor in word}
    return replace(found, need_replication=found.need_replication | tokens)


_TERMS = 6


def _cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
    """Three products for each token and each of its experts, and an activation."""
    hidden = operands[1].size * operands[3].shape[1]
    return hidden * (6 * operands[0].shape[-1] + 4), hidden


@define(
    "experts",
    "operand indices weights gate up down gate_bias? up_bias? down_bias?",
    Attr("activation", "text", "silu", choices=ACTIVATIONS),
    Attr("glu", "text", "glu", choices=("glu", "swiglu")),
    Attr("activation_scale", "number", 1.0),
    Attr("up_offset", "number", 0.0),
    Attr("gate_lower", "number", -inf),
    Attr("gate_upper", "number", inf),
    Attr("up_lower", "number", -inf),
    Attr("up_upper", "number", inf),
    Attr("modulate", "text", "output", choices=("output", "input")),
    Attr("capacity", "integer", 0),
    Attr("dtype", "element", REQUIRED),
    traits=(Trait.COMPOSITE,),
    factors=_factors,
    cost=_cost,
)
def _experts(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """``sum_j weights[t,j] * f_e(x[t])``, e = ``indices[t,j]``: a mixture of gated MLPs.

    x is [...,H]; its K experts of each token are ``indices`` s32 [...,K] with ``weights`` f32
    [...,K]; an index outside of 0..E-1 contributes nothing, and those of one token differ. ``gate``
    and ``up`` are [E,I,H], ``down`` is [E,H,I], all of the type of x; all three biases or none are
    given: [E,I], [E,I], [E,H]. With ``g = gate x + gate_bias`` clamped to ``gate_lower`` and
    ``gate_upper``, ``u`` likewise, and the activation a, s its scale, o ``up_offset``::

        f(x) = down h + down_bias    h = a(s g) (u + o)      glu
                                     h = g a(s g) (u + o)    swiglu (GPT-OSS: a = sigmoid)

    Sums of products are f32, h is rounded once to the type of x, and the sum over experts is
    rounded once to ``dtype``. ``modulate=input`` multiplies x by the weight, rounded to the type of
    x, and not the result (Llama 4). A ``capacity`` C above 0 drops the tokens of an expert after
    its first C, in the order of the tokens (arXiv 2006.16668).

    Example:
        %y = experts(%x, %i, %w, %gate, %up, %down) dtype=f32 : f32[B,S,8]
    """
    require(len(types) in (_TERMS, 9), "all three biases are given, or none")
    float_operand(types)
    x, indices, gate = types[0], types[1], types[3]
    require(x.rank >= 1, f"needs a dimension of features, got {x.text}", 0)
    require(indices.rank == x.rank, f"needs {x.rank} dimensions, got {indices.text}", 1)
    rank_of(types, 3, 3, "gate")
    tokens, width = x.shape[:-1], x.shape[-1]
    experts, inner = gate.shape[:2]
    rank_of(types, 5, 3, "down")
    wanted = [
        tensor(s32, (*tokens, indices.shape[-1])),
        tensor(f32, indices.shape),
        tensor(x.dtype, (experts, inner, width)),
        tensor(x.dtype, (experts, inner, width)),
        tensor(x.dtype, (experts, types[5].shape[1], inner)),
        *[tensor(x.dtype, (experts, inner))] * 2,
        tensor(x.dtype, (experts, types[5].shape[1])),
    ]
    for index, (given, right) in enumerate(zip(types[1:], wanted, strict=False), 1):
        require(given is right, f"needs {right.text}, got {given.text}", index)
    require(attrs.integer("capacity") >= 0, f"a capacity of {attrs.integer('capacity')} tokens")
    require(attrs.element("dtype").is_float, f"a sum of {attrs.element('dtype').name}")
    return (tensor(attrs.element("dtype"), (*tokens, types[5].shape[1])),)
