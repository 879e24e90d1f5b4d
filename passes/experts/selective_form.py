"""Selective loading: the matrices of the chosen experts alone, gathered for each token."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.composites.mixture_of_experts import (
    expert_call,
    gated,
    plus_bias,
    result_of,
    scaled,
)
from graphgen.ir import Attrs, Value
from graphgen.ir.dtype import f32
from graphgen.passes.experts.expert_choices import clamped_indices, kept_choices, matrices_of


def chosen_experts(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """Each token by its K matrices, gathered as [T,K,I,H] and [T,K,H,I].

    An index of no expert gathers the nearest one, whose result is then left out.
    """
    call = expert_call(b, operands, attrs)
    kept, at = kept_choices(b, call), clamped_indices(b, call)
    x, contracting, batch = call.x, ([1], [3]), ([0], [0])
    if call.early:
        wide = b.broadcast_in_dim(x, (*call.indices.shape, x.shape[1]), [0, 2])
        x, contracting, batch = scaled(b, wide, call.weights), ([2], [3]), ([0, 1], [0, 1])
    gate, up = (
        _product(b, x, matrices_of(b, weight, at), _of(b, bias, at), contracting, batch)
        for weight, bias in ((call.gate, call.gate_bias), (call.up, call.up_bias))
    )
    hidden = gated(b, gate, up, attrs, call.x.dtype)
    down, bias = matrices_of(b, call.down, at), _of(b, call.down_bias, at)
    y = _product(b, hidden, down, bias, ([2], [3]), ([0, 1], [0, 1]))
    if not call.early:
        y = y * b.broadcast_in_dim(call.weights, y.shape, [0, 1])
    y = b.select(b.broadcast_in_dim(kept, y.shape, [0, 1]), y, b.full(0.0, y.type))
    return [result_of(b, b.reduce(y, [1], "add"), operands[0], attrs)]


def _of(b: Builder, bias: Value | None, at: Value) -> Value | None:
    return None if bias is None else matrices_of(b, bias, at)


def _product(
    b: Builder,
    x: Value,
    weight: Value,
    bias: Value | None,
    contracting: tuple[list[int], list[int]],
    batch: tuple[list[int], list[int]],
) -> Value:
    """``weight x + bias`` f32 [T,K,...] of the weights [T,K,...,...] of each choice."""
    return plus_bias(b, b.dot_general(x, weight, contracting, batch, f32), bias, [0, 1, 2])
