"""Linear layers, norms and the gated MLP. Names are those of the checkpoint's tensors."""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.ir import Value


def linear(b: Builder, name: str, x: Value, features: int, *, bias: bool = False) -> Value:
    """``x`` [..., K] through the layer ``name``: weight [features, K], bias [features]."""
    size = x.shape[-1]
    with b.scope(name):
        y = b.dot(x, b.weight("weight", x.dtype, (features, size)))
        if not bias:
            return y
        offset = b.weight("bias", x.dtype, (features,))
        return y + b.broadcast_in_dim(offset, y.shape, [len(y.shape) - 1])


def rms_norm(b: Builder, name: str, x: Value, epsilon: float) -> Value:
    """Root-mean-square norm of the last dimension with the weight ``name``."""
    with b.scope(name):
        return b.rms_norm(x, b.weight("weight", x.dtype, x.shape[-1:]), epsilon)


def gated_mlp(b: Builder, x: Value, intermediate: int, *, bias: bool = False) -> Value:
    """``down(silu(gate(x)) * up(x))`` of x [..., E]; gate and up have ``intermediate`` features."""
    size = x.shape[-1]
    assert isinstance(size, int)
    with b.scope("mlp"):
        gate = b.silu(linear(b, "gate_proj", x, intermediate, bias=bias))
        up = linear(b, "up_proj", x, intermediate, bias=bias)
        return linear(b, "down_proj", gate * up, size, bias=bias)
