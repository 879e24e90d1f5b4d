"""Linear layers and the gated MLP, named as the checkpoint names their tensors."""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.ir import DType, Value
from graphgen.ir.dtype import f32
from graphgen.nn.activations import activate


def linear(
    b: Builder,
    name: str,
    x: Value,
    features: int,
    *,
    bias: bool = False,
    dtype: DType | None = None,
) -> Value:
    """``x`` [..., K] through the layer ``name``: weight [features, K], bias [features].

    The result is of type ``dtype``, by default that of ``x``; the parameters are of ``x``'s.
    """
    size = x.shape[-1]
    with b.scope(name):
        y = b.dot(x, b.weight("weight", x.dtype, (features, size)), dtype)
        if not bias:
            return y
        return _plus_bias(b, y, b.weight("bias", x.dtype, (features,)))


def conv1d(b: Builder, name: str, x: Value, features: int, *, dtype: DType | None = None) -> Value:
    """``x`` [..., K] through transformers' ``Conv1D`` called ``name``: weight [K, features], bias.

    The result is of type ``dtype``, by default that of ``x``; the parameters are of ``x``'s.
    """
    with b.scope(name):
        weight = b.weight("weight", x.dtype, (x.shape[-1], features))
        y = b.dot_general(x, weight, ([len(x.shape) - 1], [0]), dtype=dtype)
        return _plus_bias(b, y, b.weight("bias", x.dtype, (features,)))


def _plus_bias(b: Builder, y: Value, bias: Value) -> Value:
    return y + b.broadcast_in_dim(b.convert(bias, y.dtype), y.shape, [len(y.shape) - 1])


def gated_mlp(
    b: Builder,
    x: Value,
    intermediate: int,
    *,
    activation: str = "silu",
    bias: bool = False,
    dtype: DType | None = None,
) -> Value:
    """``down(act(gate(x)) * up(x))`` of x [..., E]; gate and up have ``intermediate`` features.

    What lies between the products is f32 and rounded once. The result is of type ``dtype``, by
    default that of ``x``.
    """
    size = x.shape[-1]
    assert isinstance(size, int)
    with b.scope("mlp"):
        gate = linear(b, "gate_proj", x, intermediate, bias=bias, dtype=f32)
        gate = activate(b, activation, gate)
        up = linear(b, "up_proj", x, intermediate, bias=bias, dtype=f32)
        hidden = b.convert(gate * up, x.dtype)
        return linear(b, "down_proj", hidden, size, bias=bias, dtype=dtype)
