"""The composite ``experts``: gated MLPs chosen by token, the meaning of every dispatch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import TypeVar

from graphgen.ir import Attrs, Dim, TensorType, tensor
from graphgen.ir.dtype import f32, s32
from graphgen.ops.attr_types import ELEMENT, INTEGER, NUMBER, choice
from graphgen.ops.factors import Factors, Notation
from graphgen.ops.opdef import attr, define, float_operand, rank_of, require
from graphgen.ops.traits import Trait, Types

Operand = TypeVar("Operand")
ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh", "quick_gelu", "relu", "sigmoid")
_PLAIN, _BIASES = "* H, * K, * K, e i H, e i H, e o i", ", e i, e i, e o"
_LOW_RANK = ", *, L e R H, L e i R, L e R H, L e i R, L e R i, L e o R"
_TERMS, _WITH_BIASES, _ADAPTER_TERMS = 6, 9, 7


def _factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """Experts and inner features are reduced; a capacity counts all tokens."""
    plain, low_rank = expert_operands(operands)
    text = f"{_PLAIN}{_BIASES * (len(plain) > _TERMS)}{_LOW_RANK * bool(low_rank)} -> * o"
    found = Notation(text, {"e": "add"}, "e")(operands, results, attrs)
    inner = found.operands[3][1][0]
    special = found.special | ({inner} if len(plain) > _TERMS else frozenset[int]())
    found = replace(found, reduction={**found.reduction, inner: "add"}, special=special)
    if not attrs.integer("capacity"):
        return found
    tokens = {factor for word in found.results[0][:-1] for factor in word}
    return replace(found, need_replication=found.need_replication | tokens)


def expert_operands(operands: Sequence[Operand]) -> tuple[Sequence[Operand], Sequence[Operand]]:
    """Operands of ``experts``, split into its own and its adapters'."""
    adapted = len(operands) in (_TERMS + _ADAPTER_TERMS, _WITH_BIASES + _ADAPTER_TERMS)
    plain = len(operands) - _ADAPTER_TERMS * adapted
    return operands[:plain], operands[plain:]


def _cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
    """Three products for each token and each of its experts, and an activation."""
    hidden = operands[1].size * operands[3].shape[1]
    return hidden * (6 * operands[0].shape[-1] + 4), hidden


@define(
    "experts",
    "operand indices weights gate up down gate_bias? up_bias? down_bias? slots? gate_a? gate_b? "
    "up_a? up_b? down_a? down_b?",
    attr("activation", choice(*ACTIVATIONS), "silu"),
    attr("glu", choice("glu", "swiglu"), "glu"),
    attr("activation_scale", NUMBER, 1.0),
    attr("up_offset", NUMBER, 0.0),
    attr("gate_lower", NUMBER, -inf),
    attr("gate_upper", NUMBER, inf),
    attr("up_lower", NUMBER, -inf),
    attr("up_upper", NUMBER, inf),
    attr("modulate", choice("output", "input"), "output"),
    attr("capacity", INTEGER, 0),
    attr("dtype", ELEMENT),
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

    The last seven operands are low-rank adapters, all or none, after the biases if there are
    some: ``slots`` s32 [...], that of each token, outside of 0..L-1 for none; ``gate_a`` and
    ``up_a`` [L,E,r,H] with ``gate_b`` and ``up_b`` [L,E,I,r], ``down_a`` [L,E,r,I] with ``down_b``
    [L,E,H,r]. With the slot s of a token the matrix W of its expert e is ``W + b[s,e] a[s,e]``,
    where the product with ``a`` is rounded once to the type of x (arXiv 2106.09685).

    Example:
        %y = experts(%x, %i, %w, %gate, %up, %down) dtype=f32 : f32[B,S,8]
    """
    plain, low_rank = expert_operands(types)
    whole = len(plain) in (_TERMS, _WITH_BIASES)
    require(whole, "all three biases are given, or none, and all seven operands of adapters")
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
    ][: len(plain) - 1]
    if low_rank:
        wanted += _adapter_types(types, low_rank, len(plain))
    for index, (given, right) in enumerate(zip(types[1:], wanted, strict=True), 1):
        require(given is right, f"needs {right.text}, got {given.text}", index)
    require(attrs.integer("capacity") >= 0, f"a capacity of {attrs.integer('capacity')} tokens")
    require(attrs.element("dtype").is_float, f"a sum of {attrs.element('dtype').name}")
    return (tensor(attrs.element("dtype"), (*tokens, types[5].shape[1])),)


def _adapter_types(
    types: Sequence[TensorType], low_rank: Sequence[TensorType], first: int
) -> list[TensorType]:
    """The types of the operands of adapters; sizes L and r are those of ``gate_a``."""
    x, gate, down = types[0], types[3], types[5]
    rank_of(types, first + 1, 4, "gate_a")
    slots, _, rank, _ = low_rank[1].shape
    (experts, inner, width), out = gate.shape, down.shape[1]
    shapes = ((rank, width), (inner, rank)) * 2 + ((rank, inner), (out, rank))
    pairs = [tensor(x.dtype, (slots, experts, *shape)) for shape in shapes]
    return [tensor(s32, x.shape[:-1]), *pairs]
