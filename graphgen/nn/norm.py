"""Layer norm and RMS norm, named as the checkpoint names their tensors."""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.ir import DType, Value


def layer_norm(
    b: Builder, name: str, x: Value, epsilon: float, dtype: DType | None = None
) -> Value:
    """Layer norm of the last dimension with the weight and bias of ``name``.

    Weight, bias and result are of type ``dtype``, by default that of ``x``.
    """
    with b.scope(name):
        weight, bias = [b.weight(k, dtype or x.dtype, x.shape[-1:]) for k in ("weight", "bias")]
        return b.layer_norm(x, weight, bias, epsilon)


def rms_norm(b: Builder, name: str, x: Value, epsilon: float, dtype: DType | None = None) -> Value:
    """Root-mean-square norm of the last dimension with the weight ``name``.

    Weight and result are of type ``dtype``, by default that of ``x``.
    """
    with b.scope(name):
        return b.rms_norm(x, b.weight("weight", dtype or x.dtype, x.shape[-1:]), epsilon)
