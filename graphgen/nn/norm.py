"""Layer norm and RMS norm, named as the checkpoint names their tensors."""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.ir import DType, Value


def layer_norm(
    b: Builder,
    name: str,
    x: Value,
    epsilon: float,
    dtype: DType | None = None,
    *,
    bias: bool = True,
) -> Value:
    """Layer norm of the last dimension with the weight of ``name``, and its bias if it has one.

    Weight, bias and result are of type ``dtype``, by default that of ``x``.
    """
    kind, size = dtype or x.dtype, x.shape[-1:]
    with b.scope(name):
        weight = b.weight("weight", kind, size)
        added = b.weight("bias", kind, size) if bias else b.full(0.0, weight.type)
        return b.layer_norm(x, weight, added, epsilon)


def rms_norm(b: Builder, name: str, x: Value, epsilon: float, dtype: DType | None = None) -> Value:
    """Root-mean-square norm of the last dimension with the weight ``name``.

    Weight and result are of type ``dtype``, by default that of ``x``.
    """
    with b.scope(name):
        return b.rms_norm(x, b.weight("weight", dtype or x.dtype, x.shape[-1:]), epsilon)
